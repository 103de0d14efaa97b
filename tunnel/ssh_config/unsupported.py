"""Which ssh options have no effect on a connection that ccb makes by itself. The person is told, not left to guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Lines = Mapping[str, Sequence[str]]
"""The output of `ssh -G`: values by lower-case option name."""

_NAMES = (
    "LocalForward", "RemoteForward", "DynamicForward", "RemoteCommand", "ForwardAgent", "ForwardX11", "Tunnel",
    "GSSAPIDelegateCredentials", "HostbasedAuthentication", "PKCS11Provider", "SecurityKeyProvider", "VerifyHostKeyDNS",
    "KnownHostsCommand", "LocalCommand", "CheckHostIP", "CASignatureAlgorithms", "RequiredRSASize",
    "UpdateHostKeys", "GSSAPIAuthentication", "IPQoS", "TCPKeepAlive", "FingerprintHash",
    "VisualHostKey", "KbdInteractiveDevices",
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
LONGEST_SILENCE_S = 15
"""Seconds of silence after which ccb gives a connection up, whatever ServerAliveInterval says."""
_OFF = ("", "no", "none", "false", "internal")


def changed(lines: Lines, defaults: Lines) -> dict[str, Sequence[str]]:
    """Return the options whose values are not those of ssh without any configuration."""
    return {name: values for name, values in lines.items() if list(values) != list(defaults.get(name, ()))}


def without_effect(lines: Lines, defaults: Lines) -> tuple[str, ...]:
    """Return the names of options that were set and have no effect with asyncssh, as ssh_config(5) spells them."""
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
    """Return the options in `names` that `--transport ssh` honours."""
    return tuple(name for name in names if name.split(" ")[0] not in _NEVER)


def of_consequence(names: Sequence[str]) -> tuple[str, ...]:
    """Return the options in `names` to name at every login. The doctor names all of them."""
    return tuple(name for name in names if name.split(" ")[0] not in _HARMLESS)


def _first(lines: Lines, name: str) -> str:
    return lines[name][0].lower() if lines.get(name) else ""
