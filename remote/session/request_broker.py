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
from ccb.tunnel.wire.journal_records import InputRecord, LateAnswerRecord, MessageRecord, Projection, Record, on
from ccb.tunnel.wire.messages import ControlCancel, ControlRequest, ControlResponse

from ..session_store.journal import NotKept
from ..session_store.session_log import SessionLog

_log = logging.getLogger(__name__)


class OpenRequests(Projection):
    """The worker's unanswered requests in the journal."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[int, ControlRequest]] = OrderedDict()  # number of the event, request

    @property
    def ids(self) -> list[str]:
        return list(self._open)

    def kind_of(self, request_id: str) -> str:
        asked = self._open.get(request_id)
        return asked[1].subtype if asked is not None else ""

    def asked_until(self, seq: int) -> list[Json]:
        return [line.body for asked, line in self._open.values() if asked <= seq]

    @on(ControlRequest)
    def _asked(self, line: ControlRequest, record: Record) -> None:
        self._open[line.request_id] = record.seq, line

    @on(ControlCancel)
    def _withdrawn(self, line: ControlCancel, _: Record) -> None:
        self._open.pop(line.request_id, None)

    @on(InputRecord)
    def _answered(self, content: InputRecord, _: Record) -> None:
        if isinstance(content.public, ControlResponse):
            self._open.pop(content.public.request_id, None)


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
        self.journalled = journalled or OpenRequests()
        self._handlers: dict[str, Callable[[Json], Handled]] = {}
        self._working: set[asyncio.Task[None]] = set()

    # What the worker asks.

    def can_ask(self, kind: protocol.RequestKind[protocol.P, protocol.A]) -> bool:
        return self._can_ask(kind.answered_by)

    async def request(self, request: protocol.Request[protocol.P, protocol.A]) -> protocol.A:
        kind = request.kind
        if request.id in self._open:
            raise ValueError("the request %s is open already" % request.id)
        answer: asyncio.Future[protocol.Answer] = asyncio.get_running_loop().create_future()
        self._open[request.id] = request, answer
        try:
            if kind.journalled:
                self._log.emit(MessageRecord(request.public()), request.agent_id)
                await self._log.commit()
            else:
                self._tell_driver(request.id, request.public())
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
            (request, answer)
            for request, answer in self._open.values()
            if request.kind.answered_by is answered_by and request.agent_id not in spare
        ]
        for request, answer in withdrawn:
            del self._open[request.id]
            answer.cancel()
        for request, answer in withdrawn:
            if answer.cancelled():  # else it was answered before
                self._take_back(request)

    def reconsider(self) -> None:
        """Withdraw the requests that are moot now, as in another permission mode. Raise NotKept."""
        for request, answer in [each for each in self._open.values() if each[0].is_moot()]:
            del self._open[request.id]
            answer.set_exception(protocol.RequestMoot())
            self._take_back(request)

    def withdraw_abandoned(self) -> None:
        """Withdraw the requests of an earlier worker: nobody waits for their answers any more."""
        for request_id in self.journalled.ids:
            self._log.emit(MessageRecord(protocol.public_withdrawal(request_id)))

    def _take_back(self, request: protocol.Request[Any, Any]) -> None:
        if request.kind.journalled:
            self._log.emit(MessageRecord(protocol.public_withdrawal(request.id)), request.agent_id)
        else:
            self._tell_driver(request.id, protocol.public_withdrawal(request.id))

    def _tell_driver(self, request_id: str, body: Json) -> None:
        self._log.tell_driver("request:%s" % request_id, body)

    def take_answer(self, answer: protocol.Answer) -> None:
        found = self._open.pop(answer.request_id, None)
        if found is not None and not found[1].done():
            found[1].set_result(answer)
        else:
            self._log.emit(LateAnswerRecord(answer.request_id))

    # What is open.

    def waits_for(self, answered_by: protocol.AnsweredBy) -> bool:
        return any(request.kind.answered_by is answered_by for request, _ in self._open.values())

    def subjects(self, answered_by: protocol.AnsweredBy) -> list[str]:
        asked = [request for request, _ in self._open.values() if request.kind.answered_by is answered_by]
        return list(dict.fromkeys(request.about for request in asked))

    def ask_driver_again(self) -> None:
        for request, _ in self._open.values():
            if not request.kind.journalled:
                self._tell_driver(request.id, request.public())

    # What clients ask.

    def register(
        self, kind: protocol.RequestKind[protocol.P, protocol.A], handler: Callable[[protocol.P], Handled]
    ) -> None:
        """Let `handler` answer. It is called at once; an awaitable that it returns is awaited beside all else."""
        self._handlers[kind.name] = lambda fields: handler(kind.read(fields))

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
