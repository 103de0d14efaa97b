"""How a command tells the directory it ends in: by a small file, or by a pipe of ours where there can be none."""

from __future__ import annotations

import contextlib
import os

from ..spill import Spill

_MOST = 65536


class CwdReport:
    """To be taken once, when the command is over. `path` is what the command writes to; "" when it cannot tell."""

    def __init__(self, spill: Spill) -> None:
        self._pipe: tuple[int, int] | None = None
        self.path = spill.scratch("cwd")
        if not self.path and os.path.isdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                self._pipe = os.pipe()
                os.set_blocking(self._pipe[0], False)
                self.path = "/proc/%d/fd/%d" % (os.getpid(), self._pipe[1])

    def take(self) -> str:
        """The directory, "" when none was told. The file is gone then."""
        told = os.fsdecode(self._from_pipe(*self._pipe) if self._pipe else self._from_file())
        return told[:-1] if told.endswith("\n") else told

    def _from_pipe(self, reader: int, writer: int) -> bytes:
        try:
            return os.read(reader, _MOST)
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
                return file.read(_MOST)
        except OSError:
            return b""
        finally:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
