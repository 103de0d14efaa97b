"""Reads ssh_config files on a machine without OpenSSH, with asyncssh's parser.

asyncssh refuses or misreads trailing comments, tokens it does not know, newer conditions and quotes that do not match,
and ignores many options silently. So lines are cleaned before it reads them, and every option is kept as text, as `ssh
-G` would print it.
"""

from __future__ import annotations

import fnmatch
import getpass
import glob
import os
import re
import shlex
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from asyncssh.config import ConfigParseError, SSHClientConfig, SSHConfig

from ..errors import ConfigError
from ..plain_text import neutralise
from ..transports.environment import SECRET_VARIABLES
from .target import SshTarget

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_MAX_DEPTH = 16
_REST_OF_LINE = ("proxycommand", "remotecommand", "localcommand", "knownhostscommand")
_SEVERAL = ("IdentityFile", "CertificateFile", "SendEnv", "LocalForward", "RemoteForward", "DynamicForward")
_ONE_LINE = ("SetEnv", "UserKnownHostsFile", "GlobalKnownHostsFile")
_CONDITIONS = ("exec", "host", "originalhost", "user", "localuser", "tagged")
_BARE_CONDITIONS = ("all", "canonical", "final")
_TIMES = ("addkeystoagent", "connecttimeout", "serveraliveinterval", "forwardx11timeout")
_TIME = re.compile(r"(\d+)([smhdw]?)", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_OPTIONS = (
    *_SEVERAL, *_ONE_LINE,
    "AddKeysToAgent", "AddressFamily", "BatchMode", "BindAddress", "BindInterface", "CanonicalizeHostname",
    "CASignatureAlgorithms", "CheckHostIP", "Ciphers", "Compression",
    "ConnectionAttempts", "ConnectTimeout", "ForwardAgent", "ForwardX11",
    "GSSAPIDelegateCredentials", "HashKnownHosts", "HostbasedAuthentication", "HostKeyAlgorithms", "HostKeyAlias",
    "IdentitiesOnly", "IdentityAgent", "KbdInteractiveAuthentication", "KexAlgorithms", "KnownHostsCommand",
    "LocalCommand", "MACs", "NoHostAuthenticationForLocalhost", "NumberOfPasswordPrompts", "PasswordAuthentication",
    "PermitLocalCommand", "PKCS11Provider", "PreferredAuthentications", "ProxyCommand", "ProxyJump", "ProxyUseFdpass",
    "PubkeyAcceptedAlgorithms", "PubkeyAuthentication", "RekeyLimit", "RemoteCommand", "RequiredRSASize",
    "RevokedHostKeys", "SecurityKeyProvider",
    "ServerAliveCountMax", "ServerAliveInterval", "StrictHostKeyChecking", "Tunnel", "VerifyHostKeyDNS",
)  # fmt: skip
_OLD_NAMES = {
    "challengeresponseauthentication": "KbdInteractiveAuthentication",
    "pubkeyacceptedkeytypes": "PubkeyAcceptedAlgorithms",
}


def read_config(target: SshTarget, files: Sequence[Path] | None = None) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """Return the options of `target` by lower-case name, and the names of options that only OpenSSH understands.

    The command line counts first, then `files` (default: the user's and the system's). Blocking: `Match exec` commands
    run. Raise ConfigError.
    """
    if files is None:
        files = (Path("~/.ssh/config").expanduser(), SYSTEM_CONFIG)
    with tempfile.TemporaryDirectory(prefix="ccb-") as directory:
        flags = Path(directory) / "flags"
        flags.write_text("\n".join(option.replace("\n", " ") for option in target.options) + "\n", encoding="utf-8")
        paths = [flags, *(path for path in files if os.access(path, os.R_OK))]
        said = {re.split(r"[\s=]", option.strip(), maxsplit=1)[0].lower() for option in target.options}
        user = (
            target.user if target.user is not None and "user" not in said else ()
        )  # the first value counts, as in ssh
        named = (user, target.host, target.port if target.port and "port" not in said else ())
        try:
            config = _Config.load(None, paths, False, False, False, getpass.getuser(), *named)
            unknown = _unknown_of(config)
            if config.has_match_final():
                config._options.setdefault("Hostname", target.host)  # the second pass must not choose another one
                config = _Config.load(config, paths, False, False, True, getpass.getuser(), *named)
        except (ConfigParseError, ValueError, OSError) as error:
            raise ConfigError(
                "the ssh configuration cannot be read",
                evidence=neutralise(str(error).replace(f"{flags} line", "-o option")),
                do="Correct that line.",
            ) from error
    lines = _option_lines(config)
    if lines.get("canonicalizehostname", ["no"])[0].lower() not in ("no", "false", "none"):
        unknown += ("CanonicalizeHostname",)
    return lines, unknown


def _option_lines(config: SSHConfig) -> dict[str, list[str]]:
    """Return the options in the form of `ssh -G`: several values as a list, times in seconds."""
    lines: dict[str, list[str]] = {}
    for name in ("Hostname", "User", "Port", *_OPTIONS):
        value = config.get(name)
        if value is not None:
            lines[name.lower()] = list(dict.fromkeys(value)) if isinstance(value, list) else [str(value)]
    for name in _TIMES:
        if name in lines:
            lines[name] = [_seconds(lines[name][0])]
    if "rekeylimit" in lines:
        size, *time = lines["rekeylimit"][0].split()
        lines["rekeylimit"] = [" ".join((size, *map(_seconds, time)))]
    return lines


def _unknown_of(config: SSHConfig) -> tuple[str, ...]:
    return tuple(sorted(config.unknown)) if isinstance(config, _Config) else ()


class _KnownTarget(NamedTuple):
    """The facts about the target that are known in the middle of a file."""

    host: str
    user: str | None
    port: int | None


def clean_line(line: str, target: _KnownTarget, include_from: Path, unknown: set[str]) -> str:
    """Return a line of an ssh_config file in a form that asyncssh reads as ssh does, or "" if there is no such form.

    Relative names in an Include are below `include_from`. Add what only OpenSSH understands to `unknown`.
    """
    found = re.match(r"\s*([A-Za-z0-9]+)(\s*=\s*|\s+)(.*)", line)
    if not found:
        return ""
    keyword, rest = found[1], found[3].strip()
    if keyword.lower() in _REST_OF_LINE:
        return f"{keyword} {shlex.quote(rest)}"
    try:
        words = _words(rest)
    except ValueError:
        unknown.add(f"{keyword} (quotes that do not match)")
        return ""
    if keyword.lower() == "match":
        words = _conditions(words, target, unknown)
    elif keyword.lower() == "hostname":
        words = [word.lower() for word in words]
    elif keyword.lower() == "include":
        words = [path for word in words for path in _included(word, include_from)]
    return " ".join([keyword, *map(shlex.quote, words)]) if words else ""


def _words(text: str) -> list[str]:
    """Split `text` into words, up to a comment. A `#` in quotes or inside a word begins no comment."""
    words: list[str] = []
    for word in re.findall(r"""(?:[^\s"']|"[^"]*"|'[^']*'|["'].*)+""", text):
        if word.startswith("#"):
            break
        words += shlex.split(word)
    return words


def _conditions(words: list[str], target: _KnownTarget, unknown: set[str]) -> list[str]:
    """Return the conditions of a Match line.

    One that asyncssh does not know becomes `all`, or `!all` if it may not hold.
    """
    kept: list[str] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        name, equals, value = word.partition("=")
        negated, bare = name.startswith("!"), name.removeprefix("!").lower()
        if bare in _BARE_CONDITIONS:
            kept.append(word)
            continue
        argument = value if equals else (queue.pop(0) if queue else "")
        if bare == "exec":
            command = f"unset {' '.join(SECRET_VARIABLES)}; {_with_tokens(argument, target)}"
            kept += [name, _without_equals(command)]
        elif bare in _CONDITIONS:
            kept += [name, argument.lower() if bare in ("host", "originalhost") else argument]
        elif bare == "sessiontype":
            holds = any(fnmatch.fnmatchcase("exec", pattern) for pattern in argument.split(","))
            kept.append("all" if holds != negated else "!all")
        else:
            unknown.add(f"Match {bare}")
            kept.append("!all")
    return kept


def _without_equals(command: str) -> str:
    """Return an equal shell command without `=`: asyncssh splits every word of a Match line there."""
    if "=" not in command:
        return command
    text = command.replace("\\", "\\\\").replace("=", "\\0075")
    return f'eval "$(printf %b {shlex.quote(text)})"'


def _with_tokens(command: str, target: _KnownTarget) -> str:
    host = socket.gethostname()
    user = getpass.getuser()
    tokens = {
        "%": "%", "d": str(Path.home()), "h": target.host, "i": str(os.getuid()), "l": host,
        "L": host.partition(".")[0], "n": target.host, "p": str(target.port or 22), "r": target.user or user, "u": user,
    }  # fmt: skip
    return re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), command)


def _included(pattern: str, below: Path) -> list[str]:
    path = Path(pattern).expanduser()
    matching = sorted(glob.glob(str(path if path.is_absolute() else below / path)))  # noqa: PTH207
    return [glob.escape(name) for name in matching if Path(name).is_file() and os.access(name, os.R_OK)]


def _seconds(text: str) -> str:
    """Parse an ssh_config time such as `1h30m` into seconds; return the text unchanged if it is not a time."""
    parts = _TIME.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return text
    return str(sum(int(number) * _SECONDS[unit.lower()] for number, unit in parts))


def _first(config: _Config, option: str, args: list[str]) -> None:
    config._options.setdefault(option, " ".join(args))
    args.clear()


def _first_way(config: _Config, option: str, args: list[str]) -> None:
    """Keep the first of ProxyCommand and ProxyJump. `ProxyCommand none` counts as one, `ProxyJump none` does not."""
    jump = str(config._options.get("ProxyJump", "none")).lower()
    if "ProxyCommand" not in config._options and (jump == "none" or option == "ProxyJump"):
        config._options.setdefault(option, " ".join(args))
    args.clear()


def _words_of_first(config: _Config, option: str, args: list[str]) -> None:
    config._options.setdefault(option, list(args))
    args.clear()


def _each(config: _Config, option: str, args: list[str]) -> None:
    kept = config._options.setdefault(option, [])
    assert isinstance(kept, list)
    kept += args if option == "SendEnv" else [" ".join(args)]
    args.clear()


_HANDLERS = {
    **{
        name: SSHClientConfig._handlers[name]
        for name in ("host", "match", "include", "hostname", "user", "port", "tag")
    },
    **{
        name.lower(): (name, _each if name in _SEVERAL else _words_of_first if name in _ONE_LINE else _first)
        for name in _OPTIONS
    },
    **{name.lower(): (name, _first_way) for name in ("ProxyCommand", "ProxyJump")},
    **{old: (name, _first) for old, name in _OLD_NAMES.items()},
}


class _Config(SSHClientConfig):
    """asyncssh's evaluation of Host, Match and Include. It leaves `%x` tokens in the values."""

    _percent_expand = set()  # noqa: RUF012
    _no_split = set()  # noqa: RUF012

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.unknown: set[str] = set()
        self._depth = 0

    def parse(self, path: Path) -> None:
        if self._depth >= _MAX_DEPTH:
            raise ConfigParseError(f"{path}: Include is nested deeper than {_MAX_DEPTH} files")
        self._depth += 1
        target = _KnownTarget(self._orig_host, self._named_user(), self._named_port())
        below = SYSTEM_CONFIG.parent if path.is_relative_to(SYSTEM_CONFIG.parent) else Path("~/.ssh").expanduser()
        text = path.read_text(encoding="utf-8", errors="replace")
        cleaned = "\n".join(clean_line(line, target, below, self.unknown) for line in text.splitlines())
        with tempfile.TemporaryDirectory(prefix="ccb-") as directory:
            copy = Path(directory) / "config"
            copy.write_text(cleaned + "\n", encoding="utf-8")
            try:
                super().parse(copy)
            except ConfigParseError as error:
                raise ConfigParseError(str(error).replace(str(copy), str(path))) from None
            finally:
                self._depth -= 1

    def _named_user(self) -> str | None:
        user = self._options.get("User")
        return user if isinstance(user, str) and user else None

    def _named_port(self) -> int | None:
        port = self._options.get("Port")
        return port if isinstance(port, int) else None

    _handlers = _HANDLERS
