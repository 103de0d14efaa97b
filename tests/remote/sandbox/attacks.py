"""A program of attacks that need more than a shell, run as `python -I -S -c SOURCE`. It prints `DONE name` for each
that the cage did not stop."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

HOME, OUT, TEMPORARY = os.environ["HOME"], os.environ["OUT"], os.environ["TMPDIR"]
VICTIM, WORKER, PORT, SOCKET = int(os.environ["VICTIM"]), int(os.environ["WORKER"]), int(os.environ["PORT"]), "SOCKET"
SECRET = OUT + "/secret"
X86 = os.uname().machine == "x86_64"

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(x86: int, arm: int, *arguments: object) -> int:
    number = x86 if X86 else arm
    if number < 0:
        raise OSError("no such call here")
    result = libc.syscall(*[ctypes.c_long(each) if isinstance(each, int) else each for each in (number, *arguments)])
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def emptied(file: int) -> None:
    os.close(file)
    assert os.path.getsize("README.md") == 0


def opened_after(make: Callable[[str, str], None]) -> None:
    make(SECRET, TEMPORARY + "/made")
    open(TEMPORARY + "/made").close()


def secret_by_handle() -> None:
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0), 136)
    call(303, 264, -100, SECRET.encode(), handle, ctypes.byref(ctypes.c_int()), 0)


def read_memory() -> None:
    buffer = ctypes.create_string_buffer(8)
    local = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(buffer), 8), 16)
    call(310, 270, VICTIM, local, 1, local, 1, 0)


def end_by_queue() -> None:
    info = ctypes.create_string_buffer(struct.pack("=iii", int(signal.SIGUSR1), 0, -1), 128)
    call(129, 138, VICTIM, int(signal.SIGUSR1), info)


def end_by_owner_of_socket() -> None:
    """This tells by the life of the victim: setting an owner is no harm by itself."""
    one, other = socket.socketpair()
    fcntl.fcntl(one, fcntl.F_SETOWN, VICTIM)
    fcntl.fcntl(one, fcntl.F_SETFL, fcntl.fcntl(one, fcntl.F_GETFL) | os.O_ASYNC)
    other.send(b"x")
    raise OSError("look at the victim")


def forked(x86: int, arm: int, *arguments: object) -> None:
    if call(x86, arm, *arguments) == 0:
        os._exit(0)


def change_attribute_by_newer_call() -> None:
    value = ctypes.create_string_buffer(b"x")
    arguments = ctypes.create_string_buffer(struct.pack("=QII", ctypes.addressof(value), 1, 0), 16)
    call(463, 463, -100, b"README.md", 0, b"user.ccb", arguments, 16)


def type_into_terminal() -> None:
    for name in os.listdir("/dev/pts"):
        fcntl.ioctl(os.open("/dev/pts/" + name, os.O_RDWR), 0x5412, b"x")


def leave_a_core() -> None:
    assert resource.getrlimit(resource.RLIMIT_CORE)[0] > 1


def other_architecture_by_its_gate() -> None:
    """`int 0x80` with the number of getpid on x86 with 32 bits: the caller must not live to see an answer."""
    if not X86:
        raise OSError("only on x86")
    code = bytes.fromhex("b814000000cd80c3")
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    child = os.fork()
    if child == 0:
        ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise OSError("killed")


CLONING = ctypes.create_string_buffer(struct.pack("=11Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88)
EMPTYING = ctypes.create_string_buffer(struct.pack("=QQQ", os.O_TRUNC, 0, 0), 24)
ATTACKS: dict[str, Callable[[], object]] = {
    "empty_by_reader": lambda: emptied(os.open("README.md", os.O_RDONLY | os.O_TRUNC)),
    "empty_by_odd_mode": lambda: emptied(os.open("README.md", os.O_ACCMODE | os.O_TRUNC)),
    "empty_by_openat2": lambda: emptied(call(437, 437, -100, b"README.md", EMPTYING, 24)),
    "empty_by_name": lambda: os.truncate("README.md", 0),
    "secret_by_link": lambda: opened_after(os.link),
    "secret_by_symbolic_link": lambda: opened_after(os.symlink),
    "secret_by_rename": lambda: os.rename(SECRET, TEMPORARY + "/renamed"),
    "secret_by_root_link": lambda: open("/proc/self/root" + SECRET).close(),
    "secret_by_root_of_worker": lambda: open(f"/proc/{WORKER}/root{SECRET}").close(),
    "secret_by_o_path": lambda: open(f"/proc/self/fd/{os.open(SECRET, os.O_PATH)}").close(),
    "memory_of_worker": lambda: open(f"/proc/{WORKER}/mem", "rb").close(),
    "environment_of_worker": lambda: Path(f"/proc/{WORKER}/environ").read_bytes(),
    "environment_of_victim": lambda: Path(f"/proc/{VICTIM}/environ").read_bytes(),
    "trace": lambda: call(101, 117, 16, VICTIM, 0, 0),
    "take_descriptor": lambda: call(438, 438, call(434, 434, VICTIM, 0), 0, 0),
    "limit": lambda: resource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (10, 10)),
    "score": lambda: Path(f"/proc/{VICTIM}/oom_score_adj").write_text("1000"),
    "end_by_kill": lambda: os.kill(VICTIM, signal.SIGUSR1),
    "end_by_thread": lambda: call(234, 131, VICTIM, VICTIM, int(signal.SIGUSR1)),
    "end_by_pidfd": lambda: call(424, 424, call(434, 434, VICTIM, 0), int(signal.SIGUSR1), 0, 0),
    "slow_down": lambda: os.setpriority(os.PRIO_PROCESS, VICTIM, 19),
    "slow_down_all_of_the_user": lambda: os.setpriority(os.PRIO_USER, 0, 19),
    "let_all_of_the_user_wait_for_disks": lambda: call(251, 30, 3, 0, 3 << 13),
    "lease": lambda: fcntl.fcntl(os.open("README.md", os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "watch_a_directory_by_signals": lambda: fcntl.fcntl(os.open(".", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_MODIFY),
    "change_version_of_file": lambda: fcntl.ioctl(os.open("README.md", os.O_RDONLY), 0x40087602, struct.pack("=Q", 7)),
    "change_flags": lambda: fcntl.ioctl(os.open("README.md", os.O_RDONLY), 0x40086602, struct.pack("=Q", 0x40)),
    "bind_to_processor": lambda: os.sched_setaffinity(VICTIM, {0}),
    "connect_tcp": lambda: socket.create_connection(("127.0.0.1", PORT), 1).close(),
    "send_udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", PORT)),
    "serve_tcp": lambda: socket.create_server(("127.0.0.1", 0)).close(),
    "connect_unix": lambda: socket.socket(socket.AF_UNIX).connect(os.environ[SOCKET]),
    "connect_abstract": lambda: socket.socket(socket.AF_UNIX).connect("\0" + os.environ["ABSTRACT"]),
    "datagram_from_pair": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(
        b"x", os.environ["DATAGRAM"]
    ),
    "reconnect_pair": lambda: socket.socketpair()[0].connect(os.environ[SOCKET]),
    "ask_the_kernel": lambda: socket.socket(16, socket.SOCK_RAW, 0).close(),
    "talk_to_the_hypervisor": lambda: socket.socket(40, socket.SOCK_STREAM).close(),
    "ring": lambda: call(425, 425, 1, ctypes.create_string_buffer(120)),
    "keys": lambda: call(250, 219, 0, -4, 1),
    "shared_memory": lambda: call(29, 194, 0, 4096, 0o1600),
    "message_queue": lambda: call(240, 180, b"ccb-attack", os.O_CREAT | os.O_RDWR, 0o600, 0),
    "namespace_by_clone": lambda: forked(56, 220, 0x10000000 | 17, 0, 0, 0, 0),
    "namespace_by_clone3": lambda: forked(435, 435, CLONING, 88),
    "sibling_of_ours": lambda: forked(56, 220, 0x8000 | 17, 0, 0, 0, 0),
    "namespace": lambda: call(272, 97, 0x10000000),
    "mount": lambda: call(165, 40, b"/tmp", b"/mnt", b"", 4096, b""),
    "change_mode": lambda: os.chmod("README.md", 0o777),
    "change_mode_of_home": lambda: os.chmod(HOME + "/.ssh", 0o755),
    "change_mode_by_file": lambda: os.fchmod(os.open("README.md", os.O_RDONLY), 0o777),
    "change_mode_by_newer_call": lambda: call(452, 452, -100, b"README.md", 0o777, 0),
    "change_owner": lambda: os.chown("README.md", os.getuid(), os.getgid()),
    "change_attribute": lambda: os.setxattr("README.md", "user.ccb", b"x"),
    "change_time": lambda: os.utime("README.md", (1, 1)),
    "make_subvolume": lambda: fcntl.ioctl(os.open(".", os.O_RDONLY), 0x5000940E, struct.pack("=q4088s", 0, b"volume")),
    "other_architecture": lambda: call(0x40000000 + 83, -1, b"by-x32", 0o700),
    "device": lambda: os.mknod(TEMPORARY + "/device", 0o600 | 0o020000, os.makedev(1, 1)),
    "clock": lambda: call(227, 112, 0, struct.pack("=qq", 1, 0)),
}


HELPERS = ("main", "call", "emptied", "opened_after", "forked")


def main() -> None:
    for name, attack in {**globals(), **ATTACKS}.items():
        if getattr(attack, "__module__", "") == __name__ and name not in HELPERS:
            try:
                attack()
                print("DONE", name, flush=True)  # noqa: T201 - this is its answer
            except (OSError, AssertionError, ValueError):
                pass
    print("END", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
