"""A command that runs, as its worker sees it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from typing import IO, Callable


class RunningCommand:
    """A running command, with the supervisor that holds what it starts (see `kernel/supervisor.py`). `control` becomes
    readable when there is something to `hear`. `code` is None until its end is known, `left` are pids of what lived
    then, and `gone` says that nothing of it lives any more."""

    def __init__(
        self, pid: int, output: IO[bytes], control: socket.socket, on_end: Callable[[RunningCommand], list[str]]
    ) -> None:
        self.pid = pid
        self.stdout = output
        self.control = control
        self.code: int | None = None
        self.left: tuple[int, ...] = ()
        self.gone = False
        self.is_lost = False  # the supervisor was killed
        self._said = b""
        self._on_end = on_end

    def send(self, number: int) -> None:
        """Send SIGTERM, or SIGKILL until nothing is left, to the command and everything it has started."""
        with contextlib.suppress(OSError):  # it is gone
            self.control.send(bytes([number]))

    def hear(self) -> None:
        """Take what the supervisor says. When all is `gone`, close `control`."""
        try:
            data = self.control.recv(256)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._said += data
        if len(self._said) >= 8:
            words = (self._said[at : at + 4] for at in range(0, len(self._said), 4))
            status, _, *left = (int.from_bytes(word, "little") for word in words)
            self.code, self.left = os.waitstatus_to_exitcode(status), tuple(left)
        if not data:
            self.gone = True
            if self.code is None:
                self.code, self.is_lost = -signal.SIGKILL, True

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
        """Remove what was made for the command, and set aside what it may not leave behind. Return a line about each
        such file. This takes a while: call it from any thread, and again when processes that were left have ended."""
        return self._on_end(self)
