"""System calls that Python does not offer, and the numbers of those that the cage denies. Runs in the zygote."""

from __future__ import annotations

import ctypes
import os
import struct

X86_64, AARCH64 = "x86_64", "aarch64"

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47

_TABLE = """
acct 163 89; add_key 248 217; adjtimex 159 171; bpf 321 280; capget 125 90; capset 126 91; chmod 90 -1;
chown 92 -1; chroot 161 51; clock_adjtime 305 266; clock_settime 227 112; clone 56 220; clone3 435 435;
close_range 436 436; creat 85 -1; delete_module 176 106; fanotify_init 300 262; fchmod 91 52; fchmodat 268 53;
fchmodat2 452 452; fchown 93 55; fchownat 260 54; fcntl 72 25; file_setattr 469 469; finit_module 313 273;
fremovexattr 199 16; fsconfig 431 431; fsetxattr 190 7; fsmount 432 432; fsopen 430 430; fspick 433 433;
futimesat 261 -1; init_module 175 105; io_uring_enter 426 426; io_uring_register 427 427;
io_uring_setup 425 425; ioctl 16 29; ioperm 173 -1; iopl 172 -1; ioprio_set 251 30; kcmp 312 272;
kexec_file_load 320 294; kexec_load 246 104; keyctl 250 219; kill 62 129; landlock_add_rule 445 445;
landlock_create_ruleset 444 444; landlock_restrict_self 446 446; lchown 94 -1; lremovexattr 198 15;
lsetxattr 189 6; migrate_pages 256 238; mknod 133 -1; mknodat 259 33; mount 165 40; mount_setattr 442 442;
move_mount 429 429; move_pages 279 239; mq_open 240 180; mq_unlink 241 181; msgctl 71 187; msgget 68 186;
msgrcv 70 188; msgsnd 69 189; name_to_handle_at 303 264; open 2 -1; open_by_handle_at 304 265;
open_tree 428 428; open_tree_attr 467 467; openat 257 56; openat2 437 437; perf_event_open 298 241;
pidfd_getfd 438 438; pidfd_send_signal 424 424; pivot_root 155 41; prlimit64 302 261; process_madvise 440 440;
process_mrelease 448 448; process_vm_readv 310 270; process_vm_writev 311 271; ptrace 101 117;
quotactl 179 60; quotactl_fd 443 443; reboot 169 142; removexattr 197 14; removexattrat 466 466;
request_key 249 218; rt_sigqueueinfo 129 138; rt_tgsigqueueinfo 297 240; sched_setaffinity 203 122;
sched_setattr 314 274; sched_setparam 142 118; sched_setscheduler 144 119; seccomp 317 277; semctl 66 191;
semget 64 190; semop 65 193; semtimedop 220 192; setdomainname 171 162; sethostname 170 161; setns 308 268;
setpriority 141 140; settimeofday 164 170; setxattr 188 5; setxattrat 463 463; shmat 30 196; shmctl 31 195;
shmdt 67 197; shmget 29 194; socket 41 198; socketpair 53 199; swapoff 168 225; swapon 167 224;
syslog 103 116; tgkill 234 131; tkill 200 130; truncate 76 45; umount2 166 39; unshare 272 97;
userfaultfd 323 282; utime 132 -1; utimensat 280 88; utimes 235 -1; vhangup 153 58
"""

NUMBERS = {name: (int(x86), int(arm)) for name, x86, arm in (row.split() for row in _TABLE.split(";"))}
"""The numbers for x86_64 and aarch64, -1 for a call that a machine does not have."""


def machine() -> str:
    """Return the kind of this process, "" when the cage has no numbers for it."""
    name = os.uname().machine
    return name if name in (X86_64, AARCH64) and struct.calcsize("P") == 8 else ""


def number(name: str, kind: str) -> int:
    return NUMBERS[name][0 if kind == X86_64 else 1]


class Kernel:
    """Calls the kernel by numbers. Every failure is an OSError that names the step, also without ctypes or a number."""

    def __init__(self) -> None:
        self.machine = machine()
        self._has_calls = False
        try:
            libc = ctypes.PyDLL(None, use_errno=True)
            self._syscall, self._prctl = libc.syscall, libc.prctl
        except (AttributeError, OSError):
            return
        self._syscall.restype = ctypes.c_long
        self._syscall.argtypes = [ctypes.c_long] * 7
        self._prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
        self._has_calls = True

    def call(self, name: str, *arguments: int) -> int:
        if not (self._has_calls and self.machine):
            why = "no numbers of system calls for %s" % os.uname().machine if self._has_calls else "no ctypes"
            raise OSError(38, why, name)
        return _checked(self._syscall(number(name, self.machine), *arguments, *[0] * (6 - len(arguments))), name)

    def prctl(self, what: int, *arguments: int) -> int:
        if not self._has_calls:
            raise OSError(38, "no ctypes", "prctl %d" % what)
        return _checked(self._prctl(what, *arguments, *[0] * (4 - len(arguments))), "prctl %d" % what)

    def close_from(self, first: int) -> None:
        try:
            self.call("close_range", first, 0xFFFFFFFF, 0)
        except OSError:  # before Linux 5.9
            for name in os.listdir("/dev/fd"):
                if int(name) >= first:
                    try:
                        os.close(int(name))
                    except OSError:
                        pass  # the one that listed them


def _checked(result: int, step: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), step)
    return int(result)


def keep_capabilities(kernel: Kernel, kept: int) -> None:
    """Give up every capability not in the bits `kept`, for good: every cage sets no_new_privs."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(24)
    arguments = ctypes.addressof(header), ctypes.addressof(data)
    kernel.call("capget", *arguments)
    words = struct.unpack("=6I", data.raw)
    if not any(words):
        return
    low, high = words[1] & kept & 0xFFFFFFFF, words[4] & kept >> 32
    data.raw = struct.pack("=6I", low, low, 0, high, high, 0)
    kernel.call("capset", *arguments)
    kernel.prctl(PR_CAP_AMBIENT, 4)
