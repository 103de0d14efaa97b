"""The place where a session runs: `[user@]host[:path]` or `ssh://[user@]host[:port][/path]`; IPv6 in brackets."""

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

    @property
    def login(self) -> str:
        return f"{self.user}@{self.host}" if self.user else self.host


def parse_target(text: str) -> Target:
    if "\0" in text:
        raise _bad(text, "it contains a NUL character")
    if text[:6].lower() == "ssh://":
        return _parse_url(text)
    if text.count(":") > 1 and _is_ipv6(text):
        raise _bad(text, f"write an IPv6 address in brackets: [{text}]")
    login, path = _split(text, text, "path")
    user, at, host = login.rpartition("@")
    where = None if path is None else remote_path(path)
    return Target(_host(host, text), _user(user, text) if at else None, None, where)


def remote_path(path: str) -> str:
    """Return `path` in the form that the worker expects: absolute, or starting with `~`."""
    if not path:
        return HOME
    return path if path[0] in "/~" else f"~/{path}"


def directory_here(text: str) -> Path | None:
    """Return the directory of this machine that `text` names, as an absolute path; None if it names none."""
    try:
        path = Path(text).expanduser().absolute()
        return path if path.is_dir() else None
    except (OSError, RuntimeError, ValueError):
        return None


def parse_port(text: str, shown: str = "") -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise UsageError(f"{_shown(text)} is not a port number", do="A port is a number from 1 to 65535.")
    return int(text)


def _parse_url(text: str) -> Target:
    authority, slash, path = text[6:].partition("/")
    user, at, host = authority.rpartition("@")
    if ":" in user:
        shown = f"ssh://{user.partition(':')[0]}:…@{host}"
        raise UsageError(
            f"{_shown(shown)} is not a target: it must not contain a password",
            do="Leave it out: ccb asks for it if the host wants one.",
        )
    host, number = _split(host, text, "port")
    where = unquote(path)
    if "\0" in where:
        raise _bad(text, "its path contains a NUL character")
    if not path.startswith("~"):  # ssh://host/~/x names the home directory, as for git; %7E is a directory of that name
        where = f"/{where}"
    port = None if number is None else parse_port(number)
    return Target(_host(host, text), _user(unquote(user), text) if at else None, port, where if slash else None)


def _split(text: str, whole: str, what: str) -> tuple[str, str | None]:
    """Split `text` at the colon behind a host, which may be an address in brackets after a user."""
    start = text.rfind("@", 0, text.find("[")) + 1 if "[" in text else 0
    end = text.find("]", start) + 1 if text[start : start + 1] == "[" else 0
    host, colon, after = text[end:].partition(":")
    if end and host:
        raise _bad(whole, f"only :{what} may follow the bracket")
    return text[:end] + host, after if colon else None


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


def _user(user: str, text: str) -> str:
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


def _shown(text: str) -> str:
    return repr(neutralise(text)[:80])


def _bad(text: str, why: str) -> UsageError:
    return UsageError(f"{_shown(text)} is not a target: {why}", do=_EXAMPLES)
