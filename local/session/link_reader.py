"""Route the frames of the host, and queue the events for their reader."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import field

from ccb.tunnel.errors import CcbError, ConnectionLost, ProtocolError
from ccb.tunnel.link.link import Link, SessionFrame
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.channels import Channels
from ccb.tunnel.wire.control_protocol import Failure
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import (
    Applied,
    Attached,
    Bye,
    ChannelCredit,
    ChannelData,
    ChannelEnd,
    Event,
    Fenced,
    Listening,
    NamesFound,
    OutputRead,
    Past,
    Progress,
    Snapshot,
)
from ccb.tunnel.wire.journal_records import InputRecord, MessageRecord
from ccb.tunnel.wire.messages import ControlResponse, parse_message
from ccb.tunnel.wire.ndjson import MAX_DEPTH, is_too_deep

from . import session_client as client
from .answering import RequestResponder
from .dialing import AttachOptions, RetrySchedule
from .newest import Newest
from .outbox import Outbox, PendingRequests

MAX_QUEUED = 256  # items that wait for the reader. While it is full, the link is not read.
MAX_QUEUED_BYTES = 16 * 1024 * 1024  # bytes of memory; a single larger item is accepted


class EventFeed:
    """The state of a session and the bounded queue to its one reader. `failure` is why the session was given up."""

    def __init__(self, role: client.DriverRole) -> None:
        self.standing = client.LinkStanding(client.LinkState.CONNECTING, role)
        self.failure: CcbError | None = None
        self.told: list[Callable[[], object]] = []  # called when the state may have changed
        self.watchers: list[Callable[[client.Item], object]] = []
        self._queue: deque[tuple[client.Item, int]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._dropping = False
        self.ended = asyncio.Event()

    def shift(self, change: client.LinkChangeKind) -> bool:
        """Change the state without telling the reader. Return whether the connection is where the change leads to."""
        self.standing = client.after(self.standing, change)
        for tell in self.told:
            tell()
        return self.standing.link is client.target(change)

    async def change(
        self, change: client.LinkChangeKind, reason: str = "", attempt: int = 0, retry_at: float | None = None
    ) -> None:
        """Change the state. Tell the reader only if the change was possible in the present state."""
        if self.shift(change):
            await self.put(client.LinkChange(self.standing.link, reason, attempt, retry_at))

    async def put(self, item: client.Item, memory: int = 0) -> None:
        """Add an item that takes `memory` bytes; waits while the queue is full. One task at a time may put items."""
        while self._queue and (len(self._queue) >= MAX_QUEUED or self._bytes + memory > MAX_QUEUED_BYTES):
            self._room.clear()
            await self._room.wait()
        self.add(item, memory)

    def add(self, item: client.Item, memory: int = 0) -> None:
        """Add an item at once: one of this laptop, of which the host causes no more than it has requests running."""
        for watch in self.watchers:
            watch(item)
        if not self._dropping:
            self._queue.append((item, memory))
            self._bytes += memory
            self._news.set()

    def end(self, change: client.LinkChangeKind) -> None:
        """End the feed. The reader still gets the items that wait; then `failure`, if there is one, is raised to it."""
        self.shift(change)
        self.ended.set()
        self._news.set()

    def drop(self) -> None:
        """Drop what waits, and what still comes."""
        self._dropping = True
        self._queue.clear()
        self._room.set()

    async def items(self) -> AsyncIterator[client.Item]:
        while self._queue or not self.ended.is_set():
            if self._queue:
                item, memory = self._queue.popleft()
                self._bytes -= memory
                self._room.set()
                yield item
                continue
            self._news.clear()
            await self._news.wait()
        if self.failure is not None:
            raise self.failure


log = logging.getLogger(__name__)

_MAX_INPUTS = 10_000
_WITH_BODY = Event | Progress | Snapshot | Past | NamesFound | Listening | OutputRead


@dataclass(eq=False)
class LinkReader:
    """Routes the frames of the host. `have`: the last event of the feed; `skipped`: of the first attach."""

    options: AttachOptions
    feed: EventFeed
    outbox: Outbox
    requests: PendingRequests
    responder: RequestResponder
    schedule: RetrySchedule
    have: int = 0
    skipped: int = 0
    begun: bool = False
    inputs: Newest[str, None] = field(default_factory=lambda: Newest(_MAX_INPUTS))
    channels: Channels = field(default_factory=Channels)
    listening: Mapping[int, HostText] = field(default_factory=dict)
    ports_told: list[Callable[[Mapping[int, HostText]], None]] = field(default_factory=list)
    _replaying: bool = True
    _replay_ends: float = math.inf  # the last event that is replayed, as soon as the attach is granted
    _others_until: int | None = None  # the last event that another client may have seen as the driver

    def attaching(self, *, others_drove: bool) -> None:
        """Prepare for an attach. `others_drove`: another client may have driven since this one did."""
        self._replaying, self._replay_ends = True, math.inf
        if others_drove:
            self._others_until = None
        self.responder.connected_again(others_drove=others_drove)

    async def read(self, link: Link) -> str:
        """Read one connection up to the host's goodbye, and return its words. Raises ConnectionLost, ProtocolError."""
        goodbye = ""
        async for frame in link.frames():
            if isinstance(frame, _WITH_BODY) and is_too_deep(frame.body):
                raise ProtocolError(f"the host sent a message with more than {MAX_DEPTH} levels")
            if isinstance(frame, Bye):
                goodbye = f"{HostText(frame.reason)}" if frame.reason else ""
            else:
                await self._take(frame, link.memory)
            if self._replaying and self.have >= self._replay_ends:
                self._replaying = False
                await self.feed.put(client.ReplayEnd())
            self.answer_requests()
        return goodbye

    async def _take(self, frame: SessionFrame, memory: int) -> None:
        match frame:
            case Event():
                await self._event(frame, memory)
            case Progress():
                line = parse_message(frame.body)
                if not self.responder.takes(line, journalled=False, memory=memory):
                    await self.feed.put(client.SessionEvent("progress", frame.body, frame.seq), memory)
            case Attached():
                await self._attached(frame)
            case Snapshot():
                asks = client.parse_snapshot(frame.body).questions
                self.responder.snapshot(asks, memory, ours=self._is_ours(frame.seq))
                await self.feed.put(client.EventGap(frame.seq, frame.body), memory)
                self.skipped = self.skipped if self.have else frame.seq
                self.have, self._replaying = frame.seq, True
            case Applied():
                self.outbox.confirm(frame.id)
            case Listening():
                self.listening = client.parse_ports(frame.body)
                for tell in self.ports_told:
                    tell(self.listening)
            case ChannelData() | ChannelCredit() | ChannelEnd():
                self.channels.take(frame)
            case Past() | NamesFound() | OutputRead():
                self.requests.take_numbered(frame.request, frame.body)
            case Fenced():
                await self._another_drives(frame)

    def answer_requests(self) -> None:
        """Start answering the worker's requests. Each waits for the end of the replay."""
        if not self._replaying:
            self.responder.work(driving=self.feed.standing.driving)

    async def _event(self, frame: Event, memory: int) -> None:
        received = client.SessionEvent(frame.kind, frame.body, frame.seq, self._replaying)
        if not self._consumed(received, memory):
            await self.feed.put(received, memory)
        self.have = frame.seq
        self.schedule.garbled = 0

    def _consumed(self, received: client.SessionEvent, memory: int) -> bool:
        content = received.record.content
        if isinstance(content, InputRecord):
            self.inputs[content.id] = None
            self.responder.answered(content.public)
        if not isinstance(content, MessageRecord):
            return False
        public = content.public
        if isinstance(public, ControlResponse):
            return self.requests.take_answer(public)
        return self.responder.takes(public, journalled=True, memory=memory, ours=self._is_ours(received.seq))

    def _is_ours(self, seq: int) -> bool:
        others = self._others_until
        return others is not None and seq > others and self.feed.standing.driving

    async def _attached(self, frame: Attached) -> None:
        self._replay_ends = frame.seq
        log.info("attached as %s; events %d to %d are replayed", frame.role, self.have + 1, frame.seq)
        first, self.begun = not self.begun, True
        if self._others_until is None:
            self._others_until = frame.seq
        self.schedule.granted()
        if frame.role != "driver":
            await self._fenced(frame.driver)
        elif first and self.feed.standing.link is client.LinkState.CONNECTED:
            self.feed.shift(client.LinkChangeKind.GRANTED)
        else:
            await self.feed.change(client.LinkChangeKind.GRANTED)

    async def _another_drives(self, frame: Fenced) -> None:
        if frame.by and frame.by == self.options.who:
            raise ConnectionLost("an earlier connection of this ccb reached the host after this one")
        if self.feed.standing.claims:  # our person asked to drive: that outranks a client that attached just then
            raise ConnectionLost("another client attached at the same moment")
        await self._fenced(frame.by)

    async def _fenced(self, by: str) -> None:
        name = client.shown_name(by)
        self.feed.shift(client.LinkChangeKind.FENCED)
        for request_id in () if self.options.answers else self.requests.waiting:
            if self.outbox.withdraw(request_id):  # an interrupt that waited for a take-back would hit another turn
                self.requests.settle(Failure(request_id, f"{name or 'another client'} drives this session now"))
        why = f"{name} drives this session now" if name else "nobody drives this session"
        await self.feed.change(client.LinkChangeKind.FENCED, why)
