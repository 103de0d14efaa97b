"""Earlier versions of files; points to go back to."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import zlib
from collections import OrderedDict, deque
from dataclasses import replace

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.journal_records import Projection, Record, on
from ccb.tunnel.wire.messages import UserMessage

from ..system.regular_files import digest_of, sync_directory

MAX_POINTS = 100  # number of prompts to which a person may go back; the newest ones count
MAX_CHANGES = 10_000  # number of remembered changes of files; the newest ones count

_MAX_TEXT = 2_000  # characters of a prompt
_MAX_INPUTS = 2_000


@dataclass(frozen=True)
class Point:
    seq: int
    time: float
    id: str
    text: str


class RewindPoints(Projection):
    """`points` are the prompts of the conversation, `latest` the digest of each changed file."""

    def __init__(self) -> None:
        self.points: deque[Point] = deque(maxlen=MAX_POINTS)
        self.latest: OrderedDict[str, str] = OrderedDict()
        self.unfinished: records.RewindRecord | None = None
        self._changes: deque[tuple[int, records.FileChangeRecord]] = deque(maxlen=MAX_CHANGES)
        self._inputs: OrderedDict[str, tuple[str, str]] = OrderedDict()  # input id -> id of the message, text

    def changed_since(self, seq: int) -> list[records.FileChangeRecord]:
        """Return the first change of each file after record `seq`. A file changed again and back counts as well."""
        first: dict[str, records.FileChangeRecord] = {}
        for at, change in self._changes:
            if at > seq:
                first.setdefault(change.path, change)
        return list(first.values())

    @property
    def complete_since(self) -> int:
        """The number of the record after which every change is remembered."""
        return self._changes[0][0] if len(self._changes) == MAX_CHANGES else 0

    @on(records.InputRecord)
    def _input(self, content: records.InputRecord, _: Record) -> None:
        line = content.public
        if isinstance(line, UserMessage):
            self._inputs[content.id] = (line.uuid or content.id, line.text("\n")[:_MAX_TEXT])
            while len(self._inputs) > _MAX_INPUTS:
                self._inputs.popitem(last=False)

    @on(records.PromptRecord, main_only=True)
    def _prompt(self, content: records.PromptRecord, record: Record) -> None:
        for input_id in content.input_ids:
            said = self._inputs.pop(input_id, None)
            if said is not None:  # others are notices of the worker
                self.points.append(Point(record.seq, record.time, *said))

    @on(records.FileChangeRecord)
    def _file_change(self, content: records.FileChangeRecord, record: Record) -> None:
        self._add(record.seq, content)

    @on(records.RewindRecord)
    def _rewind(self, content: records.RewindRecord, record: Record) -> None:
        for each in content.files:
            mode = each.get("mode")
            path, before, after = (str(each.get(name, "")) for name in ("path", "before", "after"))
            change = records.FileChangeRecord("", path, before, after, mode if isinstance(mode, int) else 0)
            self._add(record.seq, change)
        if content.to:
            self.points = deque((each for each in self.points if each.seq < content.to), MAX_POINTS)
        self.unfinished = content if content.files else None

    @on(records.RewoundRecord)
    def _rewound(self, _: records.RewoundRecord, __: Record) -> None:
        self.unfinished = None

    @on(records.ForkedRecord)
    def _forked(self, content: records.ForkedRecord, _: Record) -> None:
        """Of a session that has moved here, only files below its directory can go back: below the one that it has now.
        What its journal says about other paths may be a lie."""
        self.unfinished = None
        if content.root:
            changes = list(self._changes)
            self._changes.clear()
            self.latest.clear()
            for seq, each in changes:
                below = os.path.relpath(each.path, content.root) if os.path.isabs(each.path) else os.pardir
                if below.split(os.sep)[0] not in (os.pardir, os.curdir):
                    self._add(seq, replace(each, path=os.path.join(content.to, below)))

    def _add(self, seq: int, change: records.FileChangeRecord) -> None:
        self._changes.append((seq, change))
        self.latest.pop(change.path, None)
        self.latest[change.path] = change.after
        while len(self.latest) > MAX_CHANGES:
            self.latest.popitem(last=False)


_log = logging.getLogger(__name__)

TOTAL_CAP = 256 << 20  # bytes of all contents on disk, compressed; those used longest ago are removed first
MAX_CONTENT = 64 << 20  # largest content that is read back, in bytes


class FileHistory:
    """The directory of the contents (0700, files 0600), "" for a session in memory. Call the methods in a thread."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._count = 0
        self._keeping = threading.Lock()  # sub-agents change files beside each other

    def keep(self, data: bytes) -> str:
        """Keep a content durably. Return why that failed, "" if it did not."""
        if not self.directory:
            return "this session is in memory only"
        try:
            with self._keeping:
                return self._keep(os.path.join(self.directory, digest_of(data)), data)
        except OSError as error:
            _log.warning("a version of a file could not be kept: %s", error)
            return error.strerror or str(error)

    def _keep(self, path: str, data: bytes) -> str:
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        if os.path.exists(path):
            os.utime(path)
            return ""
        packed = zlib.compress(data, 1)
        if not self._make_room(len(packed), path):
            return "it is larger than the room for the file history"
        self._write(path, packed)
        return ""

    def load(self, digest: str) -> bytes | None:
        """Return the content with this digest, None if it is not kept or damaged."""
        if not self.directory or len(digest) != 64 or not digest.isalnum():
            return None
        try:
            with open(os.path.join(self.directory, digest), "rb") as file:
                data = zlib.decompressobj().decompress(file.read(), MAX_CONTENT)
        except (OSError, zlib.error):
            return None
        return data if digest_of(data) == digest else None

    def holds(self, digest: str) -> bool:
        return bool(self.directory) and os.path.exists(os.path.join(self.directory, digest))

    def _write(self, path: str, packed: bytes) -> None:
        self._count += 1
        temporary = os.path.join(self.directory, ".%d-%d-new" % (os.getpid(), self._count))
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(packed)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_directory(self.directory)
        finally:
            with contextlib.suppress(OSError):  # it has its name
                os.unlink(temporary)

    def _make_room(self, size: int, wanted: str) -> bool:
        """Remove the contents used longest ago until `size` more bytes fit. Return False if they never will."""
        if size > TOTAL_CAP:
            return False
        with os.scandir(self.directory) as found:
            kept = sorted((each.stat().st_mtime_ns, each.stat().st_size, each.path) for each in found)
        total = size + sum(length for _, length, _ in kept)
        for _, length, path in kept:
            if total <= TOTAL_CAP:
                break
            if path != wanted:
                os.unlink(path)
                total -= length
        return True
