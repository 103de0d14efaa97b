"""A program that keeps one MCP server, and ends all that it started when ccb closes the socket, or is killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING or __name__ != "__main__":
    from ccb.tunnel.wire.process_tree import descendants, group_lives, send
else:  # this program has no packages, and importing that of the wire takes long
    sys.path.append(__file__.rpartition("/local/")[0] + "/tunnel/wire")
    from process_tree import descendants, group_lives, send

EOF_S, TERM_S = 0.2, 0.2  # seconds between the end of stdin and SIGTERM, and between that and SIGKILL
_KILL_S = 5.0  # then what is left cannot be killed
_LOOK_S = 0.005
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main(control: int, command: list[str]) -> int:
    if os.fork():
        return 0
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    # what its launcher leaves behind becomes a child of this process
    adopts = prctl is not None and prctl(_PR_SET_CHILD_SUBREAPER, 1) == 0
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
        process = subprocess.Popen(command, preexec_fn=in_child, start_new_session=True)  # noqa: PLW1509 - no threads
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        os.write(control, str(error).encode("utf-8", "replace"))
        return 127
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # else the server's pipes would not end with the server
        os.dup2(nothing, number)
    with contextlib.suppress(OSError):
        os.write(control, b"\n")
    server = _Server(process.pid, adopts)
    # a server that has failed ends the rest: it may hold the pipes of the server, which would look alive
    while not server.is_gone() and not server.has_failed and not reasons:
        ready, _, _ = select.select([control, waking], [], [])
        if control in ready and not _read(control):
            break
        if waking in ready:
            os.read(waking, 4096)
    server.end()
    return 0


class _Server:
    """The server and all that it started: the descendants of this process if that `adopts`, else its process group."""

    def __init__(self, pid: int, adopts: bool) -> None:
        self.has_failed = False
        self._pid = pid
        self._adopts = adopts
        self._group = pid  # 0 once another group may have its number

    def is_gone(self) -> bool:
        """Reap what has ended. Return whether nothing is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return False
                if pid == self._pid:
                    self.has_failed = status != 0
                    self._group = 0 if self._adopts else pid
        except ChildProcessError:
            return self._adopts or not group_lives(self._group)

    def end(self) -> None:
        if not self._is_gone_within(EOF_S):
            self._send(signal.SIGTERM)
            if not self._is_gone_within(TERM_S):
                self._is_gone_within(_KILL_S, lambda: self._send(signal.SIGKILL))

    def _is_gone_within(self, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> bool:
        until = time.monotonic() + seconds
        while True:
            meanwhile()
            if self.is_gone():
                return True
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_S)

    def _send(self, number: int) -> None:
        if self._group:
            with contextlib.suppress(OSError):
                os.killpg(self._group, number)
        if self._adopts:
            send(descendants(os.getpid()), number)


def _read(control: int) -> bytes:
    try:
        return os.read(control, 4096)
    except OSError:
        return b""


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
