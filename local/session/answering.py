"""Answer the worker's requests, of registered kinds only: each at most once, after the replay, by who drives."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.control_protocol import A, Answer, Failure, P, RequestKind, RequestRefused, Success, public_answer
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.messages import ControlCancel, ControlRequest, ControlResponse, PublicMessage

from .newest import MAX_ID, Newest
from .outbox import Outbox, answer_id
from .session_client import Json

log = logging.getLogger(__name__)

MAX_RUNNING = 32  # services that run at the same time. A request beyond this number is refused.
MAX_ANSWERING = 2 * MAX_RUNNING  # also refusals that wait for room in the outbox. Others wait.
MAX_WAITING = 1_000  # for the end of a replay, for this client to drive, or for earlier answers
MAX_WAITING_BYTES = 64 * 1024 * 1024  # bytes of memory of the requests that wait; a request beyond it is dropped
MAX_OPEN = 100  # requests that are open at the reader at the same time. A request beyond this number is refused.
MAX_OPEN_BYTES = 64 * 1024 * 1024  # bytes of memory of those requests. A request beyond it is refused.
REFUSES = f"more than {MAX_OPEN} open questions, or {MAX_OPEN_BYTES // 1024 // 1024} MB of them, are refused"

_MAX_KNOWN = 10_000

_PERHAPS_BEGUN = (
    "The laptop that this was sent to has gone before it answered. Whether it had any effect is not known: check "
    "that before you try again."
)

Service = Callable[[Json, bool], Awaitable[Json]]  # fields of a request, and whether it was sent to this client alone


@dataclass(frozen=True)
class _Waiting:
    """A request. `journalled`: a replay repeats it. `ours`: no other client can have begun it."""

    line: ControlRequest
    journalled: bool
    memory: int
    ours: bool = True


class RequestResponder:
    """Answers the requests of one session. Requests wait until `begin`, so that every kind can be registered before."""

    def __init__(self, outbox: Outbox, warn: Callable[[str], None]) -> None:
        self._outbox = outbox
        self._warn = warn  # tells the person
        self._services: dict[str, Service] = {}
        self._for_reader: set[str] = set()
        # Kinds, cut to MAX_ID, by the ids of the requests that came, so that none is answered twice.
        self._known: Newest[str, str] = Newest(_MAX_KNOWN)
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self._open: dict[str, int] = {}  # the memory of each request that is open at the reader
        self._has_warned = False
        self._running: dict[str, asyncio.Task[None]] = {}
        self._journalled: set[str] = set()  # those of the running that are in the journal
        self._begun = False
        self._may_start = False  # the replay is over, and this client drives

    def register(
        self,
        kind: RequestKind[P, A],
        service: Callable[[P], Awaitable[Json]] | None,
        runs_once: Callable[[P], bool] = lambda _: False,
    ) -> None:
        """Answer such requests with what `service` returns, or leave them to the reader. `runs_once`: at most once."""
        if service is None:
            self._for_reader.add(kind.name)
            return

        def serve(fields: Json, ours: bool) -> Awaitable[Json]:
            wanted = kind.read(fields)
            if not ours and runs_once(wanted):
                raise RequestRefused(_PERHAPS_BEGUN)
            return service(wanted)

        self._services[kind.name] = serve

    def leaves_to_reader(self, kind: RequestKind[P, A]) -> bool:
        return kind.name in self._for_reader

    def _is_for_reader(self, subtype: str) -> bool:
        return subtype in self._for_reader and subtype not in self._services

    def begin(self) -> None:
        self._begun = True
        for request_id, kind in list(self._known.items()):
            waiting = self._waiting.get(request_id)
            if self._is_for_reader(kind) and (waiting is None or self._admits(request_id, waiting.memory)):
                del self._known[request_id]
                self._waiting.pop(request_id, None)

    def takes(self, line: PublicMessage, *, journalled: bool, memory: int, ours: bool = True) -> bool:
        """Note a request, or its withdrawal. Return False if it is the reader's to see, or `hides` decides later."""
        if isinstance(line, ControlRequest):
            for_reader = self._begun and self._is_for_reader(line.subtype) and line.request_id not in self._known
            if for_reader and self._admits(line.request_id, memory):
                return False
            self._note(line, _Waiting(line, journalled, memory, ours))
            return self._begun
        if isinstance(line, ControlCancel):
            known = line.request_id in self._known
            self.closed(line.request_id)
            return known and self._begun
        return False

    def hides(self, line: PublicMessage) -> bool:
        """Return whether a line that came before `begin` is not the reader's to see."""
        if isinstance(line, ControlRequest):
            return not self._is_for_reader(line.subtype) or line.request_id in self._known
        return isinstance(line, ControlCancel) and line.request_id in self._known

    def is_open(self, line: PublicMessage) -> bool:
        return isinstance(line, ControlRequest) and line.request_id in self._open

    def closed(self, request_id: str) -> None:
        self._waiting.pop(request_id, None)
        self._open.pop(request_id, None)
        if (task := self._running.get(request_id)) is not None:
            task.cancel()

    def answered(self, line: PublicMessage) -> None:
        if isinstance(line, ControlResponse):
            self.closed(line.request_id)

    def snapshot(self, asks: Sequence[ControlRequest], memory: int, *, ours: bool = True) -> None:
        """Replace the open requests of the journal with `asks`, which take `memory` bytes together."""
        asked = {line.request_id for line in asks}
        for request_id in [each for each in self._open if each not in asked]:
            self.closed(request_id)
        for request_id, waiting in list(self._waiting.items()):
            if waiting.journalled and request_id not in asked:
                self.closed(request_id)
        for request_id in self._journalled - asked:
            self.closed(request_id)
        for line in asks:
            self.takes(line, journalled=True, memory=memory // len(asks), ours=ours)

    def connected_again(self, *, others_drove: bool) -> None:
        """Forget requests that the worker repeats. If others drove meanwhile, they may have begun those that wait."""
        self._may_start = False
        for request_id, waiting in list(self._waiting.items()):
            if not waiting.journalled:
                del self._waiting[request_id]
                self._known.pop(request_id, None)
            elif others_drove:
                self._waiting[request_id] = replace(waiting, ours=False)

    def work(self, *, driving: bool) -> None:
        self._may_start = self._begun and driving
        self._start()

    def _start(self) -> None:
        while self._may_start and self._waiting and len(self._running) < MAX_ANSWERING:
            request_id, waiting = self._waiting.popitem(last=False)
            task = asyncio.create_task(self._answer(waiting), name=f"answer {request_id}")
            self._running[request_id] = task
            if waiting.journalled:
                self._journalled.add(request_id)
            task.add_done_callback(partial(self._done, request_id))

    def _done(self, request_id: str, _: asyncio.Task[None]) -> None:
        self._running.pop(request_id, None)
        self._journalled.discard(request_id)
        self._start()

    async def close(self) -> None:
        self._may_start = False
        await cancelled(*self._running.values())

    async def _answer(self, waiting: _Waiting) -> None:
        line = waiting.line
        try:
            answer: Answer = Success(line.request_id, await self._serve(line, waiting.ours))
        except RequestRefused as refused:
            log.warning("refused a request of the worker (%s): %s", one_line(line.subtype)[:100], refused)
            answer = Failure(line.request_id, str(refused), refused.code)
        except Exception as error:
            log.exception("a service for the worker failed")
            answer = Failure(line.request_id, f"internal error on the laptop: {type(error).__name__}")
        await self._outbox.put(answer_id(line.request_id), public_answer(answer))

    async def _serve(self, line: ControlRequest, ours: bool) -> Json:
        if self._is_for_reader(line.subtype):
            raise RequestRefused(f"This laptop refuses a part of its questions: {REFUSES}.", "too_many_requests")
        service = self._services.get(line.subtype)
        if service is None:
            raise RequestRefused("This laptop does not answer such requests.", "unsupported_request")
        if len(self._running) > MAX_RUNNING:
            raise RequestRefused(f"This laptop answers {MAX_RUNNING} requests already.", "too_many_requests")
        return await service({name: value for name, value in line.request.items() if name != "subtype"}, ours)

    def _admits(self, request_id: str, memory: int) -> bool:
        if request_id not in self._open:
            total = sum(self._open.values()) + memory
            if len(self._open) >= MAX_OPEN or total > MAX_OPEN_BYTES or len(request_id) > MAX_ID:
                if not self._has_warned:
                    self._has_warned = True
                    self._warn(f"The host asks too much at once: {REFUSES}.")
                return False
            self._open[request_id] = memory
        return True

    def _note(self, line: ControlRequest, request: _Waiting) -> None:
        if line.request_id in self._known or line.request_id in self._running:
            return
        if len(line.request_id) > MAX_ID:
            log.warning("a request of the worker is dropped: its id has %d characters", len(line.request_id))
            return
        count, total = len(self._waiting), sum(each.memory for each in self._waiting.values())
        if count >= MAX_WAITING or total + request.memory > MAX_WAITING_BYTES:
            log.warning("a request of the worker is dropped: %d wait already, with %d bytes", count, total)
            return
        self._waiting[line.request_id] = request
        self._known[line.request_id] = line.subtype[:MAX_ID]
