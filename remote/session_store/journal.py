"""An append-only, durable log. `append` writes a record at once, so it survives the process; `commit` returns when all
records are on the disk. Clients are sent only those: a crash cannot take back an event that a client has seen."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from typing import Callable, TypeVar, Union

from ccb.tunnel.wire import journal_records
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import MAIN_AGENT, Record, record_of


class NotKept(Exception):
    """The journal could not take a record. `full`: a person has to make room. `result` is that of the turn it ended."""

    def __init__(self, text: str, *, full: bool = False) -> None:
        super().__init__(text)
        self.full = full
        self.result: Json = {}


log = logging.getLogger(__name__)

MAX_RECORD = 24 * 1024 * 1024  # limit of one record in bytes

T = TypeVar("T")

_RING_BYTES = 512 * 1024  # of JSON; the parsed objects take about five times as much
_INDEX_EVERY = 128
_INDEX_BYTES = 256 * 1024
_MIN_LINE = 40  # bytes of the shortest line: limits how many records a damaged stretch can have held
_HEAD = b'{"seq":'
_REWIND = b'"kind":"%s"' % journal_records.RewindRecord.kind.encode()


class JournalError(NotKept):
    """A record could not be written or made durable. No half-written record remains."""


class Journal:
    """The journal at `path`, "" for one in memory. `seq` is the last record, `durable` the last one on the disk.
    `changed` is set and replaced when more are durable, `broken` when nothing can be written any more. `rewound` are
    the stretches (first, after the last) that no longer belong to the conversation. A `fresh` one is read by `all`."""

    def __init__(self, path: str, *, fresh: bool = False) -> None:
        self.seq = 0
        self.durable = 0
        self.damaged: list[str] = []
        self.changed = asyncio.Event()
        self.broken = asyncio.Event()
        self.rewound: list[tuple[int, int]] = []
        self._file: JournalFile = DiskFile(path) if path else MemoryFile()
        self.size = 0
        self._ring: deque[tuple[Record, int]] = deque()
        self._ring_bytes = 0
        self._unread: Iterator[Record] | None = None
        self._index: list[tuple[int, int]] = []  # (seq, offset), one for each stretch of the file
        self._bad: set[int] = set()  # offsets of damaged lines
        self._flush: asyncio.Task[None] | None = None
        self._failure: JournalError | None = None
        opening = self._repair()
        self._unread = chain([each for each in (next(opening, None),) if each], opening)
        if not fresh or any(_REWIND in line for line in self._file.lines(0)):  # all of `rewound` must be known before
            deque(self.all(), 0)

    def _repair(self) -> Iterator[Record]:
        """Yield the records. Cut off a torn last line; no number that a damaged line may have had is used again."""
        offset = lost = lost_bytes = 0
        for number, line in enumerate(self._file.lines(0), 1):
            last = not line.endswith(b"\n")
            if last and b"\0" not in line and (line.startswith(_HEAD) or _HEAD.startswith(line)):
                self._file.truncate(offset)
                self.damaged.append("the torn last record was cut off (%d bytes)" % len(line))
                break
            if last:  # so that the next record gets a line of its own
                try:
                    self._file.write(b"\n")
                except OSError as error:
                    raise self._error("the journal cannot be written", error) from error
                line += b"\n"
            record = journal_records.parse_line(line)
            highest = self.seq + 1 + max(lost, lost_bytes // _MIN_LINE)
            if record is None or not self.seq < record.seq <= highest:
                self.damaged.append("line %d is damaged and was passed over" % number)
                self._bad.add(offset)
                lost += max(1, len(line) // _MIN_LINE)
                lost_bytes += len(line)
            else:
                self._note(record, offset, len(line))
                lost = lost_bytes = 0
                yield record
            offset += len(line)
            if last:
                break
        self.size = offset
        self.seq += lost
        self.durable = self.seq

    def _note(self, record: Record, offset: int, size: int) -> None:
        last_seq, last_offset = self._index[-1] if self._index else (-_INDEX_EVERY, 0)
        if record.seq - last_seq >= _INDEX_EVERY or offset - last_offset >= _INDEX_BYTES:
            self._index.append((record.seq, offset))
        self.seq = record.seq
        if (
            record.kind == journal_records.RewindRecord.kind
            and isinstance(record.content, journal_records.RewindRecord)
            and record.content.to > 0
        ):
            self.rewound.append((record.content.to, record.seq))
        self._ring.append((record, size))
        self._ring_bytes += size
        while self._ring_bytes > _RING_BYTES and len(self._ring) > 1:
            self._ring_bytes -= self._ring.popleft()[1]

    @property
    def path(self) -> str:
        return self._file.path

    def append(self, content: journal_records.Content, agent_id: str = MAIN_AGENT) -> Record:
        """Write one record and return it. Raise JournalError, and leave the file unchanged, if that fails."""
        if self._failure is not None:
            raise self._failure
        record = record_of(content, self.seq + 1, time.time(), agent_id)
        line = journal_records.to_line(record)
        if len(line) > MAX_RECORD:
            raise JournalError("a record of %d bytes is over the limit of %d" % (len(line), MAX_RECORD))
        written = 0
        try:
            while written < len(line):
                written += self._file.write(line[written:])
        except OSError as error:
            if written:
                self._take_back()
            raise self._error("the journal cannot be written", error) from error
        self._note(record, self.size, len(line))
        self.size += len(line)
        return record

    def _take_back(self) -> None:
        """Remove the half-written record, or allow no further writes: then the next start cuts it off."""
        try:
            self._file.truncate(self.size)
        except OSError as error:
            self._failure = self._error("a half-written record cannot be removed", error)
            log.error("%s", self._failure)
            self.broken.set()

    def _error(self, what: str, error: OSError) -> JournalError:
        """Return an error that says what failed and why, and how to make room if the disk is full."""
        text, advice = "%s: %s" % (what, error.strerror or error), no_room(error, self.path)
        return JournalError("%s; %s" % (text, advice) if advice else text, full=bool(advice))

    def flush_soon(self) -> None:
        """Start to make all records durable. If that fails, the next append or commit raises the error."""
        if self._flush is None and self._failure is None and self.durable < self.seq:
            self._flush = asyncio.get_running_loop().create_task(self._sync())

    async def commit(self) -> None:
        """Return when every record appended so far is on the disk. Raises JournalError."""
        wanted = self.seq
        while self.durable < wanted:
            if self._failure is not None:
                raise self._failure
            self.flush_soon()
            if self._flush is not None:
                await asyncio.shield(self._flush)

    async def _sync(self) -> None:
        reached = self.seq
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._file.sync)
            self.durable = reached
        except OSError as error:
            self._failure = self._error("the journal cannot be made durable", error)
            log.error("%s", self._failure)
            self.broken.set()
        finally:
            self._flush = None
            changed, self.changed = self.changed, asyncio.Event()
            changed.set()
        if self.durable < self.seq:
            self.flush_soon()

    def read(self, after: int, limit: int | None = None) -> Iterator[Record]:
        """Yield the records after number `after` up to `limit` (default: durable); DamagedRecord for unreadable."""
        last = self.durable if limit is None else limit
        for record in self._to_the_end(self._stored(after), after):
            if record.seq > last:
                return
            yield record

    async def examined(self, look: Callable[[Iterator[Record]], T]) -> T:
        """Return what `look` makes of all records, in a thread: in a long journal that takes seconds."""
        last = self.seq
        ring = [record for record, _ in self._ring]
        stored = ring if ring and ring[0].seq <= 1 else (record for record, _, _ in self._from_file(0))
        upto = takewhile(lambda record: record.seq <= last, _without_gaps(stored, 1))
        return await asyncio.get_running_loop().run_in_executor(None, look, upto)

    def all(self) -> Iterator[Record]:
        """Yield all records as `read` does, and open a fresh journal by that."""
        unread, self._unread = self._unread, None
        yield from self._to_the_end(unread or self._stored(0), 0)

    def _to_the_end(self, records: Iterable[Record], after: int) -> Iterator[Record]:
        reached = after
        for record in _without_gaps(records, after + 1):
            yield record
            reached = record.seq
        for seq in range(reached + 1, self.seq + 1):
            yield record_of(journal_records.DamagedRecord(), seq)

    def batch(self, after: int, count: int = 64, size: int = 256 * 1024) -> list[Record]:
        """Return the next durable records after `after`: at most `count`, and none after they reach `size` bytes."""
        records: list[Record] = []
        for record in self.read(after):
            records.append(record)
            size -= _rough_size(record.body)
            if len(records) >= count or size <= 0:
                break
        return records

    def tail_start(self, size: int) -> int:
        """Return the number before the last `size` bytes, or before the first turn in them; 0 for all."""
        if self.size <= size:
            return 0
        wanted = self.size - size
        place = bisect_right([entry[1] for entry in self._index], wanted) - 1
        start = self.durable
        found = False
        for record, _, _ in self._from_file(self._index[place][1] if place >= 0 else 0, first=wanted):
            if record.seq > self.durable:
                break
            if not found:
                found, start = True, record.seq - 1
            if isinstance(record.content, journal_records.TurnStartRecord):
                return record.seq - 1
        return start

    def page(self, before: int, size: int) -> list[Record]:
        """Return the newest durable records before `before`: one or about `size` bytes. Call it in a thread."""
        before = min(before, self.durable + 1)
        index = list(self._index)
        place = bisect_right(index, (before - 1, 1 << 62)) - 1
        kept: deque[tuple[Record, int]] = deque()
        total = 0
        while place >= 0 and total < size:
            end = index[place + 1][1] if place + 1 < len(index) else None
            block = [
                (record, length)
                for record, _, length in self._from_file(index[place][1], end=end)
                if record.seq < before
            ]
            kept.extendleft(reversed(block))
            total += sum(length for _, length in block)
            place -= 1
        while len(kept) > 1 and total > size:
            total -= kept.popleft()[1]
        first = kept[0][0].seq if kept else 1  # no earlier record can be read
        last = kept[-1][0].time if kept else 0.0
        end_mark = record_of(journal_records.DamagedRecord(), before, last)
        return list(_without_gaps([*(record for record, _ in kept), end_mark], first))[:-1]

    def _from_file(self, start: int, *, first: int = 0, end: int | None = None) -> Iterator[tuple[Record, int, int]]:
        """Yield the records between bytes `start` and `end`, but before `first`, with offset and length."""
        offset = start
        for line in self._file.lines(start):
            if end is not None and offset >= end:
                return
            record = journal_records.parse_line(line) if offset >= first and offset not in self._bad else None
            if record is not None:
                yield record, offset, len(line)
            offset += len(line)

    def _stored(self, after: int) -> Iterator[Record]:
        if self._ring and self._ring[0][0].seq <= after + 1:
            yield from [record for record, _ in self._ring if record.seq > after]
            return
        place = bisect_right(self._index, (after + 1, 1 << 62)) - 1
        for record, _, _ in self._from_file(self._index[place][1] if place >= 0 else 0):
            if record.seq > after:
                yield record

    async def close(self) -> None:
        try:
            await self.commit()
        except JournalError as error:
            log.error("closing: %s", error)
        if self._flush is not None:
            await asyncio.gather(self._flush, return_exceptions=True)
        self._failure = JournalError("the journal is closed")  # its descriptor may be reused for another file
        self._file.close()


def _without_gaps(records: Iterable[Record], first: int) -> Iterator[Record]:
    """Yield the records from number `first` on, with a DamagedRecord in place of each that is missing."""
    for record in records:
        while first < record.seq:
            yield record_of(journal_records.DamagedRecord(), first, record.time)
            first += 1
        yield record
        first = record.seq + 1


def _rough_size(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_rough_size, value.values()))
    return sum(map(_rough_size, value)) if isinstance(value, list) else 8


MAX_MEMORY_BYTES = 256 << 20  # limit of a journal in memory, in bytes


_NO_ROOM = {
    errno.ENOSPC: "free space on the disk of %s",
    errno.EDQUOT: "free space of your quota on the disk of %s",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f) there, for %s",
}


class DiskFile:
    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)

    def write(self, data: bytes) -> int:
        """Append as many bytes as there is room for. Return their number."""
        return os.write(self._fd, data)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Make all written bytes durable. Call it in a thread."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._fd)
        else:
            os.fsync(self._fd)

    def lines(self, start: int) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            file.seek(start)
            yield from file

    def close(self) -> None:
        os.close(self._fd)


class MemoryFile:
    path = ""

    def __init__(self, limit: int = MAX_MEMORY_BYTES) -> None:
        self._limit = limit
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        if len(self._data) + len(data) > self._limit:
            raise OSError(errno.ENOSPC, "it is kept in memory only, and has reached its %d MiB" % (self._limit >> 20))
        self._data += data
        return len(data)

    def truncate(self, size: int) -> None:
        del self._data[size:]

    def sync(self) -> None:
        """Do nothing."""

    def lines(self, start: int) -> Iterator[bytes]:
        while start < len(self._data):
            end = self._data.find(b"\n", start) + 1 or len(self._data)
            yield bytes(self._data[start:end])
            start = end

    def close(self) -> None:
        """Do nothing: the content can still be read."""


def no_room(error: OSError, path: str) -> str:
    """Return what makes room when the journal at `path` could not be written; "" for other errors."""
    if error.errno not in _NO_ROOM:
        return ""
    return _NO_ROOM[error.errno] % os.path.dirname(path) if path else "start a new session"


JournalFile = Union[DiskFile, MemoryFile]
