"""The filter of system calls for both machines, run by a model of the kernel's interpreter."""

from __future__ import annotations

import struct

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


def _read_only(machine: str, call: str, *arguments: int, abi: int = 7) -> int:
    return _verdict(filter_code(machine, abi, workspace=False), machine, number(call, machine), *arguments)


def _workspace(machine: str, call: str, *arguments: int, abi: int = 7) -> int:
    return _verdict(filter_code(machine, abi, workspace=True), machine, number(call, machine), *arguments)


def test_calls_that_no_command_needs_are_denied(machine: str) -> None:
    for call in ("ptrace", "unshare", "mount", "io_uring_setup", "keyctl", "shmget", "socket", "fchmod", "setxattr"):
        assert _read_only(machine, call) == _EPERM, call
    assert _read_only(machine, "clone3") == _ENOSYS


def test_arguments_decide_where_a_call_has_two_faces(machine: str) -> None:
    unix, stream, seqpacket, datagram, close_on_exec = 1, 1, 5, 2, 0o2000000
    assert _read_only(machine, "socketpair", unix, stream | close_on_exec) == _ALLOWED
    assert _read_only(machine, "socketpair", unix, seqpacket) == _ALLOWED
    assert _read_only(machine, "socketpair", unix, datagram) == _EPERM
    assert _read_only(machine, "socketpair", 2, stream) == _EPERM
    assert _read_only(machine, "clone", 17) == _ALLOWED
    for flag in (0x00020000, 0x10000000, 0x40000000, 0x8000):
        assert _read_only(machine, "clone", 17 | flag) == _EPERM
    assert _read_only(machine, "prlimit64", 0) == _ALLOWED
    assert _read_only(machine, "prlimit64", 1) == _EPERM
    assert _read_only(machine, "setpriority", 0, 0) == _ALLOWED
    assert _read_only(machine, "setpriority", 0, 1) == _EPERM


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
    assert (_read_only(machine, "ioctl", 0, request_of_ioctl) == _ALLOWED) is allowed


def test_older_landlocks_are_completed(machine: str) -> None:
    """ABI 3 brought truncation, which commands that only read are kept from by the filter alone; ABI 6 signals."""
    read, write, truncate = 0, 1, 0o1000
    for abi in (1, 2, 3, 7):
        assert _read_only(machine, "truncate", abi=abi) == _EACCES
        assert _read_only(machine, "openat2", abi=abi) == _ENOSYS
        assert _read_only(machine, "openat", 0, 0, read | truncate, abi=abi) == _EPERM
        assert _read_only(machine, "openat", 0, 0, 3 | truncate, abi=abi) == _EPERM
        assert _read_only(machine, "openat", 0, 0, write | truncate, abi=abi) == _ALLOWED  # Landlock sees the writing
    for abi, expected in ((2, _EACCES), (3, _ALLOWED)):
        assert _workspace(machine, "truncate", abi=abi) == expected
    for abi in (1, 5):
        assert _read_only(machine, "kill", 0, 15, abi=abi) == _ALLOWED  # its own group
        assert _read_only(machine, "kill", 100, 15, abi=abi) == _EPERM
        assert _read_only(machine, "kill", -1, 15, abi=abi) == _EPERM
        assert _read_only(machine, "pidfd_send_signal", abi=abi) == _EPERM
        assert _read_only(machine, "fcntl", 3, 8, 100, abi=abi) == _EPERM  # F_SETOWN
        assert _read_only(machine, "fcntl", 3, 4, 0, abi=abi) == _ALLOWED
    assert _read_only(machine, "kill", 100, 15, abi=6) == _ALLOWED  # Landlock limits it


def test_the_workspace_may_connect_and_change_modes_but_set_no_user_id(machine: str) -> None:
    assert [_workspace(machine, "socket", family) for family in (2, 10, 16)] == [_ALLOWED] * 3
    assert [_workspace(machine, "socket", family) for family in (1, 17, 40)] == [_EPERM] * 3
    assert _workspace(machine, "fchmod", 3, 0o755) == _ALLOWED
    assert _workspace(machine, "fchmod", 3, 0o4755) == _EPERM
    assert _workspace(machine, "openat", 0, 0, 0o101, 0o2755) == _EPERM
    assert _workspace(machine, "openat", 0, 0, 0o101, 0o644) == _ALLOWED
    assert _workspace(machine, "mknodat", 0, 0, 0o104755) == _EPERM


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
