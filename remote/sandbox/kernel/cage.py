"""A cage as the zygote makes it: what the worker asks for, and how a process puts itself into it.

This module runs in the zygote.
"""

from __future__ import annotations

import os

from . import landlock, namespaces, seccomp
from .syscalls import PR_SET_NO_NEW_PRIVS, Kernel, keep_capabilities

_DAC_OVERRIDE = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4  # with CHOWN, FOWNER and FSETID
_DAC_READ_SEARCH = 1 << 2


class CageRequest:
    """What the worker asks for: a command and its cage. All paths are bytes."""

    def __init__(self, fields: dict[str, object]) -> None:
        self.caged = bool(fields["caged"])
        self.abi = _number(fields["abi"])
        self.program = _text(fields["program"])
        self.argv = _texts(fields["argv"])
        self.cwd = _text(fields["cwd"])
        environment = _texts(fields["environment"])
        self.environment = dict(zip(environment[::2], environment[1::2]))
        self.workspace = bool(fields["workspace"])
        self.read = _texts(fields["read"])
        self.write = _texts(fields["write"])
        self.execute = _texts(fields["execute"])
        self.protected = _texts(fields["protected"])
        self.linked = _texts(fields["linked"])
        self.temporary = _text(fields["temporary"])
        self.network = bool(fields["network"])
        self.own = bool(fields["own"])


_LISTS = ("argv", "environment", "read", "write", "execute", "protected", "linked")
_TEXTS = ("program", "temporary")
EMPTY: dict[str, object] = {
    "caged": True,
    "abi": 0,
    "cwd": b"/",
    "workspace": False,
    "network": False,
    "own": False,
    **{name: [] for name in _LISTS},
    **dict.fromkeys(_TEXTS, b""),
}
"""The fields of a cage in which nothing may be opened."""


def filter_code(kernel: Kernel, request: CageRequest) -> bytes:
    """Return the filter of system calls for a request."""
    make = seccomp.workspace_filter if request.workspace else seccomp.read_only_filter
    return make(kernel.machine, request.abi).code()


def enter(kernel: Kernel, request: CageRequest, code: bytes) -> None:
    """Put this process into its cage for good; `code` is its filter. Raise OSError, after which the process must not
    run anything."""
    if request.workspace or not request.abi:
        namespaces.enter(kernel, request)
    kept = _DAC_READ_SEARCH | (_DAC_OVERRIDE if request.workspace else 0)
    keep_capabilities(kernel, kept if os.geteuid() == 0 else 0)
    kernel.prctl(PR_SET_NO_NEW_PRIVS, 1)
    if request.abi:
        writes = request.workspace
        landlock.enforce(kernel, request.abi, _file_rules(request), network=writes, truncation=writes)
    seccomp.install(kernel, code)


def _file_rules(request: CageRequest) -> list[tuple[bytes, int]]:
    rules = [(path, landlock.READ) for path in request.read]
    rules += [(path, landlock.READ | landlock.EXECUTE) for path in request.execute]
    may = landlock.READ | landlock.CHANGE | (landlock.EXECUTE if request.workspace else 0)
    rules += [(path, may) for path in request.write]
    if request.temporary:
        rules.append((request.temporary, may))
    if request.workspace:
        terminal = landlock.READ | landlock.CHANGE | landlock.IOCTL_DEV
        rules += [(path, terminal) for path in (b"/dev/shm", b"/dev/pts", b"/dev/ptmx")]
    return [*rules, (b"/dev/null", landlock.READ_FILE | landlock.WRITE_FILE | landlock.TRUNCATE | landlock.IOCTL_DEV)]


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _text(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


def _texts(value: object) -> list[bytes]:
    assert isinstance(value, list)
    return [_text(each) for each in value]
