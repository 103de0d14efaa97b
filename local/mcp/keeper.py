"""Keeps one MCP server: a program of its own, started with the server's command line, that ends the server and all that
it has started when ccb ends, in whatever way.

It holds one end of a socket. A line feed from here says that the server runs, a text says why not. When ccb has closed
its end, or the kernel has because ccb was killed, the server ends: its stdin has ended by then, SIGTERM and SIGKILL
follow. It is no child of ccb, so that nothing there can end it too early."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

EOF_S, TERM_S = 0.2, 0.2
"""Seconds between the end of stdin and SIGTERM, and between that and SIGKILL."""

_KILL_S = 5.0  # then what is left cannot be killed
_LOOK_S = 0.005
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main(control: int, command: list[str]) -> int:
    """Start the server, and return when it has ended or was ended."""
    if os.fork():
        return 0
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    if prctl is not None:  # what its launcher leaves behind becomes a child of this process
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
    waking, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    reasons: list[int] = []  # to end
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, lambda number, _: reasons.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    parent = os.getpid()

    def in_child() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

    try:
        server = subprocess.Popen(command, preexec_fn=in_child, start_new_session=True)  # noqa: PLW1509 - no threads
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        os.write(control, str(error).encode("utf-8", "replace"))
        return 127
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # else the server's pipes would not end with the server
        os.dup2(nothing, number)
    with contextlib.suppress(OSError):
        os.write(control, b"\n")
    while not _gone(server.pid, reasons) and not reasons:
        ready, _, _ = select.select([control, waking], [], [])
        if control in ready and not _read(control):
            break
        if waking in ready:
            os.read(waking, 4096)
    _end(server.pid)
    return 0


def _end(server: int) -> None:
    if _wait(server, EOF_S):
        return
    _signal_all(server, signal.SIGTERM)
    if _wait(server, TERM_S):
        return
    _wait(server, _KILL_S, lambda: _signal_all(server, signal.SIGKILL))


def _wait(server: int, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> bool:
    """Return whether everything is gone within this time."""
    until = time.monotonic() + seconds
    while True:
        meanwhile()
        if _gone(server, []):
            return True
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_S)


def _gone(server: int, reasons: list[int]) -> bool:
    """Reap what has ended. Return whether nothing is left. A server that has failed is a reason to end the rest: it may
    hold the pipes of the server, which would look alive."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            if pid == server and status:
                reasons.append(status)
    except ChildProcessError:
        return sys.platform == "linux" or not _has_group(server)
    return False


def _has_group(server: int) -> bool:
    try:
        os.killpg(server, 0)
    except OSError:
        return False
    return True


def _signal_all(server: int, number: int) -> None:
    """Signal everything that the server has started: on Linux all that comes from this process, else its group."""
    with contextlib.suppress(OSError):
        os.killpg(server, number)
    for pid in _descendants() if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found, new = [], [os.getpid()]
    while new:
        new = [child for each in new for child in children.get(each, ())]
        found += new
    return found


def _processes() -> Iterator[tuple[int, int]]:
    """Yield each process and its parent."""
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - pathlib takes long to import
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
            yield int(name), int(file.read().rpartition(b")")[2].split()[1])


def _read(control: int) -> bytes:
    try:
        return os.read(control, 4096)
    except OSError:
        return b""


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
