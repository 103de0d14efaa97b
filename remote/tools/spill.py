"""Outputs too long for the model go to files on the host; the model gets their head, their tail and the path."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections import OrderedDict

_log = logging.getLogger(__name__)

FILE_CAP = 64 << 20
"""Limit of one output on disk, in bytes."""
TOTAL_CAP = 512 << 20
"""Limit of all outputs of a session on disk, in bytes; the oldest finished files are removed first."""


class SpillFile:
    """One output on disk. `kept` counts the bytes in the file, `dropped` the bytes that were not written because of a
    limit or an error."""

    def __init__(self, owner: Spill, path: str, file: int) -> None:
        self.path = path
        self.kept = 0
        self.dropped = 0
        self._owner = owner
        self._file = file

    def write(self, data: bytes) -> None:
        """Append as many bytes as fit. Never raises: bytes that the disk does not accept count as dropped."""
        room = 0 if self._file < 0 or self.dropped else self._owner.reserve(self, len(data))
        view = memoryview(data)[:room]
        try:
            while view:
                count = os.write(self._file, view)
                view = view[count:]
                self.kept += count
        except OSError as error:
            _log.warning("an output could not be kept: %s", error)
            room -= len(view)
        self.dropped += len(data) - room

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of a range, or fewer if the file does not have them."""
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            file.seek(start)
            return file.read(max(0, end - start))
        return b""

    def close(self) -> None:
        """End writing. The file stays until its room is needed for newer outputs."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._owner.finished(self)


class Spill:
    """The directory for the outputs of a session, "" for a session in memory. It is created with mode 0700 when first
    needed; files get 0600. `why_none` says why the last file could not be created."""

    def __init__(self, directory: str, file_cap: int = FILE_CAP, total_cap: int = TOTAL_CAP) -> None:
        self.directory = directory
        self._file_cap = file_cap
        self._total_cap = total_cap
        self.why_none = "" if directory else "this session is in memory only"
        self._total = 0
        self._count = 0
        self._open: set[SpillFile] = set()
        self._finished: OrderedDict[str, int] = OrderedDict()

    @property
    def sessions(self) -> str:
        """The directory that holds one directory for each session; "" for none."""
        return os.path.dirname(os.path.dirname(self.directory))

    def open(self, name: str) -> SpillFile | None:
        """Create a file whose name ends in `name`. Return None if the host does not allow it."""
        if not self.directory:
            return None
        label = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[-80:]
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            while True:
                self._count += 1
                path = os.path.join(self.directory, f"{self._count:04d}-{label}")
                with contextlib.suppress(FileExistsError):
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                    spilled = SpillFile(self, path, os.open(path, flags, 0o600))
                    self._open.add(spilled)
                    return spilled
        except OSError as error:
            _log.warning("no output can be kept in %s: %s", self.directory, error)
            self.why_none = error.strerror or str(error)
            return None

    def scratch(self, name: str) -> str:
        """Return a path in the directory for a small temporary file of a tool; "" if there can be none."""
        if not self.directory:
            return ""
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
        except OSError:
            return ""
        self._count += 1
        return os.path.join(self.directory, f".{os.getpid()}-{self._count}-{name}")

    def sweep(self) -> None:
        """Remove the temporary files of a worker that was killed. Its processes must have ended."""
        if not self.directory:
            return
        ours = f".{os.getpid()}-"
        with contextlib.suppress(OSError):
            for name in os.listdir(self.directory):
                if name.startswith(".") and not name.startswith(ours):
                    with contextlib.suppress(OSError):
                        os.unlink(os.path.join(self.directory, name))

    def keep(self, data: bytes, name: str) -> SpillFile | None:
        """Write all of `data` to a new file."""
        spilled = self.open(name)
        if spilled is not None:
            spilled.write(data)
            spilled.close()
        return spilled

    def close(self) -> None:
        """Close the files that are still written to."""
        for spilled in list(self._open):
            spilled.close()

    def reserve(self, spilled: SpillFile, size: int) -> int:
        """Make room for `size` more bytes of a file, by removing old files. Return how many bytes may be written."""
        size = min(size, self._file_cap - spilled.kept)
        while self._total + size > self._total_cap and self._finished:
            path, kept = self._finished.popitem(last=False)
            with contextlib.suppress(OSError):
                os.unlink(path)
            self._total -= kept
        size = max(0, min(size, self._total_cap - self._total))
        self._total += size
        return size

    def finished(self, spilled: SpillFile) -> None:
        """Record that a file was closed. From now on it may be removed to make room."""
        self._open.discard(spilled)
        self._finished[spilled.path] = spilled.kept
