"""Keep inputs until the host confirms them, and requests until they are answered."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from ccb.tunnel.errors import ConnectionLost, UsageError
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire import control_protocol as control
from ccb.tunnel.wire.control_protocol import CLIENT_DEADLINE_S, A, Answer, Failure, P
from ccb.tunnel.wire.frames import FrameError, Input, Stop
from ccb.tunnel.wire.messages import ControlResponse
from ccb.tunnel.wire.ndjson import encode_frame

from .session_client import Json

MAX_INPUTS = 256  # inputs that may wait for confirmation. While the outbox is full, senders wait.
MAX_BYTES = 64 * 1024 * 1024  # bytes of all waiting inputs. A single larger input is accepted when nothing else waits.


class Outbox:
    """Keeps inputs in order: `next` takes the unconfirmed ones after each `rewind`. A stop may wait for them."""

    def __init__(self) -> None:
        self._stop: Stop | None = None
        self._stop_sent = False
        self._inputs: OrderedDict[str, tuple[Json, int]] = OrderedDict()
        self._sent: set[str] = set()
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._inputs)

    @property
    def _weight(self) -> int:
        return sum(size for _, size in self._inputs.values())

    async def put(self, input_id: str, body: Json) -> None:
        """Add an input once; waits while the outbox is full. Raises UsageError if it is too large."""
        try:
            size = sum(map(len, encode_frame(Input(0, input_id, body))))
        except FrameError as error:
            raise UsageError(
                "the message is too large to be sent", evidence=error.reason, do="Send a shorter message."
            ) from None
        while self._inputs and (len(self._inputs) >= MAX_INPUTS or self._weight + size > MAX_BYTES):
            self._room.clear()
            await self._room.wait()
        if input_id not in self._inputs:
            self._inputs[input_id] = (body, size)
            self._news.set()

    def confirm(self, input_id: str) -> None:
        if self._inputs.pop(input_id, None) is not None:
            self._sent.discard(input_id)
            self._room.set()

    async def confirmed(self, input_id: str = "") -> None:
        while input_id in self._inputs if input_id else self._inputs:
            self._room.clear()
            await self._room.wait()

    def withdraw(self, input_id: str) -> bool:
        """Drop an input that is no longer wanted. Return whether it was unconfirmed; the host may have it anyway."""
        unconfirmed = input_id in self._inputs
        self.confirm(input_id)
        return unconfirmed

    def rewind(self) -> None:
        self._sent.clear()
        self._stop_sent = False
        self._news.set()

    def stop(self, *, finish: bool) -> None:
        """Ask the host to end the session. A stop without `finish` replaces one with it."""
        if self._stop is None or (self._stop.finish and not finish):
            self._stop = Stop(0, finish)
            self._stop_sent = False
            self._news.set()

    async def next(self, epoch: int) -> Input | Stop:
        """Wait for the next frame that was not yet taken since the last `rewind`."""
        while True:
            waiting = next((each for each in self._inputs if each not in self._sent), None)
            if self._stop is not None and not self._stop_sent and (waiting is None or not self._stop.finish):
                self._stop_sent = True
                return Stop(epoch, self._stop.finish)
            if waiting is not None:
                self._sent.add(waiting)
                return Input(epoch, waiting, self._inputs[waiting][0])
            self._news.clear()
            await self._news.wait()


def answer_id(request_id: str) -> str:
    return f"answer:{request_id}"


def input_id_of(body: Json) -> str:
    """Return the id by which the host applies an input once. Clients number requests from one in each process."""
    match body:
        case {"type": "user", "uuid": str(identity)} if identity:
            return identity
        case {"type": "control_response", "response": {"request_id": str(identity)}} if identity:
            return answer_id(identity)
    return control.new_uuid()


_CHECKS = 60  # of the connection while a request waits for its answer


class PendingRequests:
    """Waits for answers. Control requests outlive a connection; pages of events and names of files fail."""

    def __init__(self) -> None:
        self._controls: dict[str, asyncio.Future[Answer]] = {}
        self._numbered: dict[int, asyncio.Future[Json]] = {}
        self._numbers = itertools.count(1)

    async def numbered(self, send: Callable[[int], Awaitable[None]]) -> Json:
        """Send a question with its number, and return the answer. Raises ConnectionLost, TimeoutError."""
        number = next(self._numbers)
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._numbered[number] = answer
        try:
            await send(number)
            async with asyncio.timeout(CLIENT_DEADLINE_S):
                return await answer
        finally:
            del self._numbered[number]

    def take_numbered(self, number: int, body: Json) -> None:
        answer = self._numbered.get(number)
        if answer is not None and not answer.done():
            answer.set_result(body)

    async def answer_to(self, request: control.Request[P, A], deadline_s: float, connected: Callable[[], bool]) -> A:
        """Wait for the answer. Only seconds while `connected` count. Raises RequestFailed, ConnectionLost."""
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._controls[request.id] = waiting
        left, step = deadline_s, deadline_s / _CHECKS
        try:
            while left > 0:
                await asyncio.wait([waiting], timeout=step)
                if waiting.done():
                    return request.kind.read_answer(waiting.result())
                left = left - step if connected() else deadline_s
            raise control.RequestFailed(f"no answer to {request.kind.name} within {deadline_s:g} s")
        finally:
            self._controls.pop(request.id, None)

    @property
    def waiting(self) -> list[str]:
        return list(self._controls)

    def take_answer(self, line: ControlResponse) -> bool:
        """Hand an answer to the control request that waits for it. Return False if no request does."""
        if line.request_id not in self._controls:
            return False
        answer = control.answer_in(line)
        if isinstance(answer, Failure):
            answer = Failure(answer.request_id, neutralise(answer.error), answer.code)
        self.settle(answer)
        return True

    def settle(self, answer: Answer) -> None:
        waiting = self._controls.get(answer.request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def connection_lost(self) -> None:
        for answer in self._numbered.values():
            if not answer.done():
                answer.set_exception(ConnectionLost("the connection was lost", do="Try again after the reconnect."))

    def fail(self, why: str) -> None:
        for waiting in self._controls.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost(why))
        self._controls.clear()
        self.connection_lost()
