"""The filter of system calls for both machines, run by a model of the kernel's interpreter."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest

from ccb.remote.sandbox.kernel.seccomp import filter_code
from ccb.remote.sandbox.kernel.syscalls import AARCH64, NUMBERS, X86_64, number

_ARCHITECTURES = {X86_64: 0xC000003E, AARCH64: 0xC00000B7}
_ALLOWED, _KILLED, _EPERM, _EACCES, _ENOSYS = 0x7FFF0000, 0x80000000, 0x50001, 0x5000D, 0x50026


@pytest.fixture(params=[X86_64, AARCH64])
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _verdict(code: bytes, machine: str, call: int, *arguments: int) -> int:
    """Run a filter on one system call. Every jump must stay in the program, and go forward."""
    steps = list(struct.iter_unpack("=HBBI", code))
    values = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", call, _ARCHITECTURES[machine], 0, *(value & 0xFFFFFFFFFFFFFFFF for value in values))
    at = accumulator = 0
    while True:
        operation, if_true, if_false, constant = steps[at]
        at += 1
        if operation == 0x06:
            return int(constant)
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", data, constant)[0]
        elif operation == 0x54:
            accumulator &= constant
        else:
            true = {0x15: accumulator == constant, 0x35: accumulator >= constant, 0x45: bool(accumulator & constant)}
            at += if_true if true[operation] else if_false


_Calls = Sequence[tuple[Any, ...]]


def _check(machine: str, verdict: int, calls: _Calls, *, abi: int = 7, workspace: bool = False) -> None:
    """Each of `calls` is a name with arguments."""
    code = filter_code(machine, abi, workspace)
    for name, *arguments in calls:
        assert _verdict(code, machine, number(name, machine), *arguments) == verdict, (name, arguments, abi)


def test_calls_that_no_command_needs_are_denied(machine: str) -> None:
    names = "ptrace unshare mount io_uring_setup keyctl shmget socket fchmod setxattr"
    _check(machine, _EPERM, [(name,) for name in names.split()])
    _check(machine, _ENOSYS, [("clone3",)])


def test_arguments_decide_where_a_call_has_two_faces(machine: str) -> None:
    unix, stream, seqpacket, datagram, close_on_exec = 1, 1, 5, 2, 0o2000000
    pairs = [("socketpair", unix, stream | close_on_exec), ("socketpair", unix, seqpacket)]
    _check(machine, _ALLOWED, [*pairs, ("clone", 17), ("prlimit64", 0), ("setpriority", 0, 0)])
    _check(machine, _EPERM, [("clone", 17 | flag) for flag in (0x00020000, 0x10000000, 0x40000000, 0x8000)])
    pairs = [("socketpair", unix, datagram), ("socketpair", 2, stream)]
    _check(machine, _EPERM, [*pairs, ("prlimit64", 1), ("setpriority", 0, 1)])


@pytest.mark.parametrize(
    ("request_of_ioctl", "allowed"),
    [
        (0x5401, True),  # TCGETS
        (0x80086601, True),  # FS_IOC_GETFLAGS
        (0x801C581F, True),  # FS_IOC_FSGETXATTR
        (0x5412, False),  # TIOCSTI
        (0x40086602, False),  # FS_IOC_SETFLAGS
        (0x40046602, False),  # the same of 32 bits
        (0x401C5820, False),  # FS_IOC_FSSETXATTR
        (0x5000940E, False),  # BTRFS_IOC_SUBVOL_CREATE
        (0xFFFFFFFF00005412, False),  # the kernel uses the low half only
    ],
)
def test_ioctl_may_ask_but_not_change(machine: str, request_of_ioctl: int, allowed: bool) -> None:
    _check(machine, _ALLOWED if allowed else _EPERM, [("ioctl", 0, request_of_ioctl)])


def test_older_landlocks_are_completed(machine: str) -> None:
    """ABI 3 brought truncation, which commands that only read are kept from by the filter alone; ABI 6 signals."""
    read, write, truncate = 0, 1, 0o1000
    for abi in (1, 2, 3, 7):
        _check(machine, _EACCES, [("truncate",)], abi=abi)
        _check(machine, _ENOSYS, [("openat2",)], abi=abi)
        _check(machine, _EPERM, [("openat", 0, 0, mode | truncate) for mode in (read, 3)], abi=abi)
        _check(machine, _ALLOWED, [("openat", 0, 0, write | truncate)], abi=abi)  # Landlock sees the writing
    _check(machine, _EACCES, [("truncate",)], abi=2, workspace=True)
    _check(machine, _ALLOWED, [("truncate",)], abi=3, workspace=True)
    own_group, set_owner, set_flags = ("kill", 0, 15), ("fcntl", 3, 8, 100), ("fcntl", 3, 4, 0)
    for abi in (1, 5):
        _check(machine, _ALLOWED, [own_group, set_flags], abi=abi)
        _check(machine, _EPERM, [("kill", 100, 15), ("kill", -1, 15), ("pidfd_send_signal",), set_owner], abi=abi)
    _check(machine, _ALLOWED, [("kill", 100, 15)], abi=6)  # Landlock limits it


def test_the_workspace_may_connect_and_change_modes_but_set_no_user_id(machine: str) -> None:
    allowed = [*(("socket", family) for family in (2, 10, 16)), ("fchmod", 3, 0o755), ("openat", 0, 0, 0o101, 0o644)]
    denied = [*(("socket", family) for family in (1, 17, 40)), ("fchmod", 3, 0o4755), ("openat", 0, 0, 0o101, 0o2755)]
    _check(machine, _ALLOWED, allowed, workspace=True)
    _check(machine, _EPERM, [*denied, ("mknodat", 0, 0, 0o104755)], workspace=True)


@pytest.mark.parametrize("abi", [0, 7])
def test_every_other_call_is_allowed(machine: str, abi: int) -> None:
    ours = {numbers[0 if machine == X86_64 else 1] for numbers in NUMBERS.values()}
    for workspace in (False, True):
        code = filter_code(machine, abi, workspace)
        assert len(code) < 4096 * 8
        for call in set(range(462)) - ours:
            assert _verdict(code, machine, call) == _ALLOWED, call


def test_other_architectures_are_killed() -> None:
    code = filter_code(X86_64, 7, workspace=False)
    assert _verdict(code, AARCH64, 0) == _KILLED
    assert _verdict(code, X86_64, 0x40000000 + 1) == _ENOSYS  # x32
