"""A process's output within limits; long ones in files."""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import re

from ccb.tunnel.wire.frames import Json

_log = logging.getLogger(__name__)

MAX_OUTPUT_CHARS = 30_000  # longest output of most tools, in characters, that the model gets without a cut
FILE_CAP = 64 << 20  # limit of one output on disk, in bytes
TOTAL_CAP = 512 << 20  # limit of all outputs of a session on disk, in bytes; the oldest closed files are removed first
_KEPT = 128 * 1024  # bytes held in memory at each end: enough for MAX_OUTPUT_CHARS of any text
MAX_PIECE = 256 * 1024  # bytes of the output of a task that one answer to a client holds
_TERMINAL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    # OSC, DCS, SOS, PM, APC; an unterminated one extends to the end of the line
    r"|\x1b[\]PX^_](?:[^\x07\x1b]{0,8192}(?:\x07|\x1b\\)|[^\x07\x1b\n]*)"
    r"|\x1b[ -/]*[0-~]"  # other escapes
    r"|[^\n]\x08"  # overstrike
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


def clean(data: bytes) -> str:
    """Decode UTF-8 for the model and the screen, without escape sequences and controls except \\t, \\n, \\r."""
    return _TERMINAL.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")


class Output:
    """Collects the output of a process: its start and end in memory, and all of a long one in a file."""

    def __init__(self, spill: OutputFiles, name: str, *, to_file: bool = False) -> None:
        self.total = 0
        self._spill = spill
        self._name = name
        self._head = bytearray()
        self._tail = bytearray()
        self._file: SpillFile | None = None
        self._tried = False
        if to_file:
            self.keep()

    @property
    def path(self) -> str:
        """The path of the file with the whole output, "" while there is no file."""
        return self._file.path if self._file else ""

    def add(self, data: bytes) -> None:
        room = _KEPT - len(self._head)
        if len(data) > room:
            self.keep()
        if room > 0:
            self._head += data[:room]
        if len(data) > room:
            self._tail += data[max(0, room) :]
            if len(self._tail) > 2 * _KEPT:
                del self._tail[:-_KEPT]
        if self._file is not None:
            self._file.write(data)
        self.total += len(data)

    def last(self, max_lines: int, max_bytes: int) -> str:
        """Return the newest lines, for a live view."""
        recent = bytes(self._tail[-max_bytes:])
        if len(recent) < max_bytes:
            recent = bytes(self._head[-(max_bytes - len(recent)) :]) + recent
        lines = clean(recent).split("\n")
        return "\n".join(lines[-max_lines - 1 :] if lines[-1] == "" else lines[-max_lines:])

    def first(self, max_bytes: int) -> str:
        return clean(bytes(self._head[:max_bytes]))

    def piece(self, after: int, most: int, before: int | None = None) -> Json:
        """Return what a `ReadOutput` frame asks for. What is neither in memory nor in a file is left out."""
        end = self.total if before is None else min(before, self.total)
        known = MAX_PIECE if self._file is not None and not self._file.dropped else _KEPT
        start = max(0, min(after, end), end - min(most, known))
        data = self._range(start, end)
        whole = data.rfind(b"\n") + 1
        return {"start": start, "next": start + whole, "text": clean(data[:whole]), "begun": clean(data[whole:])}

    def text(self, max_chars: int = MAX_OUTPUT_CHARS, start: int = 0) -> str:
        """Return the output after its first `start` bytes for the model: all of it, or its head and tail around a note
        that names the file."""
        most = self.total if self.total == len(self._head) + len(self._tail) else _KEPT  # all of it is in memory
        head = clean(self._range(start, start + most))
        if self.total - start <= most and len(head) <= max_chars:
            return head
        self.keep()
        return joined(head, clean(self._range(max(start, self.total - most), self.total)), max_chars, self._note())

    def keep(self) -> None:
        """Write everything to a file as well, from its beginning. Memory still holds all that is needed for it unless
        the output is long, and then there is a file already."""
        if self._tried:
            return
        self._tried = True
        self._file = self._spill.open(f"{self._name}.txt")
        if self._file is not None:
            self._file.write(bytes(self._head + self._tail))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _range(self, start: int, end: int) -> bytes:
        tail_start = self.total - len(self._tail)
        if end <= len(self._head) or tail_start == len(self._head):
            return bytes((self._head + self._tail)[start:end])
        if start >= tail_start:
            return bytes(self._tail[start - tail_start : end - tail_start])
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            file.seek(start)
            return file.read(end - start)
        return b""

    def _note(self) -> str:
        return _kept_note(f"{self.total:,} bytes", self._file, self._spill)


def limited(text: str, spill: OutputFiles, name: str, max_chars: int = MAX_OUTPUT_CHARS) -> str:
    """Return `text`, or its head and tail around a note with the path of a file that has the whole text."""
    if len(text) <= max_chars:
        return text
    kept = spill.keep(text.encode("utf-8", "replace"), f"{name}.txt")
    return joined(text, text, max_chars, _kept_note(f"{len(text):,} characters", kept, spill))


def _kept_note(size: str, file: SpillFile | None, spill: OutputFiles) -> str:
    if file is None:
        return f"the whole output has {size} and could not be kept in a file: {spill.why_none}"
    if file.dropped:
        return f"the output has {size}; the first {file.kept:,} bytes of it are in {file.path}, the rest was dropped"
    return f"the whole output ({size}) is in {file.path}; use Read or Grep on it"


def joined(head: str, tail: str, max_chars: int, note: str) -> str:
    """Return the start of `head`, the note and the end of `tail` in `max_chars` characters, cut at near line ends."""
    middle = f"\n\n[... {note} ...]\n\n"
    room = max(0, max_chars - len(middle)) // 2
    start, end = head[:room], tail[len(tail) - room :] if room else ""
    cut = start.rfind("\n")
    if cut > room - 2000 and cut > 0:
        start = start[:cut]
    cut = end.find("\n")
    if 0 <= cut < 2000:
        end = end[cut + 1 :]
    return start + middle + end


class SpillFile:
    """One output on disk: `kept` bytes in the file, `dropped` ones not written because of a limit or an error."""

    def __init__(self, owner: OutputFiles, path: str, file: int) -> None:
        self.path = path
        self.kept = 0
        self.dropped = 0
        self._owner = owner
        self._file = file

    def write(self, data: bytes) -> None:
        """Append as many bytes as fit. Never raises: bytes that the disk does not accept count as dropped."""
        room = 0 if self.is_closed or self.dropped else self._owner.reserve(self, len(data))
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

    def close(self) -> None:
        """End writing. The file stays until its room is needed for newer outputs."""
        if not self.is_closed:
            os.close(self._file)
            self._file = -1

    @property
    def is_closed(self) -> bool:
        return self._file < 0


class OutputFiles:
    """The directory for the outputs of a session, "" for a session in memory. It is created with mode 0700 when first
    needed; files get 0600. `why_none` says why the last file could not be created."""

    def __init__(self, directory: str, file_cap: int = FILE_CAP, total_cap: int = TOTAL_CAP) -> None:
        self.directory = directory
        self._file_cap = file_cap
        self._total_cap = total_cap
        self.why_none = "" if directory else "this session is in memory only"
        self._total = 0
        self._count = 0
        self._files: list[SpillFile] = []

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
                    self._files.append(spilled)
                    return spilled
        except OSError as error:
            _log.warning("no output can be kept in %s: %s", self.directory, error)
            self.why_none = error.strerror or str(error)
            return None

    def scratch(self) -> str:
        """Create a small temporary file for a tool. Return its path; "" if there can be none."""
        import tempfile

        try:
            if self.directory:
                os.makedirs(self.directory, mode=0o700, exist_ok=True)
            file, path = tempfile.mkstemp(prefix=f".{os.getpid()}-", dir=self.directory or None)
            os.close(file)
        except OSError:
            return ""
        return path

    def sweep(self) -> None:
        """Remove the temporary files of a worker that was killed. Its processes must have ended."""
        for path in glob.glob(os.path.join(glob.escape(self.directory), ".*")) if self.directory else ():
            if not os.path.basename(path).startswith(f".{os.getpid()}-"):
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def keep(self, data: bytes, name: str) -> SpillFile | None:
        spilled = self.open(name)
        if spilled is not None:
            spilled.write(data)
            spilled.close()
        return spilled

    def close(self) -> None:
        for spilled in self._files:
            spilled.close()

    def reserve(self, spilled: SpillFile, size: int) -> int:
        """Make room for `size` more bytes of a file, by removing old files. Return how many bytes may be written."""
        size = min(size, self._file_cap - spilled.kept)
        closed = (each for each in self._files[:] if each.is_closed)
        while self._total + size > self._total_cap and (oldest := next(closed, None)) is not None:
            self._files.remove(oldest)
            with contextlib.suppress(OSError):
                os.unlink(oldest.path)
            self._total -= oldest.kept
        size = max(0, min(size, self._total_cap - self._total))
        self._total += size
        return size
