"""The request broker: the one door for everything that is asked in a session, in both directions."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Callable, Protocol

from ccb.tunnel.wire.records import MAIN_AGENT, Content, LateAnswerRecord, MessageRecord
from ccb.tunnel.wire.requests import (
    A,
    Answer,
    AnsweredBy,
    Durability,
    Failure,
    P,
    Request,
    RequestKind,
    RequestRefused,
    Success,
    public_answer,
    public_withdrawal,
)

Json = dict[str, Any]

_MAX_KEPT = 1000  # answers to requests that survive restarts, kept for askers that come back


class RequestLog(Protocol):
    """Where requests and answers are put on record: the journal of the session."""

    def emit(self, content: Content, agent_id: str = MAIN_AGENT) -> object:
        """Append a record. Raises NotKept."""

    async def commit(self) -> None:
        """Return when every record so far is durable. Raises NotKept."""


class Watchers(Protocol):
    """Who is told what is not in the journal."""

    def progress(self, key: str, body: Json, *, driver_only: bool = False) -> None:
        """Show a public object, which may be lost, to every client or to the driver only."""

    def changed(self) -> None:
        """The state of the session or its last prompt has changed."""


@dataclass(frozen=True)
class Handled:
    """What a handler made of a request. `then` runs once the answer is journalled, or could not be journalled."""

    payload: Json | None = None
    then: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class _Open:
    request: Request[Any, Any]
    answer: asyncio.Future[Answer]


class RequestBroker:
    """Asks for the worker, and answers for it.

    A request of the worker is open until it is answered, withdrawn, or past its deadline. The first answer counts; later
    ones are recorded as `late_answer`. Requests of clients go to the handler that is registered for their kind.
    """

    def __init__(self, log: RequestLog, watchers: Watchers, can_ask: Callable[[AnsweredBy], bool]) -> None:
        self._log = log
        self._watchers = watchers
        self._can_ask = can_ask
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._unclaimed: set[str] = set()  # open since an earlier worker; nobody here has asked them again yet
        self._kept: OrderedDict[str, Answer] = OrderedDict()  # of requests that survive a restart
        self._handlers: dict[str, Callable[[Json], Handled]] = {}
        self._suspended = False

    # What the worker asks.

    def can_ask(self, kind: RequestKind[P, A]) -> bool:
        """See Broker."""
        return self._can_ask(kind.answered_by)

    async def request(self, request: Request[P, A]) -> A:
        """See Broker. A request whose kind survives restarts may be asked again under its id: it is still the same one, and if
        it has been answered meanwhile, that answer is returned at once."""
        kind = request.kind
        if request.id in self._kept:
            return kind.read_answer(self._kept[request.id])
        if request.id in self._open:
            raise ValueError("the request %s is open already" % request.id)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[request.id] = _Open(request, answer)
        try:
            if request.id in self._unclaimed:
                self._unclaimed.discard(request.id)
            elif kind.durability is Durability.MEMORY:
                self._tell_driver(request.id, request.public())
            else:
                self._log.emit(MessageRecord(request.public()), request.agent_id)
                await self._log.commit()
            self._watchers.changed()
            await asyncio.wait([answer], timeout=kind.deadline_s)
            if not answer.done():
                return kind.read_answer(Failure(request.id, "no answer within %g s" % (kind.deadline_s or 0)))
            return kind.read_answer(answer.result())
        finally:
            if self._open.pop(request.id, None) is not None and not answer.done():
                self._take_back(request)
            self._watchers.changed()

    def withdraw(self, answered_by: AnsweredBy) -> None:
        """Take back every open request to `answered_by`; whoever waits for an answer is cancelled."""
        for request_id, each in list(self._open.items()):
            if each.request.kind.answered_by is answered_by:
                del self._open[request_id]
                if not each.answer.done():
                    self._take_back(each.request)
                    each.answer.cancel()

    def suspend(self) -> None:
        """The worker ends: from here on, requests that survive a restart are not withdrawn when their asker is cancelled."""
        self._suspended = True

    def _take_back(self, request: Request[Any, Any]) -> None:
        durability = request.kind.durability
        if durability is Durability.MEMORY:
            self._tell_driver(request.id, public_withdrawal(request.id))
        elif durability is Durability.JOURNAL or not self._suspended:
            self._log.emit(MessageRecord(public_withdrawal(request.id)), request.agent_id)

    def _tell_driver(self, request_id: str, body: Json) -> None:
        """Send what is not journalled. A withdrawal replaces its request where that was not sent yet."""
        self._watchers.progress("request:%s" % request_id, body, driver_only=True)

    def take_answer(self, answer: Answer) -> None:
        """A client answers."""
        request_id = answer.request_id
        found = self._open.pop(request_id, None)
        if found is not None and not found.answer.done():
            found.answer.set_result(answer)
            if found.request.kind.durability is Durability.RESTART:
                self._keep(answer)
        elif request_id in self._unclaimed:
            self._unclaimed.discard(request_id)
            self._keep(answer)
        else:
            self._log.emit(LateAnswerRecord(request_id))

    def _keep(self, answer: Answer) -> None:
        self._kept[answer.request_id] = answer
        while len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)

    # What is open.

    def waits_for(self, answered_by: AnsweredBy) -> bool:
        """Whether a request to `answered_by` is open."""
        return any(each.request.kind.answered_by is answered_by for each in self._open.values())

    def subjects(self, answered_by: AnsweredBy) -> list[str]:
        """What the open requests to `answered_by` are about, each once."""
        about = (each.request.about for each in self._open.values() if each.request.kind.answered_by is answered_by)
        return list(OrderedDict.fromkeys(about))

    def ask_driver_again(self) -> None:
        """There is a new driver: send it the open requests that it does not find in the journal."""
        for each in self._open.values():
            if each.request.kind.durability is Durability.MEMORY:
                self._tell_driver(each.request.id, each.request.public())

    def resume(self, open_requests: Iterable[Json], answers: Iterable[Answer], surviving: Collection[str]) -> None:
        """Go on from a journal. `open_requests` are its public requests without an answer: those whose kind is in `surviving`
        stay open for the asker that comes back, the others are withdrawn. `answers` are given in the journal to such kinds."""
        for answer in answers:
            self._keep(answer)
        for body in open_requests:
            request_id, request = str(body.get("request_id")), body.get("request")
            if isinstance(request, dict) and request.get("subtype") in surviving:
                self._unclaimed.add(request_id)
            else:
                self._log.emit(MessageRecord(public_withdrawal(request_id)))

    # What clients ask.

    def register(self, kind: RequestKind[P, A], handler: Callable[[P], Handled]) -> None:
        """Let `handler` answer the requests of a kind. It raises RequestRefused for what it does not do."""
        self._handlers[kind.name] = lambda fields: handler(kind.read(fields))

    def take_request(self, body: Json) -> None:
        """A client asks: it is answered in any case, with an error if no handler is registered for the kind."""
        request_id, request = str(body.get("request_id", "")), body.get("request")
        name = str(request.get("subtype") if isinstance(request, dict) else None)
        handled = Handled()
        try:
            handler = self._handlers.get(name)
            if handler is None or not isinstance(request, dict):
                raise RequestRefused("Unsupported control request subtype: %s" % name, "unsupported_request")
            handled = handler(request)
            answer: Answer = Success(request_id, handled.payload)
        except RequestRefused as refused:
            answer = Failure(request_id, str(refused), refused.code)
        try:
            self._log.emit(MessageRecord(public_answer(answer)))
        finally:
            handled.then()
