"""A command that runs, as its worker sees it, and what is left of one whose supervisor was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from typing import IO, Callable

from ccb.tunnel.wire.process_tree import descendants, send

from .kernel.supervisor import END

_KILL_WAIT = 1.0  # seconds; what is stuck in the kernel, or belongs to another user, is not waited for longer
_PR_GET_CHILD_SUBREAPER = 37


def adopt_orphans() -> None:
    """Make this process the parent of what loses its supervisor, where it has ctypes and Linux."""
    with contextlib.suppress(ImportError, OSError):
        from .kernel.syscalls import PR_SET_CHILD_SUBREAPER, Kernel

        Kernel().prctl(PR_SET_CHILD_SUBREAPER, 1)


def _adopts_orphans() -> bool:
    with contextlib.suppress(ImportError, OSError):
        import ctypes

        from .kernel.syscalls import Kernel

        answer = ctypes.c_int()
        Kernel().prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(answer))
        return bool(answer.value)
    return False


def _orphans() -> list[int]:
    """Return the living orphans of this process: each command leads a session, what else it starts stays in its own."""
    found = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if _parent(pid) == os.getpid() and os.getsid(pid) != os.getsid(0) and not os.waitpid(pid, os.WNOHANG)[0]:
                found.append(pid)
    return found


class RunningCommand:
    """A running command with its supervisor. `control` is readable when there is something to `hear`. `code` is None
    until its end is known, `left` are pids of what lived then; `gone`: nothing lives, unless it `is_lost`."""

    def __init__(
        self,
        pid: int,
        supervisor: int,
        output: IO[bytes],
        control: socket.socket,
        on_end: Callable[[RunningCommand], list[str]],
    ) -> None:
        self.pid = pid
        self._supervisor = supervisor
        self.stdout = output
        self.control = control
        self.code: int | None = None
        self.left: tuple[int, ...] = ()
        self.gone = False
        self.is_lost = False  # the supervisor was killed: `end_lost` ends what it had
        self._said = b""
        self._on_end = on_end

    def send(self, number: int) -> None:
        """Send SIGTERM, or SIGKILL until nothing is left, to the command and everything it has started."""
        with contextlib.suppress(OSError):  # it is gone
            self.control.send(bytes([number]))

    def hear(self) -> None:
        """Read what the supervisor has sent. The caller closes `control` once `gone` is true."""
        try:
            data = self.control.recv(256)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._said += data
        if len(self._said) >= 8:
            status, _, *left = struct.unpack_from(f"<{len(self._said) // 4}I", self._said)
            self.code, self.left = os.waitstatus_to_exitcode(status), tuple(left)
        if not data:
            has_finished = self._said[len(self._said) // 4 * 4 :] == END
            self._end(is_lost=not has_finished or _parent(self._supervisor) == os.getpid())

    def end_supervisor(self) -> None:
        self.hear()
        if not self.gone:
            with contextlib.suppress(OSError):
                os.kill(self._supervisor, signal.SIGKILL)
            self._end(is_lost=True)

    def end_lost(self) -> list[int]:
        """Kill what a killed supervisor had, in a second. Return what lives on. Call it from any thread."""
        until = time.monotonic() + _KILL_WAIT
        adopts = _adopts_orphans()
        while adopts:
            with contextlib.suppress(OSError):  # it is a child of this process if the zygote was killed, too
                os.waitpid(self._supervisor, os.WNOHANG)
            is_dead = not name_of(self._supervisor)  # then it has no children any more
            orphans = _orphans()
            if is_dead and not orphans:
                break
            if time.monotonic() > until:
                return orphans
            for pid in orphans:
                send((pid, *descendants(pid)), signal.SIGKILL)
            time.sleep(0.01)
        return []

    def wait(self) -> int:
        """Wait for the end of the command. Return the exit code, negative for a signal."""
        self.control.setblocking(True)
        while self.code is None:
            self.hear()
        return self.code

    def close(self) -> None:
        """Close the pipes. What of the command then lives on without the mark in its environment is killed."""
        self.stdout.close()
        self.control.close()
        self.gone = True

    def finish(self) -> list[str]:
        """Clean up, and set aside what may not stay: a line about each. It takes a while; call it from any thread."""
        return self._on_end(self)

    def _end(self, is_lost: bool) -> None:
        self.gone, self.is_lost = True, is_lost
        if self.code is None:
            self.code = -signal.SIGKILL


def name_of(pid: int) -> str:
    return _stat(pid)[0]


def _parent(pid: int) -> int:
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[str, int]:
    with (
        contextlib.suppress(OSError, IndexError),
        open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file,
    ):
        name, _, rest = file.read(4096).partition("(")[2].rpartition(")")
        state, parent = rest.split()[:2]
        return "" if state in "ZX" else name, int(parent)
    return "", 0
