"""The place where a session runs, as the person writes it: `[user@]host[:path]` or `ssh://[user@]host[:port][/path]`.

A path that starts with neither `/` nor `~` is relative to the home directory on the host; `host:` is the home
directory. IPv6 addresses are written in brackets.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from urllib.parse import unquote

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire.dataclass import dataclass

HOME = "~"
_EXAMPLES = "Write [user@]host[:/path] or ssh://[user@]host[:port]/path."
_NOT_IN_HOST = re.compile(r"[\s\x00-\x20\x7f-\x9f'\"`$\\;&<>|(){}/*?\[\]#!,=]")
_NOT_IN_USER = re.compile(r"[\s\x00-\x20\x7f-\x9f'\"`;&<>|(){}/]")


@dataclass(frozen=True)
class Target:
    """`host` is a name, an alias of ssh_config or an address without brackets; `path` is None when none was given."""

    host: str
    user: str | None = None
    port: int | None = None
    path: str | None = None

    def __str__(self) -> str:
        """Return the shortest spelling that `parse_target` parses as the same target."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        if self.port is None:
            return f"{user}{host}" if self.path is None else f"{user}{host}:{self.path}"
        path = "" if self.path is None else _quote(self.path)
        return f"ssh://{user}{host}:{self.port}{path}"

    @property
    def login(self) -> str:
        """Return the host as messages name it: `user@host` or `host`."""
        return f"{self.user}@{self.host}" if self.user else self.host


def parse_target(text: str) -> Target:
    """Parse `text` as a target. Raises UsageError."""
    if "\0" in text:
        raise _bad(text, "it contains a NUL character")
    if text[:6].lower() == "ssh://":
        return _parse_url(text)
    if _is_bare_ipv6(text):
        raise _bad(text, f"write an IPv6 address in brackets: [{text}]")
    login, path = _split_path(text)
    user, host = _split_user(login)
    return Target(_host(host, text), _user(user, text), None, None if path is None else remote_path(path))


def remote_path(path: str) -> str:
    """Return `path` in the form that the worker expects: absolute, or starting with `~`."""
    if not path:
        return HOME
    return path if path[0] in "/~" else f"~/{path}"


def directory_here(text: str) -> Path | None:
    """Return the directory of this machine that `text` names, as an absolute path. Return None if it names none, as a
    prompt does: one longer than a file name may be, or one that starts with a `~name` that is no user."""
    try:
        path = Path(text).expanduser().absolute()
        return path if path.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None


def parse_port(text: str) -> int:
    """Parse `text` as a TCP port. Raises UsageError."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise UsageError(f"{_shown(text)} is not a port number", do="A port is a number from 1 to 65535.")
    return int(text)


def _parse_url(text: str) -> Target:
    authority, slash, path = text[6:].partition("/")
    user, host = _split_user(authority)
    if user is not None and ":" in user:
        shown = f"ssh://{user.partition(':')[0]}:…@{host}"
        raise UsageError(
            f"{_shown(shown)} is not a target: it must not contain a password",
            do="Leave it out: ccb asks for it if the host wants one.",
        )
    port: int | None = None
    if host.startswith("["):
        host, _, after = host.partition("]")
        host += "]"
        if after and not after.startswith(":"):
            raise _bad(text, "only :port may follow the bracket")
        number = after[1:] if after else None
    else:
        host, colon, number_text = host.partition(":")
        number = number_text if colon else None
    if number is not None:
        port = parse_port(number)
    where = unquote(path)
    if "\0" in where:
        raise _bad(text, "its path contains a NUL character")
    if not slash:
        found = None
    elif path.startswith("~"):
        found = where  # ssh://host/~/x names the home directory, as it does for git; %7E is a directory of that name
    else:
        found = f"/{where}"
    return Target(_host(host, text), _user(None if user is None else unquote(user), text), port, found)


def _split_path(text: str) -> tuple[str, str | None]:
    start = text.rfind("@", 0, text.find("[")) + 1 if "[" in text else 0
    if text[start : start + 1] == "[" and "]" in text:
        close = text.index("]", start)
        login, after = text[: close + 1], text[close + 1 :]
        if after and not after.startswith(":"):
            raise _bad(text, "only :path may follow the bracket")
        return login, after[1:] if after else None
    login, colon, path = text.partition(":")
    return login, path if colon else None


def _split_user(login: str) -> tuple[str | None, str]:
    user, at, host = login.rpartition("@")
    return (user if at else None), host


def _host(host: str, text: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        inner = host[1:-1]
        if not _is_ipv6(inner):
            raise _bad(text, f"{_shown(host)} is not an IPv6 address")
        return inner
    if not host:
        raise _bad(text, "the host is missing")
    if host.startswith("-"):
        raise _bad(text, "a host cannot start with -")
    if "/" in host:
        raise _bad(text, "this looks like a path: the host comes first")
    found = _NOT_IN_HOST.search(host)
    if found:
        first = "; the host comes first, then the prompt" if found.group().isspace() else ""
        raise _bad(text, f"a host cannot contain {found.group()!r}{first}")
    return host


def _user(user: str | None, text: str) -> str | None:
    if user is None:
        return None
    if not user:
        raise _bad(text, "the user before @ is missing")
    if user.startswith("-"):
        raise _bad(text, "a user cannot start with -")
    found = _NOT_IN_USER.search(user)
    if found or user.endswith("\\"):
        raise _bad(text, f"a user cannot contain {found.group() if found else user[-1]!r}")
    return user


def _is_ipv6(text: str) -> bool:
    try:
        return isinstance(ipaddress.ip_address(text), ipaddress.IPv6Address) and not _NOT_IN_HOST.search(text)
    except ValueError:
        return False


def _is_bare_ipv6(text: str) -> bool:
    return text.count(":") > 1 and _is_ipv6(text)


def _quote(path: str) -> str:
    from urllib.parse import quote

    quoted = quote(path, safe="/~", errors="surrogateescape")
    if path.startswith("/~"):
        return quoted.replace("~", "%7E", 1)
    return quoted if path.startswith("/") else f"/{quoted}"


def _shown(text: str) -> str:
    return repr(neutralise(text)[:80])


def _bad(text: str, why: str) -> UsageError:
    return UsageError(f"{_shown(text)} is not a target: {why}", do=_EXAMPLES)
