"""The requests of this laptop to the host: control requests to the worker, and pages of earlier events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire import Json, Past
from ccb.tunnel.wire.messages import ControlResponseLine
from ccb.tunnel.wire.records import parse_page
from ccb.tunnel.wire.requests import A, Answer, Failure, P, Request, RequestFailed, answer_in

from .client import Received

_CHECKS = 60  # of the connection while a request waits for its answer


T = TypeVar("T")


class Numbered(Generic[T]):
    """Waits for answers that are told apart by a number, and fail with their connection."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[T]] = {}
        self._count = 0

    def open(self) -> tuple[int, asyncio.Future[T]]:
        """Return the number of a new request, and the future that gets the answer."""
        self._count += 1
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[self._count] = answer
        return self._count, answer

    def close(self, number: int) -> None:
        """Forget a request that nobody waits for any more."""
        self._waiting.pop(number, None)

    def take(self, number: int, value: T) -> None:
        """Hand an answer to the request that waits for it, if one does."""
        answer = self._waiting.get(number)
        if answer is not None and not answer.done():
            answer.set_result(value)

    def fail(self) -> None:
        """Fail all requests: their connection is lost."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLost("the connection was lost", do="Try again after the reconnect."))


class Requests:
    """Waits for answers. A control request keeps waiting when the connection is lost; pages of events and names of
    files fail."""

    def __init__(self) -> None:
        self._controls: dict[str, asyncio.Future[Answer]] = {}
        self.pages: Numbered[list[Received]] = Numbered()
        self.names: Numbered[Json] = Numbered()

    async def answer_to(self, request: Request[P, A], deadline_s: float, connected: Callable[[], bool]) -> A:
        """Wait for the answer to `request`, which the caller sends meanwhile, and return it parsed. Only seconds that
        pass while `connected` count. Raises RequestFailed (also at the deadline), and ConnectionLost when the session
        is over."""
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._controls[request.id] = waiting
        left, step = deadline_s, deadline_s / _CHECKS
        try:
            while left > 0:
                await asyncio.wait([waiting], timeout=step)
                if waiting.done():
                    return request.kind.read_answer(waiting.result())
                left = left - step if connected() else deadline_s
            raise RequestFailed(f"no answer to {request.kind.name} within {deadline_s:g} s")
        finally:
            self._controls.pop(request.id, None)

    @property
    def waiting(self) -> list[str]:
        """The ids of the control requests that wait."""
        return list(self._controls)

    def refuse(self, request_id: str, why: str) -> None:
        """Fail a control request that will get no answer."""
        self._settle(Failure(request_id, why))

    def take_answer(self, line: ControlResponseLine) -> bool:
        """Hand an answer to the control request that waits for it. Return False if no request does."""
        if line.request_id not in self._controls:
            return False
        answer = answer_in(line)
        if isinstance(answer, Failure):
            answer = Failure(answer.request_id, neutralise(answer.error), answer.code)
        self._settle(answer)
        return True

    def _settle(self, answer: Answer) -> None:
        waiting = self._controls.get(answer.request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def take_page(self, frame: Past) -> None:
        """Hand a page to the request that waits for it."""
        records = parse_page(frame.body)
        self.pages.take(frame.request, [Received(each.kind, each.body, each.seq, True) for each in records])

    def connection_lost(self) -> None:
        """Fail what belongs to a connection."""
        self.pages.fail()
        self.names.fail()

    def fail(self, why: str) -> None:
        """Fail everything that waits: the session is over."""
        for waiting in self._controls.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost(why))
        self._controls.clear()
        self.connection_lost()
