"""Inputs on their way to the host: kept until the host has them in its journal, and sent again on every new
connection."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire import FrameError, Input, Stop, encode_frame
from ccb.tunnel.wire.requests import new_uuid

from .client import Json

MAX_INPUTS = 256
"""Inputs that may wait for confirmation. While the outbox is full, senders wait."""

MAX_BYTES = 64 * 1024 * 1024
"""Bytes of all waiting inputs. A single larger input is accepted when nothing else waits."""


class Outbox:
    """Keeps inputs in the order of `put`. One task at a time takes the unconfirmed ones with `next`, starting again
    from the first after each `rewind`. A request to stop the session is kept too: with `finish` it goes after all
    inputs, otherwise before them."""

    def __init__(self) -> None:
        self._stop: Stop | None = None
        self._stop_sent = False
        self._inputs: OrderedDict[str, tuple[Json, int]] = OrderedDict()
        self._bytes = 0
        self._sent: set[str] = set()
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._inputs)

    async def put(self, input_id: str, body: Json) -> None:
        """Add an input; waits while the outbox is full. An input whose id is already waiting is ignored.

        Raises UsageError if the input is too large to be sent.
        """
        try:
            size = sum(map(len, encode_frame(Input(0, input_id, body))))
        except FrameError as error:
            raise UsageError(
                "the message is too large to be sent", evidence=error.reason, do="Send a shorter message."
            ) from None
        while self._inputs and (len(self._inputs) >= MAX_INPUTS or self._bytes + size > MAX_BYTES):
            self._room.clear()
            await self._room.wait()
        if input_id not in self._inputs:
            self._inputs[input_id] = (body, size)
            self._bytes += size
            self._news.set()

    def confirm(self, input_id: str) -> None:
        """Drop an input: the host has it in its journal."""
        found = self._inputs.pop(input_id, None)
        if found is not None:
            self._bytes -= found[1]
            self._sent.discard(input_id)
            self._room.set()

    async def confirmed(self) -> None:
        """Wait until every input is confirmed."""
        while self._inputs:
            self._room.clear()
            await self._room.wait()

    async def delivered(self, input_id: str) -> None:
        """Wait until an input is confirmed."""
        while input_id in self._inputs:
            self._room.clear()
            await self._room.wait()

    def withdraw(self, input_id: str) -> bool:
        """Drop an input that is no longer wanted. Return whether it was unconfirmed. The host may have received it
        anyway."""
        unconfirmed = input_id in self._inputs
        self.confirm(input_id)
        return unconfirmed

    def rewind(self) -> None:
        """Send every unconfirmed input again, in order: there is a new connection."""
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


def new_id() -> str:
    return new_uuid()


def answer_id(request_id: str) -> str:
    """Return the id of the input that answers a request."""
    return f"answer:{request_id}"


def input_id_of(body: Json) -> str:
    """Return the id that makes the host apply an input only once. It is the public object's own id where that is
    unique. Clients number their control requests from one in each process, so a control request gets a new id."""
    match body:
        case {"type": "user", "uuid": str(identity)} if identity:
            return identity
        case {"type": "control_response", "response": {"request_id": str(identity)}} if identity:
            return answer_id(identity)
    return new_id()
