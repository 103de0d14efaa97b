"""What is sent to one client, and in which order."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque

from ccb.tunnel.wire.frames import Applied, Event, Frame, Json, Progress
from ccb.tunnel.wire.journal_records import Record, agent_of_message
from ccb.tunnel.wire.messages import as_dict
from ccb.tunnel.wire.ndjson import encode_frame

from .journal import Journal

log = logging.getLogger(__name__)

_MAX_CONTROL = 10_000  # unsent control frames; beyond it the client is detached
_MAX_PROGRESS = 2_000  # unsent progress frames; beyond it deltas are joined, and then the oldest frames dropped
_TEXTS = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
_MAX_BULK = 4


class ClientOutbox:
    """The frames that wait for one client: control frames first, then events and progress in the order of the journal,
    then data of model calls. `role` is "driver", "viewer" or "" before the attach in `epoch`."""

    def __init__(self, journal: Journal) -> None:
        self.role = ""
        self.epoch = 0
        self.wake = asyncio.Event()
        self.closing = False
        self._journal = journal
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

    def admit(self, role: str, epoch: int, have: int) -> None:
        self.role = role
        self.epoch = epoch
        self._sent = have
        self.wake.set()

    def control(self, frame: Frame) -> None:
        """Queue a frame that is sent before events and data. Detach a client that reads none."""
        if len(self._control) >= _MAX_CONTROL:
            log.warning("a client does not read: it has too many unsent control frames, and is detached")
            self.close()
            return
        self._control.append(frame)
        self.wake.set()

    def applied_after(self, seq: int, input_id: str) -> None:
        self._applied.append((seq, input_id))
        self.wake.set()

    def progress(self, seq: int, key: str, body: Json) -> None:
        """Queue an object that may be lost, behind event `seq`. It replaces an unsent one with the same key."""
        if not self.role:
            return
        slot: object = key or object()
        self._progress.pop(slot, None)
        self._progress[slot] = (seq, key, body)
        if len(self._progress) > _MAX_PROGRESS:
            self._join_deltas()
        self.wake.set()

    def _join_deltas(self) -> None:
        """Join the deltas that follow each other: clients count what they have of a block, so none may be missing."""
        queued, self._progress = self._progress, OrderedDict()
        newest: dict[str, object] = {}  # the slot of each agent
        for slot, (seq, key, body) in queued.items():
            agent_id = agent_of_message(body)
            before = self._progress.get(newest.get(agent_id))
            joined = joined_delta(before[2], body) if before is not None and not key else None
            if before is not None and joined is not None:
                self._progress[newest[agent_id]] = before[0], "", joined
            else:
                self._progress[slot] = seq, key, body
                newest.update({} if key else {agent_id: slot})
        while len(self._progress) > _MAX_PROGRESS // 2:
            self._progress.popitem(last=False)

    async def bulk(self, frame: Frame) -> None:
        """Queue a frame of low urgency. Return once there is room for it."""
        while len(self._bulk) >= _MAX_BULK and not self.closing:
            self._bulk_room.clear()
            await self._bulk_room.wait()
        self._bulk.append(frame)
        self.wake.set()

    def close(self, last: Frame | None = None) -> None:
        """Send the queued control frames, then `last`, and nothing after it."""
        if last is not None:
            self._control.append(last)
        self.closing = True
        self._bulk_room.set()
        self.wake.set()

    def finish(self, last: Frame) -> None:
        self._last = last
        self._bulk_room.set()
        self.wake.set()

    def next_line(self) -> bytes | None:
        if self._applied and self._applied[0][0] <= self._journal.durable:
            return self._encode(Applied(self.epoch, self._applied.popleft()[1]))
        if self._control:
            return self._encode(self._control.popleft())
        if self._rest:
            return self._rest.popleft()
        if self.closing:
            return None
        frame = self._next_of_session() if self.role else None
        if frame is None and self._last is not None:
            frame, self._last, self.closing = self._last, None, True
        if frame is None and self._bulk:
            frame = self._bulk.popleft()
            self._bulk_room.set()
        return None if frame is None else self._encode(frame)

    def _encode(self, frame: Frame) -> bytes:
        self._parted += 1
        first, *rest = encode_frame(frame, self._parted)
        self._rest.extend(rest)
        return first

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


def joined_delta(before: Json, body: Json) -> Json | None:
    """Return two deltas of the text of a block as one, None for other objects."""
    (kind, index, text), known = _delta(body), _delta(before)
    if not kind or (kind, index) != known[:2]:
        return None
    delta = {"type": kind, _TEXTS[kind]: known[2] + text}
    return {**before, "event": {"type": "content_block_delta", "index": index, "delta": delta}}


def _delta(body: Json) -> tuple[str, object, str]:
    """Return the kind, the block and the text of a delta of text; kind "" for another object."""
    event = as_dict(body.get("event"))
    delta = as_dict(event.get("delta"))
    kind = str(delta.get("type"))
    return (kind, event.get("index"), str(delta.get(_TEXTS[kind], ""))) if kind in _TEXTS else ("", None, "")
