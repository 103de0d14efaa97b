"""Read the frames that the host sends over the connections of a session, and route each to the part that handles it."""

from __future__ import annotations

import logging

from ccb.tunnel.errors import ConnectionLost, ProtocolError
from ccb.tunnel.link.greeting import Greeting
from ccb.tunnel.link.link import Link
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire import Applied, Attached, Bye, Event, Fenced, Past, Progress, Snapshot
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.lookups import NamesFound
from ccb.tunnel.wire.messages import ControlResponseLine, parse_message
from ccb.tunnel.wire.records import InputRecord, MessageRecord
from ccb.tunnel.wire.structure import MAX_DEPTH, is_too_deep

from .answers.answering import REFUSES, RequestResponder
from .client import LaptopNotice, Received, Skipped, parse_snapshot, shown_name
from .connection import AttachOptions
from .event_feed import EventFeed
from .newest import Newest
from .outbox import Outbox
from .requests import Requests
from .retry_schedule import RetrySchedule
from .state import Change, LinkState

log = logging.getLogger(__name__)

_MAX_INPUTS = 10_000


@dataclass(frozen=True)
class ClientParts:
    """The parts of a session on this laptop, apart from the tasks that read and reconnect."""

    options: AttachOptions
    feed: EventFeed
    outbox: Outbox
    requests: Requests
    responder: RequestResponder
    schedule: RetrySchedule


class LinkReader:
    """Routes the frames of the host. `have` is the number of the last event handed to the feed, over all connections.
    `begun` means that the host has granted an attach. `inputs` holds the ids of the newest inputs among the events,
    `skipped` the number of the last event that the first attach has skipped."""

    def __init__(self, parts: ClientParts) -> None:
        self.have = 0
        self.inputs: Newest[str, None] = Newest(_MAX_INPUTS)
        self.skipped = 0
        self.begun = False
        self._options = parts.options
        self._feed = parts.feed
        self._outbox = parts.outbox
        self._requests = parts.requests
        self._responder = parts.responder
        self._schedule = parts.schedule
        self._replay_ends: int | None = None  # the last event that is replayed; None before the attach is granted
        self._others_until: int | None = None  # the last event that another client may have seen as the driver

    def attaching(self, *, others_drove: bool) -> None:
        """Prepare for a new connection, just before its attach is sent. `others_drove`: another client may have driven
        since this one did."""
        self._replay_ends = None
        if others_drove:
            self._others_until = None
        self._responder.connected_again(others_drove=others_drove)

    def rewind(self, hello: Greeting) -> int:
        """Continue from the last event the host still has, because it has lost later ones. Return how many it has
        lost."""
        gone, self.have = self.have - hello.seq, hello.seq
        return gone

    async def read(self, link: Link) -> str:
        """Read one connection until the host says goodbye, and return that frame. Raises ConnectionLost,
        ProtocolError."""
        goodbye = ""
        async for frame in link.frames():
            if isinstance(frame, Event | Progress | Snapshot | Past | NamesFound) and is_too_deep(frame.body):
                raise ProtocolError(f"the host sent a message with more than {MAX_DEPTH} levels")
            match frame:
                case Event():
                    await self._event(frame, link.memory)
                case Progress():
                    line = parse_message(frame.body)
                    if not self._responder.takes(line, journalled=False, memory=link.memory):
                        await self._feed.put(Received("progress", frame.body, frame.seq), link.memory)
                case Attached():
                    await self._attached(frame)
                case Snapshot():
                    await self._snapshot(frame, link.memory)
                case Applied():
                    self._outbox.confirm(frame.id)
                case Past():
                    self._requests.take_page(frame)
                case NamesFound():
                    self._requests.names.take(frame.request, frame.body)
                case Fenced():
                    await self._another_drives(frame)
                case Bye():
                    goodbye = f"{HostText(frame.reason)}" if frame.reason else ""
            if self._responder.has_refused_first():
                await self._feed.put(LaptopNotice(f"The host asks too much at once: {REFUSES}."))
            self.answer_requests()
        return goodbye

    def answer_requests(self) -> None:
        """Start answering the worker's requests. Each waits for the end of the replay."""
        if self._replay_ends is not None and self.have >= self._replay_ends:
            self._responder.work(driving=self._feed.standing.driving)

    async def _event(self, frame: Event, memory: int) -> None:
        replayed = self._replay_ends is not None and frame.seq <= self._replay_ends
        received = Received(frame.kind, frame.body, frame.seq, replayed)
        if not self._consumed(received, memory):
            await self._feed.put(received, memory)
        self.have = frame.seq
        self._schedule.garbled = 0

    def _consumed(self, received: Received, memory: int) -> bool:
        """Whether an event was handled here, so that the reader does not get it: an answer to this client, or a request
        that a service of this laptop answers."""
        content = received.record.content
        if isinstance(content, InputRecord):
            self.inputs[content.id] = None
            self._responder.answered(content.public)
        if not isinstance(content, MessageRecord):
            return False
        public = content.public
        if isinstance(public, ControlResponseLine):
            return self._requests.take_answer(public)
        return self._responder.takes(public, journalled=True, memory=memory, ours=self._is_ours(received.seq))

    def _is_ours(self, seq: int) -> bool:
        """Whether no other client can have begun a request: it was sent while this client drove, or was the last to
        drive."""
        others = self._others_until
        return others is not None and seq > others and self._feed.standing.driving

    async def _snapshot(self, frame: Snapshot, memory: int) -> None:
        asks = parse_snapshot(frame.body).questions
        self._responder.snapshot(asks, memory, ours=self._is_ours(frame.seq))
        await self._feed.put(Skipped(frame.seq, frame.body), memory)
        self.skipped = self.skipped if self.have else frame.seq
        self.have = frame.seq

    async def _attached(self, frame: Attached) -> None:
        self._replay_ends = frame.seq
        log.info("attached as %s; events %d to %d are replayed", frame.role, self.have + 1, frame.seq)
        first, self.begun = not self.begun, True
        if self._others_until is None:
            self._others_until = frame.seq
        self._schedule.granted()
        if frame.role != "driver":
            await self._fenced(frame.driver)
        elif first and self._feed.standing.link is LinkState.CONNECTED:
            self._feed.shift(Change.GRANTED)
        else:
            await self._feed.change(Change.GRANTED)

    async def _another_drives(self, frame: Fenced) -> None:
        if frame.by and frame.by == self._options.who:
            raise ConnectionLost("an earlier connection of this ccb reached the host after this one")
        if (
            self._feed.standing.claims
        ):  # our person asked to drive: that outranks a client that attached at the same moment
            raise ConnectionLost("another client attached at the same moment")
        await self._fenced(frame.by)

    async def _fenced(self, by: str) -> None:
        name = shown_name(by)
        self._feed.shift(Change.FENCED)
        for request_id in self._requests.waiting:
            if self._outbox.withdraw(request_id):  # an interrupt that waited for a take-back would hit another turn
                self._requests.refuse(request_id, f"{name or 'another client'} drives this session now")
        await self._feed.change(
            Change.FENCED, f"{name} drives this session now" if name else "nobody drives this session"
        )
