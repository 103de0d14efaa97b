"""Landlock: what a process may do with files, TCP ports, signals and abstract sockets. Runs in the zygote."""

from __future__ import annotations

import ctypes
import os
import stat
import struct

from .syscalls import PR_SET_NO_NEW_PRIVS, Kernel

NEWEST_ABI = 7  # the newest ABI that this module makes use of

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_REMOVE_AND_MAKE = (
    1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12  # directories, regular files, sockets, pipes, links
)

READ = READ_FILE | READ_DIR
CHANGE = WRITE_FILE | _REMOVE_AND_MAKE | REFER | TRUNCATE  # everything that changes a directory, except making devices

_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_TCP = 1 << 0 | 1 << 1
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1
_PATH_BENEATH = 1


def version(kernel: Kernel) -> int:
    return kernel.call("landlock_create_ruleset", 0, 0, 1)


def handled(abi: int) -> int:
    bits = 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)
    return (1 << bits) - 1


def enforce(kernel: Kernel, abi: int, rules: list[tuple[bytes, int]], writes: bool) -> None:
    """Limit this process for good to `rules`, pairs of a path and the rights below it, as far as this ABI can. Unless
    it `writes`, no TCP port can be used, and the filter of calls must keep it from emptying files, which is faster."""
    files = handled(abi) & ~(0 if writes else TRUNCATE)
    attributes = struct.pack("=Q", files)
    if abi >= 4:
        attributes += struct.pack("=Q", 0 if writes else _TCP)
    if abi >= 6:
        attributes += struct.pack("=Q", _ABSTRACT_SOCKETS | _SIGNALS)
    _restrict(kernel, attributes, [(path, rights & files) for path, rights in rules])


def bound_signals(kernel: Kernel) -> bool:
    """Bound signals to what this process starts, for good (ABI 6). Return whether `kill(-1)` now reaches just that."""
    parent = os.getppid()
    os.kill(parent, 0)
    kernel.prctl(PR_SET_NO_NEW_PRIVS, 1)
    _restrict(kernel, struct.pack("=3Q", 0, 0, _SIGNALS), [])
    try:
        os.kill(parent, 0)
    except PermissionError:
        return True
    return False


def _restrict(kernel: Kernel, attributes: bytes, rules: list[tuple[bytes, int]]) -> None:
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    ruleset = kernel.call("landlock_create_ruleset", ctypes.addressof(buffer), len(attributes), 0)
    try:
        for path, rights in rules:
            try:
                file = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                if not stat.S_ISDIR(os.fstat(file).st_mode):
                    rights &= _OF_FILES
                if rights:
                    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, file), 12)
                    kernel.call("landlock_add_rule", ruleset, _PATH_BENEATH, ctypes.addressof(rule), 0)
            finally:
                os.close(file)
        kernel.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
