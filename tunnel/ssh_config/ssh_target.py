"""The host that the person named, with its ssh options, and which options have no effect in ccb."""

from __future__ import annotations

import getopt
import shlex
from collections.abc import Mapping, Sequence

from ..errors import UsageError
from ..wire.dataclass import dataclass

_FLAGS = "1246ab:c:e:fgi:kl:m:no:p:qstvxAB:CD:E:F:GI:J:KL:MNO:P:Q:R:S:TVw:W:XYy"


@dataclass(frozen=True)
class SshTarget:
    """A host as the person named it, with ssh options. Raise UsageError for what ssh would take for an option."""

    host: str
    user: str | None = None
    port: int | None = None
    identities: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.host or self.host.startswith("-") or any(c.isspace() or not c.isprintable() for c in self.host):
            raise UsageError(f"{self.host!r} is not a host name", do="Name the host as for ssh: [user@]host.")
        if self.user is not None and (self.user.startswith("-") or any(c.isspace() for c in self.user)):
            raise UsageError(f"{self.user!r} is not a user name", do="Name the host as for ssh: [user@]host.")

    @classmethod
    def of_jump_host(cls, spec: str) -> SshTarget:
        """Return the target that a ProxyJump value names. As in ssh, the options of the command line are not for it."""
        user, _, rest = spec.strip().removeprefix("ssh://").rstrip("/").rpartition("@")
        host, port = rest, None
        if rest.startswith("["):
            host, _, tail = rest[1:].partition("]")
            port = int(tail[1:]) if tail[1:].isdigit() else None
        elif rest.count(":") == 1:
            host, _, tail = rest.partition(":")
            port = int(tail) if tail.isdigit() else None
        return cls(host, user or None, port)

    @property
    def shown(self) -> str:
        return f"{self.user}@{self.host}" if self.user else self.host

    def flags(self) -> list[str]:
        return [*self._flags_without_user(), *(["-l", self.user] if self.user is not None else [])]

    def shell_command(self, ssh: Sequence[str] = ("ssh",), *more: str, command: str = "true") -> str:
        """Return the line that runs `command` on this host without ccb. `ssh` are words for ssh, `more` are flags."""
        return f"{shlex.join([*ssh, *more, *self._flags_without_user(), self.shown])} {command}"

    def _flags_without_user(self) -> list[str]:
        words = [word for option in self.options for word in ("-o", option)]
        words += [word for identity in self.identities for word in ("-i", identity)]
        return [*words, *(["-p", str(self.port)] if self.port is not None else [])]


def flags_of(ssh: Sequence[str]) -> list[tuple[str, str]]:
    """Return the flags in the words that start ssh, with their values; none if ssh would reject them."""
    try:
        return getopt.getopt(list(ssh[1:]), _FLAGS)[0]
    except getopt.GetoptError:
        return []


Lines = Mapping[str, Sequence[str]]  # the output of `ssh -G`: values by lower-case option name

_NAMES = (
    "LocalForward", "RemoteForward", "DynamicForward", "RemoteCommand", "ForwardAgent", "ForwardX11", "Tunnel",
    "GSSAPIDelegateCredentials", "HostbasedAuthentication", "PKCS11Provider", "SecurityKeyProvider", "VerifyHostKeyDNS",
    "KnownHostsCommand", "LocalCommand", "CheckHostIP", "CASignatureAlgorithms", "RequiredRSASize",
    "UpdateHostKeys", "GSSAPIAuthentication", "IPQoS", "TCPKeepAlive", "FingerprintHash",
    "VisualHostKey", "KbdInteractiveDevices", "BindInterface", "ProxyUseFdpass", "NoHostAuthenticationForLocalhost",
)  # fmt: skip
_HARMLESS = frozenset((
    "UpdateHostKeys", "GSSAPIAuthentication", "IPQoS", "TCPKeepAlive", "FingerprintHash",
    "VisualHostKey", "KbdInteractiveDevices", "ServerAliveInterval",
))  # fmt: skip  # set for every host in many configurations; if GSSAPI was needed to log in, the error says so
_NEVER = frozenset((
    "LocalForward", "RemoteForward", "DynamicForward", "RemoteCommand", "ForwardAgent", "ForwardX11",
    "ServerAliveInterval",
))  # fmt: skip  # no transport honours these: ccb forwards nothing, runs its own command, watches the link itself
_ON = {"TCPKeepAlive": ("yes", "true")}  # values that describe what ccb does anyway, if that is not "off"
LONGEST_SILENCE_S = 15  # seconds of silence after which ccb gives a connection up, whatever ServerAliveInterval says
_OFF = ("", "no", "none", "false", "internal")


def changed(lines: Lines, defaults: Lines) -> dict[str, Sequence[str]]:
    return {name: values for name, values in lines.items() if list(values) != list(defaults.get(name, ()))}


def without_effect(lines: Lines, defaults: Lines) -> tuple[str, ...]:
    """Return the options that were set and have no effect with asyncssh, as ssh_config(5) spells them."""
    given = changed(lines, defaults)
    firsts = {name: values[0].lower().split(" ")[0] for name, values in given.items() if values}
    found = [name for name in _NAMES if firsts.get(name.lower(), "") not in ("", *_ON.get(name, _OFF))]
    if _first(lines, "addkeystoagent") == "ask":
        found.append("AddKeysToAgent ask")
    if "LocalCommand" in found and _first(lines, "permitlocalcommand") not in ("yes", "true"):
        found.remove("LocalCommand")  # ssh does not run it either
    interval, count = _first(lines, "serveraliveinterval"), _first(lines, "serveralivecountmax") or "3"
    if interval.isdigit() and count.isdigit() and int(interval) * int(count) > LONGEST_SILENCE_S:
        found.append(f"ServerAliveInterval {interval} (here {LONGEST_SILENCE_S} s of silence end a connection)")
    return tuple(found)


def only_openssh(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name.split(" ")[0] not in _NEVER)


def of_consequence(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name.split(" ")[0] not in _HARMLESS)


def _first(lines: Lines, name: str) -> str:
    return lines[name][0].lower() if lines.get(name) else ""
