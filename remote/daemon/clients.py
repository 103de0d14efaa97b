"""Attached clients: drivers and viewers, each with its own cursor into the journal, so that a slow one slows nobody."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Coroutine, Iterable
from typing import Protocol

from ccb.tunnel.wire import (
    Ack,
    Applied,
    Attach,
    Bye,
    Credit,
    Data,
    Detach,
    End,
    Event,
    Fenced,
    Fetch,
    Frame,
    FrameDecoder,
    FrameError,
    Head,
    Input,
    Json,
    Ping,
    Pong,
    Progress,
    Refused,
    Stop,
    encode_frame,
)
from ccb.tunnel.wire.records import Record

from ..journal.journal import Journal
from .model_streams import ModelLink

log = logging.getLogger(__name__)

PING_AFTER_S = 5.0
SILENT_S = 15.0  # a client that says nothing for so long is detached
STUCK_S = 5.0  # one that drives no more and still reads an answer of the model must take part within so long
_MAX_CONTROL = 10_000
_MAX_PROGRESS = 2_000  # unsent progress frames; beyond it the oldest go
_BATCH = 128 * 1024  # bytes written before the socket is waited for
_MAX_BULK = 4


class Owner(Protocol):
    """The daemon, as its clients see it."""

    journal: Journal

    def attached(self, client: Client, frame: Attach) -> None:
        """Grant or refuse an attach."""

    def received(self, client: Client, frame: Input | Head | Data | End | Credit | Stop) -> None:
        """A frame of the driver, or what one that was taken over from still reads of the model."""

    def fetch(self, client: Client, frame: Fetch) -> None:
        """A client asks for earlier events."""

    def detached(self, client: Client, *, done: bool) -> None:
        """The client leaves by itself."""

    def reads(self, client: Client) -> bool:
        """Whether it reads an answer of the model."""

    def stuck(self, client: Client) -> None:
        """It reads an answer of the model, drives no more, and does not move."""

    def left(self, client: Client) -> None:
        """The connection is over."""


class Client:
    """One connection. `run` serves it to its end."""

    def __init__(
        self, owner: Owner, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: Json | None
    ) -> None:
        self.epoch = 0
        self.role = ""  # "" until attached
        self.line: ModelLink | None = None  # for model calls; of a viewer: those that it made when it drove
        self.sent = 0  # seq of the last event sent
        self.acked = 0
        self.name = ""
        self.pages = 0  # of earlier events, asked for and not sent yet
        self.paging = asyncio.Lock()
        self.late: list[Input] = []  # found no room; at most what a laptop has unconfirmed
        self._owner = owner
        self._reader = reader
        self._writer = writer
        self._greeting = greeting
        writer.transport.set_write_buffer_limits(0)  # what `drain` has returned for has left this process
        self._decoder = FrameDecoder()
        self._control: deque[Frame] = deque()
        self._waiting_applied: deque[tuple[int, str]] = deque()  # (seq, input id)
        self._progress: OrderedDict[object, tuple[int, str, Json]] = OrderedDict()
        self._ahead: deque[Record] = deque()  # events read from the journal and not sent yet
        self._lines: deque[bytes] = deque()  # the rest of an event too long for one line
        self._bulk: deque[Frame] = deque()
        self._bulk_room = asyncio.Event()
        self._bulk_room.set()
        self._wake = asyncio.Event()
        self._closing = False
        self._last: Frame | None = None
        self._drop_reason = ""
        self._heard = time.monotonic()
        self._part = 0
        self._pings = 0
        self._asked = 0.0  # when the ping was sent whose pong shows that it takes part; 0: none is waited for

    async def run(self) -> None:
        """Serve until the client leaves, falls silent or is closed."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._read()), loop.create_task(self._write()), loop.create_task(self._watch())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception) and not isinstance(result, (ConnectionError, BrokenPipeError)):
                    log.error("client %s: %r", self.name, result)
            self._closing = True
            self._bulk_room.set()
            self._writer.transport.abort()  # a peer that takes nothing must not keep what lies here
            self._owner.left(self)

    def admit(self, role: str, epoch: int, have: int) -> None:
        """Let an attached client have its events, from after `have`."""
        self.role = role
        self.epoch = epoch
        self.sent = have
        self._wake.set()

    def control(self, frame: Frame) -> None:
        """Send `frame` before all events and data."""
        if len(self._control) >= _MAX_CONTROL:
            self.close("too many unsent control frames")
            return
        self._control.append(frame)
        self._wake.set()

    def applied_after(self, seq: int, input_id: str) -> None:
        """Confirm an input once event `seq` is durable."""
        self._waiting_applied.append((seq, input_id))
        self._wake.set()

    def progress(self, seq: int, key: str, body: Json) -> None:
        """Send a public object that may be lost, after event `seq`; an unsent one with the same key is replaced."""
        if self.role == "":
            return
        slot: object = key or object()
        self._progress.pop(slot, None)
        self._progress[slot] = (seq, key, body)
        if len(self._progress) > _MAX_PROGRESS:
            self._progress.popitem(last=False)
        self._wake.set()

    async def bulk(self, frame: Frame) -> None:
        """Send a frame that may wait, when there is room for it."""
        while len(self._bulk) >= _MAX_BULK and not self._closing:
            self._bulk_room.clear()
            await self._bulk_room.wait()
        self._bulk.append(frame)
        self._wake.set()

    def close(self, reason: str = "", last: Frame | None = None) -> None:
        """Send what is queued as control, then `last`, then end the connection."""
        if last is not None:
            self._control.append(last)
        self._closing = True
        self._drop_reason = reason
        self._bulk_room.set()
        self._wake.set()

    def finish(self, last: Frame) -> None:
        """Send all events there are, then `last`, then end the connection."""
        self._last = last
        self._bulk_room.set()
        self._wake.set()

    async def _read(self) -> None:
        while True:
            data = await self._reader.read(65536)
            if not data:
                return
            self._heard = time.monotonic()
            try:
                for frame in self._decoder.feed(data):
                    if self._take(frame):
                        return
            except FrameError as error:
                log.error("client sent what is no frame: %s", error.reason)
                self.close("", Refused("bad_attach", "the laptop sent what is no frame: %s" % error.reason))
                await asyncio.sleep(1)  # let the writer say so; the connection ends with either
                return

    def _take(self, frame: Frame) -> bool:
        """Act on a frame; True when the client has left."""
        if isinstance(frame, Ping):
            self.control(Pong(self.epoch, frame.n))
        elif isinstance(frame, Pong):
            if frame.n == self._pings:
                self._asked = 0.0
        elif isinstance(frame, Detach):
            if self.role:
                self._owner.detached(self, done=frame.done)
            return True
        elif isinstance(frame, Attach) and self.role == "":
            self._owner.attached(self, frame)
        elif isinstance(frame, Fetch):
            if self.role:
                self._owner.fetch(self, frame)
        elif isinstance(frame, Ack):
            self.acked = max(self.acked, frame.seq)
        elif isinstance(frame, (Input, Stop)):
            if self.role == "driver" and frame.epoch == self.epoch:
                self._owner.received(self, frame)
        elif isinstance(frame, (Head, Data, End, Credit)) and self.line is not None:
            self._asked = 0.0
            self._owner.received(self, frame)
        return False

    def _demand_part(self, now: float) -> None:
        """Whoever reads for a session that another client drives holds that one up: it must answer, not only live. A laptop that
        takes nothing off its link still says that it lives."""
        if self.role == "driver" or not self._owner.reads(self):
            self._asked = 0.0
        elif not self._asked:
            self._asked = now
            self._ping()
        elif now - self._asked >= STUCK_S:
            log.info("client %s does not read on and is not waited for", self.name)
            self._owner.stuck(self)

    def _ping(self) -> None:
        self._pings += 1
        self.control(Ping(self.epoch, self._pings))

    async def _watch(self) -> None:
        """Ping in silence; return when it lasts. A process that was stopped itself first reads what has come meanwhile."""
        step = PING_AFTER_S / 5
        asked = 0.0
        while True:
            before = time.monotonic()
            await asyncio.sleep(step)
            now = time.monotonic()
            if now - before > step + PING_AFTER_S:
                self._heard = max(self._heard, now - SILENT_S + PING_AFTER_S)
                asked = self._asked = 0.0
            self._demand_part(now)
            quiet = now - self._heard
            if quiet >= SILENT_S:
                log.info("client %s is silent and was detached", self.name)
                return
            if quiet >= PING_AFTER_S and now - asked >= PING_AFTER_S:
                asked = now
                self._ping()

    async def _write(self) -> None:
        if self._greeting is not None:
            self._writer.write(encode_frame_dict(self._greeting))
        while True:
            journal = self._owner.journal
            changed = journal.changed
            self._wake.clear()
            size = 0
            while size < _BATCH:
                line = self._next_line()
                if line is None:
                    break
                self._writer.write(line)
                size += len(line)
            if size:
                await self._writer.drain()
                continue
            if self._closing:
                await self._writer.drain()
                return
            await _first(self._wake.wait(), changed.wait())

    def _next_line(self) -> bytes | None:
        """The most urgent line: control, then events and progress in their order, then data. Control frames go between the
        parts of a long event; everything else comes after it."""
        control = self._next_control()
        if control is not None:
            return self._encode(control)
        if self._lines:
            return self._lines.popleft()
        if self._closing:
            return None
        frame = self._next_of_session() if self.role else None
        if frame is None and self._last is not None:
            frame, self._last, self._closing = self._last, None, True
        frame = frame or self._next_bulk()
        return None if frame is None else self._encode(frame)

    def _encode(self, frame: Frame) -> bytes:
        """The first line of `frame`; what follows it waits in `_lines`. So long are only events and pages of them, sent when that
        is empty, and snapshots, sent before all of them."""
        self._part += 1
        first, *rest = encode_frame(frame, self._part)
        self._lines.extend(rest)
        return first

    def _next_control(self) -> Frame | None:
        if self._waiting_applied and self._waiting_applied[0][0] <= self._owner.journal.durable:
            return Applied(self.epoch, self._waiting_applied.popleft()[1])
        return self._control.popleft() if self._control else None

    def _next_of_session(self) -> Frame | None:
        if self._progress:
            slot = next(iter(self._progress))
            seq, key, body = self._progress[slot]
            if seq <= self.sent:
                del self._progress[slot]
                return Progress(self.sent, self.epoch, key, body)
        if not self._ahead and self.sent < self._owner.journal.durable:
            self._ahead.extend(self._owner.journal.batch(self.sent))
        if not self._ahead:
            return None
        record = self._ahead.popleft()
        self.sent = record.seq
        return Event(record.seq, self.epoch, record.kind, record.body)

    def _next_bulk(self) -> Frame | None:
        if not self._bulk:
            return None
        frame = self._bulk.popleft()
        if len(self._bulk) < _MAX_BULK:
            self._bulk_room.set()
        return frame


def encode_frame_dict(frame: Json) -> bytes:
    """The line of a frame that exists as an object only (hello)."""
    from ccb.tunnel.wire.ndjson import dump, to_bytes

    return to_bytes(dump(frame)) + b"\n"


async def _first(*waits: Coroutine[object, object, object]) -> None:
    """Return when the first of several waits is over; the others are cancelled."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def fence(driver: Client | None, clients: Iterable[Client], epoch: int, by: str) -> None:
    """Make `driver` a viewer, and tell it and everybody else who watches that `by` drives now; "" is nobody."""
    if driver is not None:
        driver.role = "viewer"
    for client in clients:
        if client.role == "viewer":
            client.control(Fenced(epoch, by))


def farewell(client: Client, reason: str) -> None:
    """Say that the daemon is going, after everything that happened before."""
    client.finish(Bye(reason))
