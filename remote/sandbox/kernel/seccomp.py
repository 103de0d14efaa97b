"""The filter of system calls: it stops what Landlock and mounts do not. It sees numbers and arguments only, so a call
whose harm is behind a pointer is not there at all (ENOSYS), and programs use the older one. Runs in the zygote."""

from __future__ import annotations

import ctypes
import struct

from .syscalls import AARCH64, PR_SET_NO_NEW_PRIVS, X86_64, Kernel, number

_ARCHITECTURES = {X86_64: 0xC000003E, AARCH64: 0xC00000B7}
_X32 = 0x40000000

_LOAD, _AND, _EQUAL, _GREATER_EQUAL, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALL = 0xFFFFFFFF
_ALLOW, _KILL_PROCESS, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _EACCES = 1, 38, 13
_NUMBER, _ARCHITECTURE = 0, 4

_Step = tuple[int, int, int, int]  # an operation, the steps to skip if true, those to skip if false, and a constant
_LOAD_NUMBER = (_LOAD, 0, 0, _NUMBER)
_DENY = (_RETURN, 0, 0, _ERROR | _EPERM)
_ALLOWED = (_RETURN, 0, 0, _ALLOW)

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET = 1, 5
_NAMESPACES_AND_PARENT = 0x7E028000  # CLONE_NEW…, and CLONE_PARENT: a sibling would be a child of the worker
_O_ACCMODE, _O_TRUNC = 0o3, 0o1000
_SET_ID_BITS = 0o6000
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15
_OF_A_FILE = (1024, 1026, 1036, 1038)  # F_SETLEASE, F_NOTIFY, F_SET_RW_HINT, F_SET_FILE_RW_HINT
_SOCKET_OWNER = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
# Letters of ioctl requests of file systems that change something through a file that is only open for reading: btrfs,
# f2fs, ext4 and the common ones, XFS, versions of files, FAT; each with the one number that only reads, -1 for none.
_FILE_SYSTEM_REQUESTS = ((0x94, -1), (0xF5, -1), (0x66, 1), (0x58, 31), (0x76, 1), (0x72, 16))

_NEVER = """unshare setns chroot pivot_root mount umount2 open_tree move_mount fsopen fsconfig fsmount fspick
    mount_setattr open_tree_attr ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise
    process_mrelease io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key bpf perf_event_open
    userfaultfd name_to_handle_at open_by_handle_at fanotify_init shmget shmat shmctl shmdt semget semop semctl
    semtimedop msgget msgsnd msgrcv msgctl mq_open mq_unlink reboot kexec_load kexec_file_load swapon swapoff
    init_module finit_module delete_module quotactl quotactl_fd clock_settime clock_adjtime adjtimex settimeofday syslog
    acct sethostname setdomainname iopl ioperm vhangup"""
# calls that name a process in their first argument; 0 is the caller
_OF_OTHERS = """prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr migrate_pages move_pages"""

# calls that change attributes of files: Landlock does not cover them
_ATTRIBUTES = """chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat setxattr lsetxattr fsetxattr setxattrat
    removexattr lremovexattr fremovexattr removexattrat utime utimes futimesat utimensat file_setattr"""

_SIGNALS = ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
_MODES = (("open", 2), ("openat", 3), ("creat", 1), ("mknod", 1), ("mknodat", 2))
_CHANGED_MODES = (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2))


class Filter:
    def __init__(self, machine: str) -> None:
        self._machine = machine
        self._code: list[_Step] = [
            (_LOAD, 0, 0, _ARCHITECTURE),
            (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
            (_RETURN, 0, 0, _KILL_PROCESS),
            _LOAD_NUMBER,
        ]
        if machine == X86_64:
            self._code += [(_GREATER_EQUAL, 0, 1, _X32), (_RETURN, 0, 0, _ERROR | _ENOSYS)]

    def deny(self, *names: str, error: int = _EPERM) -> None:
        for name in names:
            self._block(name, [(_RETURN, 0, 0, _ERROR | error)])

    def deny_unless(self, name: str, argument: int, values: tuple[int, ...]) -> None:
        to_the_end = [(_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
        self._block(name, [*_load(argument), *to_the_end, _DENY])

    def deny_if(self, name: str, argument: int, values: tuple[int, ...], mask: int = _ALL) -> None:
        """Deny the call if the masked argument has one of these values."""
        last = len(values) - 1
        to_denial = [(_EQUAL, last - at, at == last, value) for at, value in enumerate(values)]
        self._block(name, [*_load(argument, mask), *to_denial, _DENY])

    def deny_bits(self, name: str, argument: int, bits: int) -> None:
        self._block(name, [*_load(argument), (_ANY_BIT, 0, 1, bits), _DENY])

    def deny_other_sockets(self, families: tuple[int, ...]) -> None:
        """Deny sockets of other families, and pairs that could be connected elsewhere (of datagrams)."""
        self.deny_unless("socket", 0, families)
        kinds = [*_load(1, 0xF), (_EQUAL, 2, 0, _STREAM), (_EQUAL, 1, 0, _SEQPACKET)]
        self._block("socketpair", [*_load(0), (_EQUAL, 0, len(kinds), _AF_UNIX), *kinds, _DENY])

    def deny_requests(self, requests: tuple[int, ...]) -> None:
        """Deny ioctl with these requests, and with those of file systems that change something."""
        for letter, harmless in _FILE_SYSTEM_REQUESTS:
            rest = [_DENY]
            if harmless >= 0:
                rest = [*_load(1, 0xFFFF), (_EQUAL, 1, 0, letter << 8 | harmless), _DENY]
            self._block("ioctl", [*_load(1, 0xFF00), (_EQUAL, 0, len(rest), letter << 8), *rest])
        self.deny_if("ioctl", 1, requests)

    def code(self) -> bytes:
        return b"".join(struct.pack("=HBBI", *step) for step in [*self._code, _ALLOWED])

    def _block(self, name: str, block: list[_Step]) -> None:
        """Add the steps for one call. A block that denies nothing ends by falling through to the next."""
        found = number(name, self._machine)
        if found >= 0:
            block = block if len(block) == 1 else [*block, _LOAD_NUMBER]
            self._code += [(_EQUAL, 0, len(block), found), *block]


def _load(argument: int, mask: int = _ALL) -> list[_Step]:
    load = [(_LOAD, 0, 0, 16 + 8 * argument)]  # the low half: both machines are little-endian
    return load if mask == _ALL else [*load, (_AND, 0, 0, mask)]


def install(kernel: Kernel, code: bytes) -> None:
    buffer = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer)), 16)
    kernel.prctl(PR_SET_NO_NEW_PRIVS, 1)
    kernel.call("seccomp", 1, 0, ctypes.addressof(program))


def filter_code(machine: str, abi: int, workspace: bool) -> bytes:
    """Return the filter of commands for this ABI of Landlock (0: none). Those in a `workspace` may use sockets, which
    other parts limit, and change modes, but give no file a set-id bit, which would act outside of the cage later."""
    made = Filter(machine)
    made.deny(*_NEVER.split())
    made.deny("clone3", "openat2", error=_ENOSYS)
    made.deny_bits("clone", 0, _NAMESPACES_AND_PARENT)
    for name in _OF_OTHERS.split():
        made.deny_unless(name, 0, (0,))
    for name, own in (("setpriority", (0, 1)), ("ioprio_set", (1, 2))):  # a process or a group, not all of a user
        made.deny_unless(name, 0, own)
        made.deny_unless(name, 1, (0,))
    made.deny_if("fcntl", 1, _OF_A_FILE)
    made.deny_requests((*_TERMINAL_INPUT, *_SOCKET_OWNER))
    if abi < 6:  # Landlock stops signals to others from then on, here all but those to the group that the command leads
        made.deny(*_SIGNALS)
        made.deny_unless("kill", 0, (0,))
        made.deny_if("fcntl", 1, (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX))
    if abi < 3 or not workspace:  # what empties a file that is only read: Landlock sees it from then on if asked to
        made.deny("truncate", error=_EACCES)
        for name, argument in (("open", 1), ("openat", 2)):
            made.deny_if(name, argument, (_O_TRUNC, _O_TRUNC | _O_ACCMODE), _O_TRUNC | _O_ACCMODE)
    if not workspace:
        made.deny_other_sockets(())
        made.deny(*_ATTRIBUTES.split())
        return made.code()
    made.deny_other_sockets((_AF_INET, _AF_INET6, _AF_NETLINK))
    for name, argument in (*_MODES, *_CHANGED_MODES):
        made.deny_bits(name, argument, _SET_ID_BITS)
    return made.code()
