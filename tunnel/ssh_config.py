"""What `ssh` would do for a host, resolved by `ssh -G` where OpenSSH is installed."""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import ConfigError, UsageError
from .plain_text import neutralise

_RESOLVE_DEADLINE_S = 10.0
_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")


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
    proxy_jump: str | None
    proxy_command: str | None
    known_hosts: tuple[Path, ...]
    strict_host_keys: str
    host_key_alias: str | None
    hash_known_hosts: bool
    connect_timeout_s: float
    compression: bool
    family: str
    bind_address: str | None
    set_env: Mapping[str, str]


async def resolve(target: SshTarget) -> HostConfig:
    """The configuration of `target`. Raises ConfigError when ssh refuses its own configuration or an option."""
    ssh = shutil.which("ssh")
    if ssh is None:
        return _config(_without_openssh(target), target)
    process = await asyncio.create_subprocess_exec(
        *config_command(ssh, target), "--", target.host,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), _RESOLVE_DEADLINE_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ConfigError(
            "`ssh -G` did not answer in 10 s", do="Look for a slow `Match exec` in your ssh_config."
        ) from None
    if process.returncode:
        raise ConfigError(
            "ssh does not accept its configuration",
            evidence=neutralise(err.decode("utf-8", "replace").strip()),
            do=f"Mend it until `ssh -G {target.host}` answers.",
        )
    lines: dict[str, list[str]] = {}
    for line in out.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(" ")
        lines.setdefault(key.lower(), []).append(value)
    return _config(lines, target)


def config_command(ssh: str, target: SshTarget) -> list[str]:
    """`ssh -G` with the options of the command line; `--` and the host belong behind it."""
    argv = [ssh, "-G"]
    for option in target.options:
        argv += ["-o", option]
    for identity in target.identities:
        argv += ["-i", identity]
    if target.port is not None:
        argv += ["-p", str(target.port)]
    if target.user is not None:
        argv += ["-l", target.user]
    return argv


def _without_openssh(target: SshTarget) -> dict[str, list[str]]:
    """The defaults of ssh(1), with `-o` options on top; ssh_config files are not read without OpenSSH."""
    lines: dict[str, list[str]] = {}
    for option in target.options:
        key, _, value = option.replace("=", " ", 1).strip().partition(" ")
        lines.setdefault(key.lower(), []).append(value.strip())
    lines.setdefault("identityfile", []).extend([*target.identities] or [f"~/.ssh/{name}" for name in _DEFAULT_KEYS])
    return lines


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    """Replace `%x` as ssh_config(5) TOKENS says; `ssh -G` prints them as they were written."""
    return re.sub(r"%(.)", lambda found: tokens.get(found[1], found[0]), text)


def _config(lines: Mapping[str, Sequence[str]], target: SshTarget) -> HostConfig:
    def one(key: str, default: str = "") -> str:
        return lines[key][0] if lines.get(key) else default

    def maybe(key: str) -> str | None:
        value = one(key)
        return value if value and value.lower() != "none" else None

    def flag(key: str) -> bool:
        return one(key).lower() in ("yes", "true")

    try:
        port = int(one("port", str(target.port or 22)))
    except ValueError:
        raise UsageError(f"{one('port')!r} is not a port", do="Give -P a number from 1 to 65535.") from None
    hostname, user = one("hostname", target.host), one("user", target.user or getpass.getuser())
    tokens = {
        "%": "%",
        "d": str(Path.home()),
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

    def paths(key: str) -> tuple[Path, ...]:
        words = (
            [word for value in lines.get(key, ()) for word in value.split()]
            if key.endswith("hostsfile")
            else lines.get(key, ())
        )
        return tuple(Path(_expand(word, tokens)).expanduser() for word in words if word.lower() != "none")

    agent = one("identityagent", "SSH_AUTH_SOCK")
    if agent in ("SSH_AUTH_SOCK", "$SSH_AUTH_SOCK"):
        agent = os.environ.get("SSH_AUTH_SOCK", "")
    elif agent.lower() == "none":
        agent = ""
    timeout = one("connecttimeout", "none")
    known_hosts = paths("userknownhostsfile") or (Path("~/.ssh/known_hosts").expanduser(),)
    proxy_command = maybe("proxycommand")
    return HostConfig(
        hostname=hostname,
        user=user,
        port=port,
        identity_files=paths("identityfile"),
        certificate_files=paths("certificatefile"),
        identities_only=flag("identitiesonly"),
        agent=str(Path(_expand(agent, tokens)).expanduser()) if agent else None,
        proxy_jump=maybe("proxyjump"),
        proxy_command=_expand(proxy_command, tokens) if proxy_command else None,
        known_hosts=known_hosts + paths("globalknownhostsfile"),
        strict_host_keys={"true": "yes", "false": "no", "off": "no"}.get(
            one("stricthostkeychecking", "ask"), one("stricthostkeychecking", "ask")
        ),
        host_key_alias=maybe("hostkeyalias"),
        hash_known_hosts=flag("hashknownhosts"),
        connect_timeout_s=float(timeout) if timeout.isdigit() and int(timeout) else 10.0,
        compression=flag("compression"),
        family=one("addressfamily", "any"),
        bind_address=maybe("bindaddress"),
        set_env=dict(pair.split("=", 1) for value in lines.get("setenv", ()) for pair in [value] if "=" in pair),
    )
