"""Which of the ssh options that apply to a host have no effect on a connection of ours: said, not passed over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Lines = Mapping[str, Sequence[str]]
"""What `ssh -G` prints: values by lower-case option name."""

_NAMES = (
    "LocalForward", "RemoteForward", "DynamicForward", "RemoteCommand", "ForwardAgent", "ForwardX11", "Tunnel",
    "GSSAPIDelegateCredentials", "HostbasedAuthentication", "PKCS11Provider", "SecurityKeyProvider", "VerifyHostKeyDNS",
    "KnownHostsCommand", "LocalCommand", "CheckHostIP", "CASignatureAlgorithms", "RequiredRSASize",
    "ControlPath", "UpdateHostKeys", "GSSAPIAuthentication", "IPQoS", "TCPKeepAlive", "FingerprintHash", "VisualHostKey",
    "KbdInteractiveDevices",
)  # fmt: skip
_HARMLESS = frozenset((
    "ControlPath", "UpdateHostKeys", "GSSAPIAuthentication", "IPQoS", "TCPKeepAlive", "FingerprintHash", "VisualHostKey",
    "KbdInteractiveDevices", "ServerAliveInterval",
))  # fmt: skip  # in many configurations, for every host; where GSSAPI was the only way in, the refused login says so
_NEVER = frozenset((
    "LocalForward", "RemoteForward", "DynamicForward", "RemoteCommand", "ForwardAgent", "ForwardX11", "ServerAliveInterval",
))  # fmt: skip  # ccb forwards nothing, runs its own command and keeps its own watch, whichever ssh connects
_ON = {"TCPKeepAlive": ("yes", "true")}  # what it is like here anyway, where that is not "off"
LONGEST_SILENCE_S = 15
"""Seconds of silence after which a connection is given up, whatever ServerAliveInterval says."""
_OFF = ("", "no", "none", "false", "internal")


def changed(lines: Lines, defaults: Lines) -> dict[str, Sequence[str]]:
    """The options that are not as ssh has them without any configuration."""
    return {name: values for name, values in lines.items() if list(values) != list(defaults.get(name, ()))}


def without_effect(lines: Lines, defaults: Lines) -> tuple[str, ...]:
    """Names of options that were set and have no effect over asyncssh, as ssh_config(5) spells them."""
    given = changed(lines, defaults)
    found = [
        name
        for name in _NAMES
        if given.get(name.lower()) and given[name.lower()][0].lower().split(" ")[0] not in _ON.get(name, _OFF)
    ]
    if _first(lines, "addkeystoagent") == "ask":
        found.append("AddKeysToAgent ask")
    if "LocalCommand" in found and _first(lines, "permitlocalcommand") not in ("yes", "true"):
        found.remove("LocalCommand")  # ssh does not run it either
    interval, count = _first(lines, "serveraliveinterval"), _first(lines, "serveralivecountmax") or "3"
    if interval.isdigit() and count.isdigit() and int(interval) * int(count) > LONGEST_SILENCE_S:
        found.append(f"ServerAliveInterval {interval} (here {LONGEST_SILENCE_S} s of silence end a connection)")
    return tuple(found)


def only_openssh(names: Sequence[str]) -> tuple[str, ...]:
    """Those of `names` that have their effect with `--transport ssh`."""
    return tuple(name for name in names if name.split(" ")[0] not in _NEVER)


def of_consequence(names: Sequence[str]) -> tuple[str, ...]:
    """Those of `names` that a person should hear of at every login; the doctor names the others too."""
    return tuple(name for name in names if name.split(" ")[0] not in _HARMLESS)


def _first(lines: Lines, name: str) -> str:
    return lines[name][0].lower() if lines.get(name) else ""
