"""The request broker: all requests of a session pass through it, in both directions."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Collection
from typing import Any, Callable, Union

from ccb.tunnel.wire import control_protocol as protocol
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import ForkedRecord, InputRecord, LateAnswerRecord, MessageRecord, Record
from ccb.tunnel.wire.messages import ControlCancel, ControlRequest, ControlResponse
from ccb.tunnel.wire.projection import Projection, on

from ..session_store.journal import NotKept
from ..session_store.session_log import SessionLog

_log = logging.getLogger(__name__)

_MAX_KEPT = 1000  # kept answers to requests that survive restarts, for askers that ask again


class OpenRequests(Projection):
    """The worker's unanswered requests in the journal; kinds of `surviving` stay open over restarts."""

    def __init__(self, surviving: Collection[str] = ()) -> None:
        self.answers: OrderedDict[str, protocol.Answer] = OrderedDict()
        self._surviving = surviving
        self._open: OrderedDict[str, tuple[int, ControlRequest]] = OrderedDict()  # number of the event, request
        self._copied: set[str] = set()

    def kind_of(self, request_id: str) -> str:
        asked = self._open.get(request_id)
        return asked[1].subtype if asked is not None else ""

    def asked_until(self, seq: int) -> list[Json]:
        return [line.body for asked, line in self._open.values() if asked <= seq]

    def after_restart(self) -> tuple[list[str], list[str]]:
        mine = [(each, line) for each, (_, line) in self._open.items() if each not in self._copied]
        kept = [request_id for request_id, line in mine if line.subtype in self._surviving]
        return kept, [request_id for request_id in self._open if request_id not in kept]

    @on(ControlRequest)
    def _asked(self, line: ControlRequest, record: Record) -> None:
        self._open[line.request_id] = record.seq, line

    @on(ControlCancel)
    def _withdrawn(self, line: ControlCancel, _: Record) -> None:
        self._open.pop(line.request_id, None)

    @on(InputRecord)
    def _answered(self, content: InputRecord, _: Record) -> None:
        line = content.public
        if not isinstance(line, ControlResponse):
            return
        answer = protocol.answer_in(line)
        asked = self._open.pop(answer.request_id, None)
        if asked is not None and asked[1].subtype in self._surviving:
            self.answers[answer.request_id] = answer
            if len(self.answers) > _MAX_KEPT:
                self.answers.popitem(last=False)

    @on(ForkedRecord)
    def _forked(self, _: ForkedRecord, __: Record) -> None:
        self._copied = set(self._open)


@dataclass(frozen=True)
class RequestOutcome:
    """`then` runs after the answer was journalled, or could not be."""

    payload: Json | None = None
    then: Callable[[], object] = lambda: None


Handled = Union[Json, RequestOutcome, Awaitable[Json]]


class RequestBroker:
    """Sends the worker's requests, and answers requests to it. The first answer counts; later ones are recorded."""

    def __init__(
        self, log: SessionLog, can_ask: Callable[[protocol.AnsweredBy], bool], journalled: OpenRequests | None = None
    ) -> None:
        self._log = log
        self._can_ask = can_ask
        self._open: OrderedDict[str, tuple[protocol.Request[Any, Any], asyncio.Future[protocol.Answer]]] = OrderedDict()
        self._unclaimed: set[str] = set()  # open since an earlier worker; this worker has not asked them again yet
        self.journalled = journalled or OpenRequests()
        self._handlers: dict[str, Callable[[Json], Handled]] = {}
        self._working: set[asyncio.Task[None]] = set()
        self._suspended = False

    # What the worker asks.

    def can_ask(self, kind: protocol.RequestKind[protocol.P, protocol.A]) -> bool:
        return self._can_ask(kind.answered_by)

    async def request(self, request: protocol.Request[protocol.P, protocol.A]) -> protocol.A:
        kind = request.kind
        answered = self.journalled.answers.get(request.id)
        if answered is not None:
            return kind.read_answer(answered)
        if request.id in self._open:
            raise ValueError("the request %s is open already" % request.id)
        answer: asyncio.Future[protocol.Answer] = asyncio.get_running_loop().create_future()
        self._open[request.id] = request, answer
        try:
            if request.id in self._unclaimed:
                self._unclaimed.discard(request.id)
            elif kind.durability is protocol.Durability.MEMORY:
                self._tell_driver(request.id, request.public())
            else:
                self._log.emit(MessageRecord(request.public()), request.agent_id)
                await self._log.commit()
            self._log.changed()
            await asyncio.wait([answer], timeout=kind.deadline_s)
            if not answer.done():
                return kind.read_answer(protocol.Failure(request.id, "no answer within %g s" % (kind.deadline_s or 0)))
            return kind.read_answer(answer.result())
        finally:
            if self._open.pop(request.id, None) is not None and not answer.done():
                self._take_back(request)
            self._log.changed()

    def withdraw(self, answered_by: protocol.AnsweredBy, spare: Collection[str] = ()) -> None:
        """Withdraw the open requests to `answered_by`, except those of agents in `spare`. Raise NotKept."""
        withdrawn = [
            each
            for each in self._open.values()
            if each[0].kind.answered_by is answered_by and each[0].agent_id not in spare
        ]
        for request, _ in withdrawn:
            del self._open[request.id]
        waiting = [(request, answer) for request, answer in withdrawn if not answer.done()]
        for _, answer in waiting:
            answer.cancel()
        for request, _ in waiting:
            self._take_back(request)

    def suspend(self) -> None:
        """The worker ends: requests that survive restarts are not withdrawn any more."""
        self._suspended = True

    def _take_back(self, request: protocol.Request[Any, Any]) -> None:
        durability = request.kind.durability
        if durability is protocol.Durability.MEMORY:
            self._tell_driver(request.id, protocol.public_withdrawal(request.id))
        elif durability is protocol.Durability.JOURNAL or not self._suspended:
            self._log.emit(MessageRecord(protocol.public_withdrawal(request.id)), request.agent_id)

    def _tell_driver(self, request_id: str, body: Json) -> None:
        self._log.tell_driver("request:%s" % request_id, body)

    def take_answer(self, answer: protocol.Answer) -> None:
        request_id = answer.request_id
        found = self._open.pop(request_id, None)
        if found is not None and not found[1].done():
            found[1].set_result(answer)
        elif request_id in self._unclaimed:
            self._unclaimed.discard(request_id)  # the answer is in the journal, in case the request is asked again
        else:
            self._log.emit(LateAnswerRecord(request_id))

    # What is open.

    def waits_for(self, answered_by: protocol.AnsweredBy) -> bool:
        return any(request.kind.answered_by is answered_by for request, _ in self._open.values())

    def subjects(self, answered_by: protocol.AnsweredBy) -> list[str]:
        asked = [request for request, _ in self._open.values() if request.kind.answered_by is answered_by]
        return list(dict.fromkeys(request.about for request in asked))

    def ask_driver_again(self) -> None:
        for request, _ in self._open.values():
            if request.kind.durability is protocol.Durability.MEMORY:
                self._tell_driver(request.id, request.public())

    def resume(self) -> None:
        kept, abandoned = self.journalled.after_restart()
        self._unclaimed.update(kept)
        for request_id in abandoned:
            self._log.emit(MessageRecord(protocol.public_withdrawal(request_id)))

    # What clients ask.

    def register(
        self, kind: protocol.RequestKind[protocol.P, protocol.A], handler: Callable[[protocol.P], Handled]
    ) -> None:
        """Let `handler` answer. It is called at once; an awaitable that it returns is awaited beside all else."""
        self._handlers[kind.name] = lambda fields: handler(kind.read(fields))

    def handles(self, name: str) -> bool:
        return name in self._handlers

    async def settle(self, wait_s: float) -> None:
        if self._working:
            await asyncio.wait(self._working, timeout=wait_s)

    async def close(self) -> None:
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def _work_on(self, line: ControlRequest, work: Awaitable[Json]) -> None:
        try:
            answer: protocol.Answer = protocol.Success(line.request_id, await work)
        except asyncio.CancelledError:  # only `close` does that
            answer = protocol.Failure(line.request_id, "the session has ended before the answer")
        except (protocol.RequestRefused, NotKept) as error:
            answer = _refusal(line, error)
        except Exception as error:  # noqa: BLE001 - the asker is told
            _log.exception("a request of a client failed: %s", line.subtype)
            answer = protocol.Failure(line.request_id, f"internal error in the worker: {type(error).__name__}: {error}")
        try:
            self._log.emit(MessageRecord(protocol.public_answer(answer)))
        except NotKept as error:
            _log.error("the answer to a request of a client could not be written: %s", error)

    def take_request(self, line: ControlRequest) -> None:
        outcome = RequestOutcome()
        try:
            handler = self._handlers.get(line.subtype)
            if handler is None:
                text = "Unsupported control request subtype: %s" % (line.subtype or None)
                raise protocol.RequestRefused(text, "unsupported_request")
            handled = handler(line.request)
            if not isinstance(handled, (RequestOutcome, dict)):
                task = asyncio.get_running_loop().create_task(self._work_on(line, handled))
                self._working.add(task)
                task.add_done_callback(self._working.discard)
                return
            outcome = RequestOutcome(handled) if isinstance(handled, dict) else handled
            answer: protocol.Answer = protocol.Success(line.request_id, outcome.payload)
        except (protocol.RequestRefused, NotKept) as error:
            answer = _refusal(line, error)
        try:
            self._log.emit(MessageRecord(protocol.public_answer(answer)))
        finally:
            outcome.then()


def _refusal(line: ControlRequest, error: protocol.RequestRefused | NotKept) -> protocol.Failure:
    code = error.code if isinstance(error, protocol.RequestRefused) else ""
    return protocol.Failure(line.request_id, str(error), code)
