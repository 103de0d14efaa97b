"""Lets a command report the directory it ends in: in a small file, or through a pipe where no file can be created."""

from __future__ import annotations

import contextlib
import os

from ..spill import Spill

_MAX_BYTES = 65536


class CwdReport:
    """One report, which `take` returns once, after the command is over. The command writes to `path`; "" means that it
    cannot report. `caged`: the command runs in a cage, which can open a file for it but not a pipe of the worker."""

    def __init__(self, spill: Spill, *, caged: bool = False) -> None:
        self._pipe: tuple[int, int] | None = None
        self.path = spill.scratch("cwd")
        if self.path and caged:
            self.path = _created(self.path)
        elif not self.path and not caged and os.path.isdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                self._pipe = os.pipe()
                os.set_blocking(self._pipe[0], False)
                self.path = "/proc/%d/fd/%d" % (os.getpid(), self._pipe[1])

    def take(self) -> str:
        """Return the directory, "" if none was reported. Remove the file."""
        reported = os.fsdecode(self._from_pipe(*self._pipe) if self._pipe else self._from_file())
        return reported[:-1] if reported.endswith("\n") else reported

    def _from_pipe(self, reader: int, writer: int) -> bytes:
        try:
            return os.read(reader, _MAX_BYTES)
        except BlockingIOError:
            return b""
        finally:
            os.close(reader)
            os.close(writer)

    def _from_file(self) -> bytes:
        if not self.path:
            return b""
        try:
            with open(self.path, "rb") as file:
                return file.read(_MAX_BYTES)
        except OSError:
            return b""
        finally:
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def _created(path: str) -> str:
    """Create an empty file, and return its path; "" if it cannot be created."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError:
        return ""
    return path
