"""What `ssh` would do for a host, resolved by `ssh -G` where OpenSSH is installed."""

from __future__ import annotations

import asyncio
import dataclasses
import getopt
import getpass
import hashlib
import os
import pwd
import re
import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError, UsageError
from ..plain_text import neutralise
from ..transports.command import said_by
from ..transports.environment import without_secrets
from .unsupported import Lines, changed, without_effect

ALGORITHMS = ("ciphers", "macs", "kexalgorithms", "hostkeyalgorithms", "pubkeyacceptedalgorithms")
_RESOLVE_DEADLINE_S = 10.0
_FLAGS = "1246ab:c:e:fgi:kl:m:no:p:qstvxAB:CD:E:F:GI:J:KL:MNO:P:Q:R:S:TVw:W:XYy"
_SEVERAL_FILES = ("userknownhostsfile", "globalknownhostsfile")
_PATH = re.compile(r"\s+(?=[/~]|none$)")  # `ssh -G` prints paths in one line, and does not quote one with spaces
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")


@dataclass(frozen=True)
class SshTarget:
    """A host as the user named it, with the ssh options of the command line (`-i`, `-P`, `-o`)."""

    host: str
    user: str | None = None
    port: int | None = None
    identities: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.host or self.host.startswith("-") or any(c.isspace() or not c.isprintable() for c in self.host):
            raise UsageError(f"{self.host!r} is not a host name", do="Name a host as ssh does: [user@]host.")
        if self.user is not None and (self.user.startswith("-") or any(c.isspace() for c in self.user)):
            raise UsageError(f"{self.user!r} is not a user name", do="Name a host as ssh does: [user@]host.")

    @property
    def shown(self) -> str:
        """`user@host`, as messages call it."""
        return f"{self.user}@{self.host}" if self.user else self.host


@dataclass(frozen=True)
class HostConfig:
    """The options that apply to one host, names as in ssh_config(5); paths are expanded."""

    hostname: str
    user: str
    port: int
    identity_files: tuple[Path, ...]
    certificate_files: tuple[Path, ...]
    identities_only: bool
    agent: str | None
    agent_keeps: tuple[bool, int] | None
    """AddKeysToAgent: whether the agent shall ask before each use, and the seconds it keeps a key (0: for good)."""
    proxy_jump: str | None
    proxy_command: str | None
    proxy_passes: bool
    """ProxyUseFdpass: the command gives an open connection, it does not carry its bytes."""
    known_hosts: tuple[Path, ...]
    revoked: tuple[Path, ...]
    """RevokedHostKeys."""
    strict_host_keys: str
    host_key_alias: str | None
    hash_known_hosts: bool
    connect_timeout_s: float
    greeting_s: float
    """Seconds in which a server that has accepted must have come to ask for a login: ConnectTimeout where that was set."""
    attempts: int
    """ConnectionAttempts."""
    compression: bool
    family: str
    bind_address: str | None
    set_env: Mapping[str, str]
    bind_interface: str | None
    send_env: tuple[str, ...]
    algorithms: Mapping[str, str]
    """Lists of names under `ciphers`, `macs`, `kexalgorithms`, `hostkeyalgorithms` and `pubkeyacceptedalgorithms`; only those
    that were set."""
    alive: tuple[int, int] | None
    """ServerAliveInterval (seconds) and ServerAliveCountMax."""
    rekey: tuple[int, int]
    """Bytes and seconds after which keys are changed; 0: not said."""
    methods: str | None
    """PreferredAuthentications."""
    public_key: bool
    password: bool
    challenges: bool
    prompts: int
    """NumberOfPasswordPrompts."""
    batch: bool
    trust_loopback: bool
    no_effect: tuple[str, ...]
    """Options that were set and that only OpenSSH honours."""


async def resolve(target: SshTarget, words: Sequence[str] = ("ssh",)) -> HostConfig:
    """The configuration of `target` for the ssh that `words` start. Raises ConfigError when ssh refuses its own configuration or
    an option."""
    ssh = shutil.which(words[0])
    if ssh is None:
        from .files import read_config

        lines, unknown = await asyncio.to_thread(read_config, target)
        config = _config(_with_flags(lines, target), {}, target)
        return dataclasses.replace(config, no_effect=(*config.no_effect, *unknown))
    env = without_secrets(os.environ)
    plain = asyncio.create_task(ssh_says([ssh, "-G", "-F", "none"], target.host, env))
    try:
        given = await ssh_says(config_command(ssh, target, words[1:]), target.host, env)
        files = given.setdefault("identityfile", [])
        files += (file for file in target.identities if file not in files)  # ssh leaves out what is not there
        return _config(given, await plain, target, pwd.getpwuid(os.getuid()).pw_dir)
    finally:
        plain.cancel()
        await asyncio.gather(plain, return_exceptions=True)


async def ssh_says(argv: Sequence[str], host: str, env: Mapping[str, str]) -> dict[str, list[str]]:
    """What `ssh -G` (`argv`) prints for `host`: values by lower-case option name. Raises ConfigError, also after 10 s, and
    UsageError when there is no such program."""
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
            evidence=neutralise(err.strip()),
            do="Correct the -o option."
            if err.startswith("command-line")
            else f"Mend it until `{shlex.join([*argv, host])}` answers.",
        )
    lines: dict[str, list[str]] = {}
    for line in out.splitlines():
        key, _, value = line.partition(" ")
        lines.setdefault(key.lower(), []).extend(_PATH.split(value) if key in _SEVERAL_FILES else [value])
    return lines


def flags_of(words: Sequence[str]) -> list[tuple[str, str]]:
    """The flags of an ssh, with their values; none where it would not understand them, either."""
    try:
        return getopt.getopt(list(words[1:]), _FLAGS)[0]
    except getopt.GetoptError:
        return []


def config_command(ssh: str, target: SshTarget, more: Sequence[str] = ()) -> list[str]:
    """`ssh -G` with `more` flags and the options of the command line; `--` and the host belong behind it."""
    argv = [ssh, *more, "-G"]
    for option in target.options:
        argv += ["-o", option]
    for identity in target.identities:
        argv += ["-i", identity]
    if target.port is not None:
        argv += ["-p", str(target.port)]
    if target.user is not None:
        argv += ["-l", target.user]
    return argv


def _with_flags(lines: dict[str, list[str]], target: SshTarget) -> dict[str, list[str]]:
    """What ssh makes of files without being asked: identities of the command line, the default ones."""
    keys = [*target.identities, *lines.get("identityfile", ())]
    return {**lines, "identityfile": keys or [f"~/.ssh/{name}" for name in DEFAULT_KEYS]}


def _percent(text: str, tokens: Mapping[str, str]) -> str:
    """Replace `%x` as ssh_config(5) TOKENS says; `ssh -G` prints most of them as they were written."""
    return re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), text)


def _path(text: str, tokens: Mapping[str, str]) -> Path:
    """A file's name with its `%x`, `${NAME}` and `~`."""
    text = re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], found[0]), text)
    text = _percent(text, tokens)
    if text == "~" or text.startswith("~/"):
        return Path(tokens["d"] + text[1:])
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            "the ssh configuration names the home of a user who does not exist here",
            evidence=text,
            do="Mend that path.",
        ) from error


def _agent(value: str, tokens: Mapping[str, str]) -> str | None:
    """The socket that IdentityAgent means."""
    if value.lower() == "none":
        return None
    if value == "SSH_AUTH_SOCK" or (value.startswith("$") and not value.startswith("${")):
        return os.environ.get(value.removeprefix("$")) or None
    return str(_path(value, tokens))


def _config(lines: Lines, defaults: Lines, target: SshTarget, home: str | None = None) -> HostConfig:
    """`home` is what `~` means, HOME if nothing else is said: ssh does not look at that."""

    def one(key: str, default: str = "") -> str:
        return lines[key][0] if lines.get(key) else default

    def maybe(key: str) -> str | None:
        value = one(key)
        return value if value and value.lower() != "none" else None

    def flag(key: str, default: str = "no") -> bool:
        return one(key, default).lower() in ("yes", "true")

    def number(key: str, default: int) -> int:
        return int(one(key)) if one(key).isdigit() else default

    try:
        port = int(one("port", str(target.port or 22)))
    except ValueError:
        raise UsageError(f"{one('port')!r} is not a port", do="Give -P a number from 1 to 65535.") from None
    given = changed(lines, defaults)
    hostname, user = one("hostname", target.host).lower(), one("user", target.user or getpass.getuser())
    tokens = {
        "%": "%",
        "d": home or str(Path.home()),
        "h": hostname,
        "i": str(os.getuid()),
        "k": one("hostkeyalias", target.host),
        "l": socket.gethostname(),
        "L": socket.gethostname().partition(".")[0],
        "n": target.host,
        "p": str(port),
        "r": user,
        "u": getpass.getuser(),
    }
    tokens["C"] = hashlib.sha1("".join(tokens[each] for each in "lhpr").encode(), usedforsecurity=False).hexdigest()

    def paths(key: str) -> tuple[Path, ...]:
        return tuple(_path(text, tokens) for text in lines.get(key, ()) if text.lower() != "none")

    timeout = one("connecttimeout", "none")
    patience = float(timeout) if timeout.isdigit() else 0.0
    known_hosts = paths("userknownhostsfile")
    if one("userknownhostsfile").lower() == "none":
        known_hosts = (Path(os.devnull),)
    elif not known_hosts:
        known_hosts = tuple(Path(tokens["d"], ".ssh", name) for name in ("known_hosts", "known_hosts2"))
    if "globalknownhostsfile" not in lines:
        known_hosts += (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))
    proxy_command, proxy_jump = maybe("proxycommand"), maybe("proxyjump")
    in_proxies = {token: tokens[token] for token in "%hnpr"}
    strict = one("stricthostkeychecking", "ask").lower()
    return HostConfig(
        hostname=hostname,
        user=user,
        port=port,
        identity_files=paths("identityfile"),
        certificate_files=paths("certificatefile"),
        identities_only=flag("identitiesonly"),
        agent=_agent(one("identityagent", "SSH_AUTH_SOCK"), tokens),
        agent_keeps=_kept(one("addkeystoagent", "no")),
        proxy_jump=_percent(proxy_jump, in_proxies) if proxy_jump else None,
        proxy_command=_percent(proxy_command, in_proxies) if proxy_command else None,
        proxy_passes=flag("proxyusefdpass"),
        known_hosts=known_hosts + paths("globalknownhostsfile"),
        revoked=paths("revokedhostkeys"),
        strict_host_keys={"true": "yes", "false": "no", "off": "no"}.get(strict, strict),
        host_key_alias=maybe("hostkeyalias"),
        hash_known_hosts=flag("hashknownhosts"),
        connect_timeout_s=patience or 10.0,
        greeting_s=patience or 30.0,
        attempts=max(1, number("connectionattempts", 1)),
        compression=flag("compression"),
        family=one("addressfamily", "any"),
        bind_address=maybe("bindaddress"),
        set_env=dict(value.split("=", 1) for value in lines.get("setenv", ()) if "=" in value),
        bind_interface=maybe("bindinterface"),
        send_env=tuple(word for value in lines.get("sendenv", ()) for word in value.split()),
        algorithms={name: given[name][0] for name in ALGORITHMS if given.get(name)},
        alive=(number("serveraliveinterval", 0), number("serveralivecountmax", 3))
        if number("serveraliveinterval", 0)
        else None,
        rekey=_rekey(one("rekeylimit")),
        methods=maybe("preferredauthentications"),
        public_key=one("pubkeyauthentication", "yes").lower() not in ("no", "false"),
        password=flag("passwordauthentication", "yes"),
        challenges=flag("kbdinteractiveauthentication", "yes"),
        prompts=number("numberofpasswordprompts", 3),
        batch=flag("batchmode"),
        trust_loopback=flag("nohostauthenticationforlocalhost"),
        no_effect=without_effect(lines, defaults),
    )


def _kept(value: str) -> tuple[bool, int] | None:
    words = value.lower().split()
    if words[0] in ("no", "false", "ask"):
        return None
    return words[0] == "confirm", int(words[-1]) if words[-1].isdigit() else 0


def _rekey(value: str) -> tuple[int, int]:
    size, _, seconds = value.partition(" ")
    factor = {"k": 1024, "m": 1024**2, "g": 1024**3}.get(size[-1:].lower(), 1)
    digits = size.rstrip("kmgKMG")
    return int(digits) * factor if digits.isdigit() else 0, int(seconds) if seconds.isdigit() else 0
