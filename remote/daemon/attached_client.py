"""One client: outbox, liveness, pages.

Each client has its own position in the journal, so a slow client does not delay the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from typing import Any, Callable, Protocol

from ccb.tunnel.wire.frames import (
    Ack,
    Applied,
    Attach,
    CallData,
    CallEnd,
    CallHead,
    Credit,
    Detach,
    Event,
    Fetch,
    FindNames,
    Frame,
    FrameError,
    Input,
    Past,
    Ping,
    Pong,
    Progress,
    Refused,
    Stop,
)
from ccb.tunnel.wire.journal_records import Record, to_page
from ccb.tunnel.wire.ndjson import FrameDecoder, dump, encode_frame, to_bytes

from ..session_store.journal import Journal
from ..system.deadline import first_of
from .model_streams import StreamLink

log = logging.getLogger(__name__)

PING_AFTER_S = 5.0
"""Seconds of silence after which a client is sent a ping."""

SILENT_S = 15.0
"""Seconds of silence after which a client is detached."""

STUCK_S = 5.0
"""Seconds within which a former driver that still reads an answer of the model must answer a ping or read on."""

_MAX_CONTROL = 10_000  # unsent control frames; beyond it the client is detached
_MAX_PROGRESS = 2_000  # unsent progress frames; beyond it the oldest are dropped
_MAX_BULK = 4
_BATCH = 128 * 1024  # bytes written before the socket is waited for


class ClientOwner(Protocol):
    """The receiver of what happens to a client."""

    journal: Journal

    async def prepare(self, frame: Frame) -> None:
        """Find out what must be known before a frame is handled."""

    def attached(self, client: AttachedClient, frame: Attach) -> None:
        """Grant or refuse an attach."""

    def received(self, client: AttachedClient, frame: Input | CallHead | CallData | CallEnd | Credit | Stop) -> None:
        """Handle a frame of the driver, or of a former driver that still reads an answer of the model."""

    def fetch(self, client: AttachedClient, frame: Fetch) -> None:
        """Send earlier events."""

    def find_names(self, client: AttachedClient, frame: FindNames) -> None:
        """Send the names of files."""

    def detached(self, client: AttachedClient, *, done: bool) -> None:
        """The client announces that it leaves."""

    def reads(self, client: AttachedClient) -> bool:
        """Return whether the client reads an answer of the model."""

    def stuck(self, client: AttachedClient) -> None:
        """A former driver delays the driver: it still reads an answer of the model and does not react."""

    def left(self, client: AttachedClient) -> None:
        """The connection has ended."""


class ClientOutbox:
    """The frames that wait to be sent to one client. `next_line` returns the most urgent line.

    The order is: control frames, then events and progress in the order of the journal, then data of model calls.
    Control frames may also go between the lines of a long event; everything else waits for its end.
    """

    def __init__(self, journal: Journal) -> None:
        self.epoch = 0
        self.wake = asyncio.Event()
        self.closing = False
        self._journal = journal
        self._sends_events = False
        self._sent = 0  # the number of the last event that was sent
        self._control: deque[Frame] = deque()
        self._applied: deque[tuple[int, str]] = deque()  # (event to wait for, input id)
        self._progress: OrderedDict[object, tuple[int, str, Json]] = OrderedDict()
        self._ahead: deque[Record] = deque()  # events that were read from the journal and not sent yet
        self._rest: deque[bytes] = deque()  # further lines of a frame that is too long for one
        self._bulk: deque[Frame] = deque()
        self._bulk_room = asyncio.Event()
        self._last: Frame | None = None
        self._parted = 0  # frames so far, to number the parts of long ones

    def send_events(self, epoch: int, have: int) -> None:
        """Send all events after number `have` from now on."""
        self.epoch = epoch
        self._sent = have
        self._sends_events = True
        self.wake.set()

    def control(self, frame: Frame) -> None:
        """Queue a frame that is sent before events and data."""
        if len(self._control) >= _MAX_CONTROL:
            log.warning("a client does not read: it has too many unsent control frames, and is detached")
            self.close()
            return
        self._control.append(frame)
        self.wake.set()

    def applied_after(self, seq: int, input_id: str) -> None:
        """Confirm an input once event `seq` is durable."""
        self._applied.append((seq, input_id))
        self.wake.set()

    def progress(self, seq: int, key: str, body: Json) -> None:
        """Queue a public object that may be lost, to be sent after event `seq`. It replaces an unsent object with the
        same key."""
        if not self._sends_events:
            return
        slot: object = key or object()
        self._progress.pop(slot, None)
        self._progress[slot] = (seq, key, body)
        if len(self._progress) > _MAX_PROGRESS:
            self._progress.popitem(last=False)
        self.wake.set()

    async def bulk(self, frame: Frame) -> None:
        """Queue a frame of low urgency. Return once there is room for it."""
        while len(self._bulk) >= _MAX_BULK and not self.closing:
            self._bulk_room.clear()
            await self._bulk_room.wait()
        self._bulk.append(frame)
        self.wake.set()

    def close(self, last: Frame | None = None) -> None:
        """Send the queued control frames, then `last`. Send nothing after it."""
        if last is not None:
            self._control.append(last)
        self.closing = True
        self._bulk_room.set()
        self.wake.set()

    def finish(self, last: Frame) -> None:
        """Send all remaining events, then `last`. Send nothing after it."""
        self._last = last
        self._bulk_room.set()
        self.wake.set()

    def next_line(self) -> bytes | None:
        """Return the next line to send; None when nothing is to be sent now."""
        control = self._next_control()
        if control is not None:
            return self._encode(control)
        if self._rest:
            return self._rest.popleft()
        if self.closing:
            return None
        frame = self._next_of_session() if self._sends_events else None
        if frame is None and self._last is not None:
            frame, self._last, self.closing = self._last, None, True
        frame = frame or self._next_bulk()
        return None if frame is None else self._encode(frame)

    def _encode(self, frame: Frame) -> bytes:
        """Return the first line of `frame`, and keep its other lines in `_rest`. `_rest` is empty then: only events,
        pages and snapshots need several lines. Events and pages are sent only when `_rest` is empty, and a snapshot
        comes before them all."""
        self._parted += 1
        first, *rest = encode_frame(frame, self._parted)
        self._rest.extend(rest)
        return first

    def _next_control(self) -> Frame | None:
        if self._applied and self._applied[0][0] <= self._journal.durable:
            return Applied(self.epoch, self._applied.popleft()[1])
        return self._control.popleft() if self._control else None

    def _next_of_session(self) -> Frame | None:
        if self._progress:
            slot = next(iter(self._progress))
            seq, key, body = self._progress[slot]
            if seq <= self._sent:
                del self._progress[slot]
                return Progress(self._sent, self.epoch, key, body)
        if not self._ahead and self._sent < self._journal.durable:
            self._ahead.extend(self._journal.batch(self._sent))
        if not self._ahead:
            return None
        record = self._ahead.popleft()
        self._sent = record.seq
        return Event(record.seq, self.epoch, record.kind, record.body)

    def _next_bulk(self) -> Frame | None:
        if not self._bulk:
            return None
        frame = self._bulk.popleft()
        if len(self._bulk) < _MAX_BULK:
            self._bulk_room.set()
        return frame


class AttachedClient:
    """One connection. `run` serves it until it ends."""

    def __init__(
        self, owner: ClientOwner, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: Json | None
    ) -> None:
        self.role = ""  # "driver" or "viewer"; "" until attached
        self.name = ""
        self.outbox = ClientOutbox(owner.journal)
        self.model_link: StreamLink | None = (
            None  # for model calls; a viewer has one to finish the calls it made as driver
        )
        self.pages = 0  # requested pages of earlier events that were not sent yet
        self.paging = asyncio.Lock()
        # Inputs that were not applied for lack of room, at most as many as a laptop has unconfirmed, and the stop
        # behind them.
        self.late: list[Input | Stop] = []
        self._owner = owner
        self._reader = reader
        self._writer = writer
        self._greeting = greeting
        writer.transport.set_write_buffer_limits(0)  # so that `drain` returns when everything has left this process
        self._decoder = FrameDecoder()
        self._heard = time.monotonic()
        self._pings = 0
        self._unanswered_since = (
            0.0  # when the ping was sent that tests whether the client is stuck; 0: no such ping is open
        )

    @property
    def epoch(self) -> int:
        """The epoch in which the client was attached."""
        return self.outbox.epoch

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
            self.outbox.close()
            self._writer.transport.abort()  # free the unsent bytes of a peer that reads nothing
            self._owner.left(self)

    def admit(self, role: str, epoch: int, have: int) -> None:
        """Attach the client as `role`, and send it all events after number `have`."""
        self.role = role
        self.outbox.send_events(epoch, have)

    async def _read(self) -> None:
        while True:
            data = await self._reader.read(65536)
            if not data:
                return
            self._heard = time.monotonic()
            try:
                for frame in self._decoder.feed(data):
                    await self._owner.prepare(frame)
                    if self._take(frame):
                        return
            except FrameError as error:
                log.error("the client sent something that is not a frame: %s", error.reason)
                text = "the laptop sent something that is not a frame: %s" % error.reason
                self.outbox.close(Refused("bad_attach", text))
                await asyncio.sleep(1)  # time to write the refusal; the connection ends when either task ends
                return

    def _take(self, frame: Frame) -> bool:
        """Act on a frame. Return whether the client leaves with this frame."""
        if isinstance(frame, Ping):
            self.outbox.control(Pong(self.epoch, frame.n))
        elif isinstance(frame, Pong):
            if frame.n == self._pings:
                self._unanswered_since = 0.0
        elif isinstance(frame, Detach):
            if self.role:
                self._owner.detached(self, done=frame.done)
            return True
        elif isinstance(frame, Attach):
            if not self.role:
                self._owner.attached(self, frame)
        elif not isinstance(frame, Ack):  # acks are not needed: an attach repeats what the client has seen
            self._take_of_attached(frame)
        return False

    def _take_of_attached(self, frame: Frame) -> None:
        if isinstance(frame, Fetch):
            if self.role:
                self._owner.fetch(self, frame)
        elif isinstance(frame, FindNames):
            if self.role:
                self._owner.find_names(self, frame)
        elif isinstance(frame, (Input, Stop)):
            if self.role == "driver" and frame.epoch == self.epoch:
                self._owner.received(self, frame)
        elif isinstance(frame, (CallHead, CallData, CallEnd, Credit)) and self.model_link is not None:
            self._unanswered_since = 0.0
            self._owner.received(self, frame)

    def _check_stuck(self, now: float) -> None:
        """Report a former driver that still reads an answer of the model but does not react: it delays the driver. A
        mere sign of life is not enough, because a laptop sends some even when it reads nothing from its link."""
        if self.role == "driver" or not self._owner.reads(self):
            self._unanswered_since = 0.0
        elif not self._unanswered_since:
            self._unanswered_since = now
            self._ping()
        elif now - self._unanswered_since >= STUCK_S:
            log.info(
                "client %s does not read the model's answer any further; the driver asks the model again", self.name
            )
            self._owner.stuck(self)

    def _ping(self) -> None:
        self._pings += 1
        self.outbox.control(Ping(self.epoch, self._pings))

    async def _watch(self) -> None:
        """Ping a silent client. Return when it stays silent. A worker that was itself suspended first reads what
        arrived meanwhile."""
        step = PING_AFTER_S / 5
        asked = 0.0
        while True:
            before = time.monotonic()
            await asyncio.sleep(step)
            now = time.monotonic()
            if now - before > step + PING_AFTER_S:
                self._heard = max(self._heard, now - SILENT_S + PING_AFTER_S)
                asked = self._unanswered_since = 0.0
            self._check_stuck(now)
            quiet = now - self._heard
            if quiet >= SILENT_S:
                log.info("client %s was silent for %.0f s and is detached", self.name, quiet)
                return
            if quiet >= PING_AFTER_S and now - asked >= PING_AFTER_S:
                asked = now
                self._ping()

    async def _write(self) -> None:
        if self._greeting is not None:
            self._writer.write(to_bytes(dump(self._greeting)) + b"\n")
        outbox = self.outbox
        while True:
            changed = self._owner.journal.changed
            outbox.wake.clear()
            size = 0
            while size < _BATCH:
                line = outbox.next_line()
                if line is None:
                    break
                self._writer.write(line)
                size += len(line)
            if size:
                await self._writer.drain()
                continue
            if outbox.closing:
                await self._writer.drain()
                return
            await first_of(outbox.wake.wait(), changed.wait())


Json = dict[str, Any]


_MAX_PAGE = 512 * 1024  # bytes
_MAX_PAGES = 32  # pages that one client may ask for before they are sent


class Pages:
    """Sends pages of earlier events. `epoch` returns the present epoch. Close it before the journal."""

    def __init__(self, journal: Journal, epoch: Callable[[], int]) -> None:
        self._journal = journal
        self._epoch = epoch
        self._tasks: set[asyncio.Task[None]] = set()

    def fetch(self, client: AttachedClient, frame: Fetch) -> None:
        """Send a page. Detach a client that asks for too many pages at once."""
        if client.pages >= _MAX_PAGES:
            log.warning("client %s asked for too many pages of earlier events, and is detached", client.name)
            client.outbox.close()
            return
        client.pages += 1
        task = asyncio.get_running_loop().create_task(self._send(client, frame))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Drop the pages that were not sent yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, client: AttachedClient, frame: Fetch) -> None:
        try:
            async with client.paging:
                records = await self._records(frame)
                await client.outbox.bulk(Past(self._epoch(), frame.request, to_page(records)))
        finally:
            client.pages -= 1

    async def _records(self, frame: Fetch) -> list[Record]:
        try:
            return await asyncio.get_running_loop().run_in_executor(
                None, self._journal.page, frame.before, min(frame.most, _MAX_PAGE)
            )
        except OSError as error:
            log.error("earlier events cannot be read: %s", error)
            return []
