"""Read the ssh options of a host: from `ssh -G`, or from the files. There, what may apply and is not understood is an
error."""

from __future__ import annotations

import asyncio
import fnmatch
import glob
import os
import pwd
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import ConfigError
from ..secret import without_secrets
from ..transports.command_transport import said_by
from .host_config import HostConfig, host_config, with_tokens
from .ssh_target import SshTarget

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
OLD_NAMES = {
    "pubkeyacceptedkeytypes": "pubkeyacceptedalgorithms",
    "hostbasedkeytypes": "hostbasedacceptedalgorithms",
    "hostbasedacceptedkeytypes": "hostbasedacceptedalgorithms",
    "challengeresponseauthentication": "kbdinteractiveauthentication",
    "skeyauthentication": "kbdinteractiveauthentication",
    "tisauthentication": "kbdinteractiveauthentication",
    "dsaauthentication": "pubkeyauthentication",
    "identityfile2": "identityfile",
    "keepalive": "tcpkeepalive",
    "smartcarddevice": "pkcs11provider",
}

_INSTALL = "Correct that line, or install the OpenSSH client: ccb then asks it what the configuration means."
_MAX_DEPTH = 16
_ESCAPED = {False: ("'", '"', "\\", " "), True: ("'", '"', "\\")}  # outside and inside of quotes
_LINE = re.compile(r'\s*"?([^\s="]+)"?(?:\s*=\s*|\s+|$)(.*)', re.DOTALL)
_TIME = re.compile(r"(\d+)([smhdw]?)", re.IGNORECASE)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_REST_OF_LINE = {"proxycommand", "remotecommand", "localcommand", "knownhostscommand"}
_EVERY_LINE = {"identityfile", "certificatefile", "sendenv", "localforward", "remoteforward", "dynamicforward"}
_LISTS = {"setenv", "userknownhostsfile", "globalknownhostsfile"}
"""Options with several values, of which the first line counts."""
_SEVERAL_WORDS = {*_LISTS, "sendenv", "localforward", "remoteforward", "rekeylimit", "addkeystoagent"}
_FLAG = ("yes", "no", "true", "false")
_VALUES = {
    **dict.fromkeys(
        ("batchmode", "checkhostip", "compression", "forwardx11", "hashknownhosts", "hostbasedauthentication",
         "identitiesonly", "kbdinteractiveauthentication", "nohostauthenticationforlocalhost", "passwordauthentication",
         "permitlocalcommand", "proxyusefdpass"),
        _FLAG,
    ),
    "addressfamily": ("any", "inet", "inet6"),
    "pubkeyauthentication": (*_FLAG, "unbound", "host-bound"),
    "stricthostkeychecking": (*_FLAG, "off", "ask", "accept-new"),
}  # fmt: skip
_NUMBERS = {"port", "connectionattempts", "numberofpasswordprompts", "requiredrsasize", "serveralivecountmax"}
_TIMES = {"addkeystoagent": 0, "connecttimeout": 0, "rekeylimit": 1, "serveraliveinterval": 0}
"""Options with times, and the first word that may be one."""
_OPTIONS = {
    *_REST_OF_LINE, *_EVERY_LINE, *_LISTS, *_VALUES, *_NUMBERS, *_TIMES,
    "addkeystoagent", "bindaddress", "bindinterface", "canonicalizehostname", "casignaturealgorithms", "ciphers",
    "forwardagent", "gssapidelegatecredentials", "hostkeyalgorithms", "hostkeyalias", "hostname", "identityagent",
    "ignoreunknown", "kexalgorithms", "macs", "pkcs11provider", "preferredauthentications", "proxyjump",
    "pubkeyacceptedalgorithms", "rekeylimit", "revokedhostkeys", "securitykeyprovider", "tag", "tunnel", "user",
    "verifyhostkeydns",
}  # fmt: skip
_WITHOUT_MEANING = {
    "canonicaldomains", "canonicalizefallbacklocal", "canonicalizemaxdots", "canonicalizepermittedcnames",
    "channeltimeout", "cipher", "clearallforwardings", "compressionlevel", "controlmaster", "controlpath",
    "controlpersist", "enableescapecommandline", "enablesshkeysign", "escapechar", "exitonforwardfailure",
    "fallbacktorsh", "fingerprinthash", "forkafterauthentication", "forwardx11timeout", "forwardx11trusted",
    "gatewayports", "globalknownhostsfile2", "gssapiauthentication", "gssapiclientidentity", "gssapikexalgorithms",
    "gssapikeyexchange", "gssapirenewalforcesrekey", "gssapiserveridentity", "gssapitrustdns",
    "hostbasedacceptedalgorithms", "ipqos", "kbdinteractivedevices", "loglevel", "logverbose",
    "obscurekeystroketiming", "permitremoteopen", "protocol", "protocolkeepalives", "requesttty",
    "rhostsrsaauthentication", "rsaauthentication", "sessiontype", "setuptimeout", "stdinnull", "streamlocalbindmask",
    "streamlocalbindunlink", "syslogfacility", "tcpkeepalive", "tunneldevice", "updatehostkeys", "useprivilegedport",
    "userknownhostsfile2", "useroaming", "usersh", "versionaddendum", "visualhostkey", "warnweakcrypto",
    "xauthlocation",
}  # fmt: skip
"""Options of ssh that change nothing about a connection of ccb."""


def read_config(target: SshTarget, files: Sequence[Path] | None = None) -> dict[str, list[str]]:
    """Return the options of `target` by lower-case name, as `ssh -G` prints them: several values as a list, times in
    seconds. The command line counts first, then `files` (default: the user's and the system's). Blocking. Raise
    ConfigError."""
    if files is None:
        files = (Path("~/.ssh/config").expanduser(), SYSTEM_CONFIG)
    reading = _Reading(target)
    for path in filter(Path.exists, files):
        reading.read(path, path.parent if path == SYSTEM_CONFIG else None, 0)
    options = reading.options
    if options.get("canonicalizehostname", ["no"])[0].lower() not in ("no", "false"):
        raise ConfigError(
            "CanonicalizeHostname cannot be applied without OpenSSH",
            evidence="The name that it gives the host decides which blocks of the ssh configuration count.",
            do="Install the OpenSSH client, or add -o CanonicalizeHostname=no.",
        )
    return options


class _Reading:
    """Reads what applies to `target` into `options`, those of the command line first."""

    def __init__(self, target: SshTarget) -> None:
        self.options: dict[str, list[str]] = {}
        self._target = target
        for option in target.options:
            keyword, rest = _keyword(option)
            if keyword in ("host", "match", "include"):
                raise _error(f"-o {option}", "not allowed on the command line")
            self._option(keyword, rest, f"-o {option}")
        if target.user is not None:
            self.options.setdefault("user", [target.user])
        if target.port:
            self.options.setdefault("port", [str(target.port)])

    def read(self, path: Path, system: Path | None, depth: int) -> None:
        """`system` is the directory of the system's configuration, if the file is a part of that."""
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
            state = path.stat()
        except OSError as error:
            raise _error(str(path), str(error.strerror)) from error
        if system is None and (state.st_uid not in (0, os.getuid()) or state.st_mode & 0o022):
            raise _error(str(path), "bad owner or permissions: others may change it")
        block = True
        for number, line in enumerate(text.split("\n"), 1):
            where = f"{path} line {number}"
            keyword, rest = _keyword(line)
            if keyword == "host":
                block = _in_list(self._target.host, _words(rest, where))
            elif keyword == "match":
                if [word.lower() for word in _words(rest, where)] != ["all"]:
                    raise _error(where, "only `Match all` is understood without OpenSSH")
                block = True
            elif keyword == "include" and block:
                self._include(_words(rest, where), system, depth, where)
            elif keyword and block:
                self._option(keyword, rest, where)

    def _include(self, patterns: Sequence[str], system: Path | None, depth: int, where: str) -> None:
        if depth >= _MAX_DEPTH:
            raise _error(where, f"Include is nested deeper than {_MAX_DEPTH} files")
        for included in _included(patterns, system):
            self.read(included, system, depth + 1)

    def _one(self, name: str, default: str) -> str:
        return self.options[name][0] if name in self.options else default

    def _option(self, keyword: str, rest: str, where: str) -> None:
        name = OLD_NAMES.get(keyword, keyword)
        if name in _WITHOUT_MEANING:
            return
        if name == "refuseconnection":
            raise ConfigError(
                "the ssh configuration refuses this connection",
                evidence=f"{where}: {rest}",
                do="Remove RefuseConnection for this host.",
            )
        if name not in _OPTIONS:
            if _in_list(name, self._one("ignoreunknown", "").lower().split(",")):
                return
            raise _error(where, f"the option {keyword!r} is not known")
        values = self._values(name, rest, where)
        # `ProxyCommand none` chooses the way to the host, `ProxyJump none` does not
        has_way = "proxycommand" in self.options or self._one("proxyjump", "none").lower() != "none"
        if name in _EVERY_LINE:
            kept = self.options.setdefault(name, [])
            for value in values if name == "sendenv" else [" ".join(values)]:
                if value not in kept:
                    kept.append(value)
        elif name not in self.options and not (name in ("proxycommand", "proxyjump") and has_way):
            first = _TIMES.get(name, len(values))
            values = [*values[:first], *map(_seconds, values[first:])]
            self.options[name] = values if name in _LISTS else [" ".join(values)]

    def _values(self, name: str, rest: str, where: str) -> list[str]:
        words = [rest.strip()] if name in _REST_OF_LINE else _words(rest, where)
        values = words if name in _SEVERAL_WORDS else [_value(name, words, where)]
        if name == "hostkeyalias":
            return [values[0].lower()]
        return [with_tokens(values[0], {"h": self._target.host, "%": "%"})] if name == "hostname" else values


def _keyword(line: str) -> tuple[str, str]:
    """Return the lower-case option of a line and the rest of it, empty strings for none."""
    found = _LINE.match(line)
    return (found[1].lower(), found[2]) if found and not found[1].startswith("#") else ("", "")


def _words(text: str, where: str) -> list[str]:
    """Split `text` into words, up to a comment. A backslash stands before a quote, a backslash or a space."""
    words: list[str] = []
    quote = ""
    fresh = True
    characters: Iterator[tuple[int, str]] = iter(enumerate(text.rstrip()))
    for at, character in characters:
        after = text[at + 1 : at + 2]
        if not quote and character in " \t\r\f":
            fresh = True
            continue
        if fresh and character == "#":
            break
        if fresh:
            words.append("")
            fresh = False
        if character == "\\" and after in _ESCAPED[bool(quote)]:
            words[-1] += after
            next(characters)
        elif not quote and character in "'\"":
            quote = character
        elif character == quote:
            quote = ""
        else:
            words[-1] += character
    if quote:
        raise _error(where, "a quote is not closed")
    if not words:
        raise _error(where, "no value")
    return words


def _value(name: str, words: Sequence[str], where: str) -> str:
    value = words[0]
    allowed = _VALUES.get(name)
    if len(words) > 1:
        raise _error(where, f"more than one value: {' '.join(words)}")
    if name in _NUMBERS and not value.isdigit():
        raise _error(where, f"not a number: {value}")
    if name in ("connecttimeout", "serveraliveinterval") and value.lower() != "none" and not _seconds(value).isdigit():
        raise _error(where, f"not a time: {value}")
    if allowed and value.lower() not in allowed:
        raise _error(where, f"not one of {', '.join(allowed)}: {value}")
    return value


def _fits(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))


def _in_list(text: str, patterns: Sequence[str]) -> bool:
    """Return whether `text` matches one of the patterns and none of the negated ones."""
    found = [pattern for pattern in patterns if _fits(text, pattern.removeprefix("!"))]
    return bool(found) and not any(pattern.startswith("!") for pattern in found)


def _included(patterns: Sequence[str], system: Path | None) -> list[Path]:
    below = system or Path("~/.ssh").expanduser()
    found: list[Path] = []
    for pattern in patterns:
        path = below / (pattern if system else os.path.expanduser(pattern))  # noqa: PTH111 - keeps an unknown ~user
        found += map(Path, sorted(glob.glob(str(path))))  # noqa: PTH207 - the pattern is a whole path
    return found


def _seconds(text: str) -> str:
    """Return an ssh_config time such as `1h30m` in seconds, any other text as it is."""
    parts = _TIME.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return text
    return str(sum(int(number) * _SECONDS[unit.lower()] for number, unit in parts))


def _error(where: str, what: str) -> ConfigError:
    return ConfigError("the ssh configuration cannot be read", evidence=f"{where}: {what}", do=_INSTALL)


DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
_RESOLVE_DEADLINE_S = 10.0
_SEVERAL_FILES = ("userknownhostsfile", "globalknownhostsfile")
_PATH = re.compile(r"\s+(?=[/~]|none$)")
"""Where one path ends and the next begins: `ssh -G` prints several in one line and does not quote spaces in them."""


async def resolve(target: SshTarget, ssh: Sequence[str] = ("ssh",)) -> HostConfig:
    """Return the configuration for the ssh that the words `ssh` start. Raise ConfigError when ssh rejects it."""
    program = shutil.which(ssh[0])
    if program is None:
        lines = await asyncio.to_thread(read_config, target)
        keys = [*target.identities, *lines.get("identityfile", ())] or [f"~/.ssh/{name}" for name in DEFAULT_KEYS]
        return host_config({**lines, "identityfile": keys}, {}, target)
    env = without_secrets(os.environ)
    plain = asyncio.create_task(ssh_says([program, "-G", "-F", "none"], target.host, env))
    try:
        given = await ssh_says(config_command(program, target, ssh[1:]), target.host, env)
        files = given.setdefault("identityfile", [])
        files += (file for file in target.identities if file not in files)  # ssh leaves missing files out
        return host_config(given, await plain, target, pwd.getpwuid(os.getuid()).pw_dir)
    finally:
        plain.cancel()
        await asyncio.gather(plain, return_exceptions=True)


async def ssh_says(argv: Sequence[str], host: str, env: Mapping[str, str]) -> dict[str, list[str]]:
    """Run `argv` (an `ssh -G`) for `host` and return its output by lower-case option name. Raise ConfigError when ssh
    rejects its configuration or takes 10 s, and UsageError when there is no such program."""
    try:
        status, out, err = await said_by([*argv, "--", host], env=env, deadline_s=_RESOLVE_DEADLINE_S)
    except TimeoutError:
        raise ConfigError(
            f"`ssh -G` did not answer in {_RESOLVE_DEADLINE_S:g} s",
            do="Look for a slow `Match exec` in your ssh_config.",
        ) from None
    if status:
        raise ConfigError(
            "ssh does not accept its configuration",
            evidence=err.strip(),
            do="Correct the -o option."
            if err.startswith("command-line")
            else f"Correct it until `{shlex.join([*argv, host])}` answers.",
        )
    lines: dict[str, list[str]] = {}
    for line in out.splitlines():
        key, _, value = line.partition(" ")
        lines.setdefault(key.lower(), []).extend(_PATH.split(value) if key in _SEVERAL_FILES else [value])
    return lines


def config_command(program: str, target: SshTarget, more: Sequence[str] = ()) -> list[str]:
    """Return `ssh -G` with the flags `more` and those of `target`. The caller appends `--` and the host."""
    return [program, *more, "-G", *target.flags()]
