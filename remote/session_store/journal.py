"""An append-only, durable log. `append` writes a record at once, so it survives the process; `commit` returns when all
records are on the disk. Clients are sent only those: a crash cannot take back an event that a client has seen."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Callable, TypeVar, Union

from ccb.tunnel.wire import journal_records
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import MAIN_AGENT, Record, record_of

from ..system.deadline import in_thread
from .node_claim import UNSHARED, NodeClaim


class NotKept(Exception):
    """The journal could not take a record and holds nothing of it, or cannot make it durable. `full`: a person has to
    make room. `result` is that of the turn it ended."""

    def __init__(self, text: str, *, full: bool = False) -> None:
        super().__init__(text)
        self.full = full
        self.result: Json = {}


log = logging.getLogger(__name__)

MAX_RECORD = 24 * 1024 * 1024  # limit of one record in bytes

T = TypeVar("T")

_MIN_LINE = 40  # bytes of the shortest line: limits how many records a damaged stretch can have held
_HEAD = b'{"seq":'
_REWIND = b'"kind":"%s"' % journal_records.RewindRecord.kind.encode()


class Journal:
    """The journal at `path`, "" for one in memory. `seq` is the last record, `durable` the last one on the disk.
    `changed` is set and replaced when more are durable, `broken` when nothing can be written any more. `rewound` are
    the stretches (first, after the last) that no longer belong to the conversation. A `fresh` one is read by `all`.
    What is written counts only while this node holds the `claim`."""

    def __init__(self, path: str, *, fresh: bool = False, claim: NodeClaim = UNSHARED) -> None:
        self.seq = 0
        self.durable = 0
        self.damaged: list[str] = []
        self.changed = asyncio.Event()
        self.broken = asyncio.Event()
        self.rewound: list[tuple[int, int]] = []
        self._file: JournalFile = DiskFile(path, claim) if path else MemoryFile()
        self.size = 0
        self._starts = array("q")  # where each record begins, by its number
        self._lengths = array("q")  # 0 for one that is damaged
        self._flush: asyncio.Task[None] | None = None
        self._failure: NotKept | None = None
        opening = self._repair()
        self._unread: Iterator[Record] | None = chain([each for each in (next(opening, None),) if each], opening)
        if not fresh or any(_REWIND in line for line in self._file.lines()):  # all of `rewound` must be known before
            deque(self.all(), 0)

    def _repair(self) -> Iterator[Record]:
        """Yield the records, as `all` does. Cut off a torn last line; no number that a damaged line may have had is
        used again."""
        lost = lost_bytes = 0
        for number, line in enumerate(self._file.lines(), 1):
            last = not line.endswith(b"\n")
            if last and b"\0" not in line and (line.startswith(_HEAD) or _HEAD.startswith(line)):
                self._file.truncate(self.size)
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
                lost += max(1, len(line) // _MIN_LINE)
                lost_bytes += len(line)
                self.size += len(line)
            else:
                yield from self._pass_over(record.seq - 1)
                self._note(record, len(line))
                lost = lost_bytes = 0
                yield record
            if last:
                break
        yield from self._pass_over(self.seq + lost)
        self.durable = self.seq

    def _pass_over(self, last: int) -> Iterator[Record]:
        for seq in range(self.seq + 1, last + 1):
            self._starts.append(self.size)
            self._lengths.append(0)
            self.seq = seq
            yield _damaged(seq)

    def _note(self, record: Record, length: int) -> None:
        self._starts.append(self.size)
        self._lengths.append(length)
        self.size += length
        self.seq = record.seq
        if (
            record.kind == journal_records.RewindRecord.kind
            and isinstance(record.content, journal_records.RewindRecord)
            and record.content.to > 0
        ):
            self.rewound.append((record.content.to, record.seq))

    @property
    def path(self) -> str:
        return self._file.path

    def append(self, content: journal_records.Content, agent_id: str = MAIN_AGENT) -> Record:
        """Write one record and return it. Raise NotKept, and leave the file unchanged, if that fails."""
        if self._failure is not None:
            raise self._failure
        record = record_of(content, self.seq + 1, time.time(), agent_id)
        line = journal_records.to_line(record)
        if len(line) > MAX_RECORD:
            raise NotKept("a record of %d bytes is over the limit of %d" % (len(line), MAX_RECORD))
        written = 0
        try:
            while written < len(line):
                written += self._file.write(line[written:])
        except OSError as error:
            try:  # a half-written record that cannot be removed allows no further writes: the next start cuts it off
                if written:
                    self._file.truncate(self.size)
            except OSError as stuck:
                self._break(self._error("a half-written record cannot be removed", stuck))
            raise self._error("the journal cannot be written", error) from error
        self._note(record, len(line))
        return record

    def _break(self, failure: NotKept) -> None:
        log.error("%s", failure)
        self._failure = failure
        self.broken.set()

    def _error(self, what: str, error: OSError) -> NotKept:
        """Return an error that says what failed and why, and how to make room if the disk is full."""
        text, advice = "%s: %s" % (what, error.strerror or error), ""
        if error.errno in _NO_ROOM:
            where = os.path.dirname(self.path)
            advice = _NO_ROOM[error.errno] % where if where else "start a new session"
        return NotKept("%s; %s" % (text, advice) if advice else text, full=bool(advice))

    def flush_soon(self) -> None:
        """Start to make all records durable. If that fails, the next append or commit raises the error."""
        if self._flush is None and self._failure is None and self.durable < self.seq:
            self._flush = asyncio.get_running_loop().create_task(self._sync())

    async def commit(self) -> None:
        """Return when every record appended so far is on the disk. Raises NotKept."""
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
            await in_thread(self._file.sync)
            self.durable = reached
        except OSError as error:
            self._break(self._error("the journal cannot be made durable", error))
        finally:
            self._flush = None
            changed, self.changed = self.changed, asyncio.Event()
            changed.set()
        if self.durable < self.seq:
            self.flush_soon()

    def read(self, after: int, limit: int | None = None) -> Iterator[Record]:
        """Yield the records after number `after` up to `limit` (default: durable); DamagedRecord for unreadable."""
        return self._records(after + 1, self.durable if limit is None else min(limit, self.seq))

    async def examined(self, look: Callable[[Iterator[Record]], T]) -> T:
        """Return what `look` makes of all records, in a thread: in a long journal that takes seconds."""
        return await in_thread(look, self._records(1, self.seq))

    def all(self) -> Iterator[Record]:
        """Return all records as `read` does, and open a fresh journal by that."""
        unread, self._unread = self._unread, None
        return unread or self._records(1, self.seq)

    def batch(self, after: int, count: int = 64, size: int = 256 * 1024) -> list[Record]:
        """Return the next durable records after `after`: at most `count`, and none after they reach `size` bytes."""
        last = after
        while last < min(after + count, self.durable) and size > 0:
            size -= self._lengths[last]
            last += 1
        return list(self._records(after + 1, last))

    def tail_start(self, size: int) -> int:
        """Return the number before the last `size` bytes, or before the first turn in them; 0 for all."""
        if self.size <= size:
            return 0
        before = min(bisect_left(self._starts, self.size - size), self.durable)
        tail = self._records(before + 1, self.durable)
        turns = (each.seq for each in tail if isinstance(each.content, journal_records.TurnStartRecord))
        return next(turns, before + 1) - 1

    def page(self, before: int, size: int) -> list[Record]:
        """Return the newest durable records before `before`: one or about `size` bytes. Call it in a thread."""
        before = first = min(before, self.durable + 1)
        while first > 1 and (first == before or self._lengths[first - 2] <= size):
            first -= 1
            size -= self._lengths[first - 1]
        return list(self._records(first, before - 1))

    def _records(self, first: int, last: int) -> Iterator[Record]:
        """Yield the records with these numbers, a DamagedRecord for one that cannot be read."""
        places = zip(self._starts[first - 1 : last], self._lengths[first - 1 : last])
        for seq, (start, length) in enumerate(places, first):
            yield journal_records.parse_line(self._file.part(start, length)) or _damaged(seq)

    async def end(self) -> None:
        """Make all records durable, and take no more. They can still be read."""
        try:
            await self.commit()
        except NotKept as error:
            log.error("closing: %s", error)
        if self._flush is not None:
            await asyncio.gather(self._flush, return_exceptions=True)
        self._failure = NotKept("the journal is closed")  # its descriptor may be reused for another file

    async def close(self) -> None:
        await self.end()
        self._file.close()


def _damaged(seq: int) -> Record:
    return record_of(journal_records.DamagedRecord(), seq)


MAX_MEMORY_BYTES = 256 << 20  # limit of a journal in memory, in bytes

_NO_ROOM = {
    errno.ENOSPC: "free space on the disk of %s",
    errno.EDQUOT: "free space of your quota on the disk of %s",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f) there, for %s",
}


class DiskFile:
    def __init__(self, path: str, claim: NodeClaim = UNSHARED) -> None:
        self.path, self._claim = path, claim
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            claim.check()  # asked behind the opening: a node that takes the session makes the journal another file
        except OSError:
            os.close(self._fd)
            raise

    def write(self, data: bytes) -> int:
        """Append as many bytes as there is room for. Return their number."""
        return os.write(self._fd, data)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Make all written bytes durable. Call it in a thread."""
        getattr(os, "fdatasync", os.fsync)(self._fd)  # not every system has the first
        self._claim.check()  # asked behind the write: what is in the file before is taken over with it

    def lines(self) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            yield from file

    def part(self, start: int, length: int) -> bytes:
        """Read from the open file: a cleaner may have removed its name."""
        return os.pread(self._fd, length, start)

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

    def lines(self) -> Iterator[bytes]:
        return iter(())

    def part(self, start: int, length: int) -> bytes:
        return bytes(self._data[start : start + length])

    def close(self) -> None:
        """Do nothing: the content can still be read."""


JournalFile = Union[DiskFile, MemoryFile]
