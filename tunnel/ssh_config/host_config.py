"""The ssh options of one host as typed values, made from option lines as `ssh -G` prints them."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import socket
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from ..errors import ConfigError, UsageError
from ..wire.dataclass import dataclass
from .ssh_target import Lines, SshTarget, changed, without_effect

ALGORITHMS = ("ciphers", "macs", "kexalgorithms", "hostkeyalgorithms", "pubkeyacceptedalgorithms")
_CONNECT_TIMEOUT_S = 10.0
_GREETING_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Route:
    """How the byte stream to the host is made. `greeting_s`: seconds in which a server must ask for a login."""

    proxy_jump: str | None
    proxy_command: str | None
    family: str
    bind_address: str | None
    attempts: int
    connect_timeout_s: float
    greeting_s: float


@dataclass(frozen=True)
class HostTrust:
    """Which host keys are trusted. `name` and `port` are those of known_hosts; `alias` is HostKeyAlias."""

    name: str
    port: int
    alias: str | None
    known_hosts: tuple[Path, ...]
    revoked: tuple[Path, ...]
    strict: str
    hash_names: bool


@dataclass(frozen=True)
class Identities:
    """The keys of the person. `agent_keeps`: whether the agent asks before each use, and for how many seconds."""

    files: tuple[Path, ...]
    certificates: tuple[Path, ...]
    only: bool
    agent: str | None
    agent_keeps: tuple[bool, int] | None


@dataclass(frozen=True)
class LoginMethods:
    """How the person may prove who they are. `prompts` is NumberOfPasswordPrompts. `batch`: nothing may be asked."""

    preferred: str | None
    public_key: bool
    password: bool
    challenges: bool
    prompts: int
    batch: bool


@dataclass(frozen=True)
class StreamOptions:
    """Options of the connection. `algorithms` are those that were set. `alive` is ServerAliveInterval and -CountMax.
    `rekey` are the bytes and the seconds after which keys change, 0 if not set."""

    compression: bool
    algorithms: Mapping[str, str]
    alive: tuple[int, int] | None
    rekey: tuple[int, int]
    set_env: Mapping[str, str]
    send_env: tuple[str, ...]


@dataclass(frozen=True)
class HostConfig:
    """The ssh options of one host. `given` are those that differ from ssh's defaults, `no_effect` those of them that
    only OpenSSH honours. `control_asks`: the master at `control_path` asks before each use. `digest` hashes them
    all."""

    hostname: str
    user: str
    port: int
    route: Route
    trust: HostTrust
    identities: Identities
    methods: LoginMethods
    stream: StreamOptions
    given: Mapping[str, Sequence[str]]
    no_effect: tuple[str, ...]
    control_path: Path | None = None
    control_asks: bool = False
    digest: str = ""


def host_config(lines: Lines, defaults: Lines, target: SshTarget, home: str | None = None) -> HostConfig:
    """Return the options of `target`. Raise UsageError for a wrong port, ConfigError for an unknown home. `defaults`
    are the lines of ssh without any configuration. `home` is what `~` means (None: HOME)."""
    options, given = _Options(lines, target, home), changed(lines, defaults)
    control_path = options.maybe("controlpath") or ""
    keeps = options.one("addkeystoagent", "no").lower().split()
    return HostConfig(
        hostname=options.hostname,
        user=options.user,
        port=options.port,
        route=_route(options),
        trust=_trust(options),
        identities=Identities(
            files=options.paths("identityfile"),
            certificates=options.paths("certificatefile"),
            only=options.flag("identitiesonly"),
            agent=_agent(options),
            agent_keeps=None
            if keeps[0] in ("no", "false", "ask")
            else (keeps[0] == "confirm", int(keeps[-1]) if keeps[-1].isdigit() else 0),
        ),
        methods=LoginMethods(
            preferred=options.maybe("preferredauthentications"),
            public_key=options.one("pubkeyauthentication", "yes").lower() not in ("no", "false"),
            password=options.flag("passwordauthentication", "yes"),
            challenges=options.flag("kbdinteractiveauthentication", "yes"),
            prompts=options.number("numberofpasswordprompts", 3),
            batch=options.flag("batchmode"),
        ),
        stream=_stream(options, given),
        given=given,
        no_effect=without_effect(lines, defaults),
        # ssh -G prints it expanded
        control_path=Path(control_path) if control_path.startswith("/") and "${" not in control_path else None,
        control_asks=options.one("controlmaster").lower() in ("ask", "autoask"),
        digest=hashlib.sha256(repr(sorted((key, list(values)) for key, values in lines.items())).encode()).hexdigest(),
    )


class _Options:
    """Option lines, with one method for each kind of ssh_config value."""

    def __init__(self, lines: Lines, target: SshTarget, home: str | None) -> None:
        self.lines = lines
        self._target = target
        self._home = home

    def one(self, key: str, default: str = "") -> str:
        return self.lines[key][0] if self.lines.get(key) else default

    def maybe(self, key: str) -> str | None:
        value = self.one(key)
        return value if value and value.lower() != "none" else None

    def flag(self, key: str, default: str = "no") -> bool:
        return self.one(key, default).lower() in ("yes", "true")

    def number(self, key: str, default: int) -> int:
        return int(self.one(key)) if self.one(key).isdigit() else default

    def paths(self, key: str) -> tuple[Path, ...]:
        return tuple(self.path(text) for text in self.lines.get(key, ()) if text.lower() != "none")

    def path(self, text: str) -> Path:
        text = re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], found[0]), text)
        text = with_tokens(text, self.tokens)
        if text == "~" or text.startswith("~/"):
            return Path(self.tokens["d"] + text[1:])
        try:
            return Path(text).expanduser()
        except RuntimeError as error:
            raise ConfigError(
                "the ssh configuration names the home of a user who does not exist on this machine",
                evidence=text,
                do="Correct that path.",
            ) from error

    @cached_property
    def hostname(self) -> str:
        return self.one("hostname", self._target.host).lower()

    @cached_property
    def user(self) -> str:
        return self.one("user", self._target.user or local_user())

    @cached_property
    def port(self) -> int:
        text = self.one("port", str(self._target.port or 22))
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"{text!r} is not a port", do="Give -P a number from 1 to 65535.") from None

    @cached_property
    def tokens(self) -> Mapping[str, str]:
        """The values of `%x` (ssh_config(5), TOKENS)."""
        tokens = {
            "%": "%",
            "d": self._home or str(Path.home()),
            "h": self.hostname,
            "i": str(os.getuid()),
            "k": self.one("hostkeyalias", self._target.host),
            "l": socket.gethostname(),
            "L": socket.gethostname().partition(".")[0],
            "n": self._target.host,
            "p": str(self.port),
            "r": self.user,
            "u": local_user(),
        }
        digest = hashlib.sha1("".join(tokens[each] for each in "lhpr").encode(), usedforsecurity=False)
        return {**tokens, "C": digest.hexdigest()}


def with_tokens(text: str, tokens: Mapping[str, str]) -> str:
    """Replace `%x`, which `ssh -G` mostly prints as written."""
    return re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), text)


def local_user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _route(options: _Options) -> Route:
    tokens = {token: options.tokens[token] for token in "%hnpr"}
    proxy_command, proxy_jump = options.maybe("proxycommand"), options.maybe("proxyjump")
    timeout = options.number("connecttimeout", 0)
    return Route(
        proxy_jump=with_tokens(proxy_jump, tokens) if proxy_jump else None,
        proxy_command=with_tokens(proxy_command, tokens) if proxy_command else None,
        family=options.one("addressfamily", "any"),
        bind_address=options.maybe("bindaddress"),
        attempts=max(1, options.number("connectionattempts", 1)),
        connect_timeout_s=timeout or _CONNECT_TIMEOUT_S,
        greeting_s=timeout or _GREETING_TIMEOUT_S,
    )


def _trust(options: _Options) -> HostTrust:
    known_hosts = options.paths("userknownhostsfile")
    if options.one("userknownhostsfile").lower() == "none":
        known_hosts = (Path(os.devnull),)
    elif not known_hosts:
        known_hosts = tuple(Path(options.tokens["d"], ".ssh", name) for name in ("known_hosts", "known_hosts2"))
    if "globalknownhostsfile" not in options.lines:
        known_hosts += (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))
    alias = options.maybe("hostkeyalias")
    strict = options.one("stricthostkeychecking", "ask").lower()
    return HostTrust(
        name=alias or options.hostname,
        port=22 if alias else options.port,
        alias=alias,
        known_hosts=known_hosts + options.paths("globalknownhostsfile"),
        revoked=options.paths("revokedhostkeys"),
        strict={"true": "yes", "false": "no", "off": "no"}.get(strict, strict),
        hash_names=options.flag("hashknownhosts"),
    )


def _stream(options: _Options, given: Mapping[str, Sequence[str]]) -> StreamOptions:
    interval = options.number("serveraliveinterval", 0)
    size, _, seconds = options.one("rekeylimit").partition(" ")
    factor = {"k": 1024, "m": 1024**2, "g": 1024**3}.get(size[-1:].lower(), 1)
    digits = size.rstrip("kmgKMG")
    return StreamOptions(
        compression=options.flag("compression"),
        algorithms={name: given[name][0] for name in ALGORITHMS if given.get(name)},
        alive=(interval, options.number("serveralivecountmax", 3)) if interval else None,
        rekey=(int(digits) * factor if digits.isdigit() else 0, int(seconds) if seconds.isdigit() else 0),
        set_env=dict(value.split("=", 1) for value in options.lines.get("setenv", ()) if "=" in value),
        send_env=tuple(word for value in options.lines.get("sendenv", ()) for word in value.split()),
    )


def _agent(options: _Options) -> str | None:
    value = options.one("identityagent", "SSH_AUTH_SOCK")
    if value.lower() == "none":
        return None
    if value == "SSH_AUTH_SOCK" or (value.startswith("$") and not value.startswith("${")):
        return os.environ.get(value.removeprefix("$")) or None
    return str(options.path(value))
