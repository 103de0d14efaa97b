"""Says what a cage has probably stopped, from what a command has printed. Landlock tells nobody else."""

from __future__ import annotations

import re

from .rules import CageKind, CageRules

_MOST = 200
_FILES = ("Permission denied", "Read-only file system", "Invalid cross-device link", "Device or resource busy")
_CALLS = ("Operation not permitted", "Bad system call")
_NETWORK = (
    *("Could not resolve host", "Couldn't resolve host", "Temporary failure in name resolution", "EAI_AGAIN"),
    *("Couldn't connect to server", "Network is unreachable", "Name or service not known", "ENETUNREACH"),
)
_KILLED_BY_FILTER = (-31, 159)
_NODE = ("EACCES: permission denied", "EPERM: operation not permitted", "EROFS: read-only file system")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def stopped(output: str, code: int, rules: CageRules) -> str:
    """Return one line about what the cage has probably stopped, "" if nothing shows that it has. `output` is the end of
    what the command has printed, and `code` its exit code."""
    if code in _KILLED_BY_FILTER:
        return "stopped by the sandbox: a system call of another architecture"
    network = () if rules.network else _NETWORK
    for line in output.splitlines():
        for words, what in ((network, "network: "), ((*_FILES, *_CALLS, *_NODE), "")):
            if any(each in line for each in words):
                return f"stopped by the sandbox: {what}{_shown(line)}"
    return ""


def how_to_ask(rules: CageRules) -> str:
    """Return what the model is told about going on after a stop."""
    can = "only reads" if rules.kind is CageKind.READ_ONLY else "can change only the session's directories"
    return f"The command ran in a cage in which it {can}. It can be asked for without the cage."


def _shown(line: str) -> str:
    clean = _CONTROL.sub(" ", line).strip()
    return clean if len(clean) <= _MOST else clean[: _MOST - 1] + "…"
