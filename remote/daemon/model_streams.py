"""Model calls over the driver's link: the worker's end of the HTTP-shaped streams.

A call outlives the connection it was made on. When the link is lost it waits; on the next driver's link it is opened again
under the same id with the number of response bytes it has, and goes on where it was. Only the client (a ccb on a laptop) that
asked has what came meanwhile. While that one is there it reads the call to its end, also when another client drives by then;
when it is lost it is waited for: the other one would have to ask, and pay, a second time.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Callable, Union

from ccb.tunnel.wire import CHUNK, INITIAL_CREDIT, Cancel, Credit, Data, End, Head, Open

from ..ports import ModelLinkError

log = logging.getLogger(__name__)

CLIENT_WAIT_S = 5.0
"""How long the client that reads a call is waited for when its link is lost and another client drives."""

_GRANT_AT = 64 * 1024
Outgoing = Union[Open, Data, End, Credit, Cancel]


class ModelLink:
    """The link of one driver, as calls use it. `urgent` frames overtake everything, `bulk` ones wait until there is room.
    `client` names the laptop's ccb, which keeps what it has read of a call from one connection to the next."""

    def __init__(
        self, epoch: int, client: str, nonce: str, urgent: Callable[[Outgoing], None], bulk: Callable[[Outgoing], Any]
    ) -> None:
        self.epoch = epoch
        self.client = client
        self.nonce = nonce
        self.urgent = urgent
        self.bulk = bulk


class _Call:
    """One model call and its response."""

    def __init__(self, call_id: str, method: str, path: str, headers: Mapping[str, str], body: Sequence[bytes]) -> None:
        self.id = call_id
        self.method = method
        self.path = path
        self.request_headers = dict(headers)
        self.request = body
        self.size = sum(map(len, body))
        self.stream = 0
        self.client = ""  # who reads it; "" when that is nobody, or one that will not be back
        self.lost_at = 0.0  # monotonic
        self.timer: asyncio.TimerHandle | None = None
        self.line: ModelLink | None = None
        self.pump: asyncio.Task[None] | None = None
        self.credit = 0
        self.credit_news = asyncio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_head = asyncio.Event()
        self.received = 0
        self.window = 0  # bytes the laptop may still send
        self.chunks: deque[bytes] = deque()
        self.news = asyncio.Event()
        self.complete = False
        self.error = ""
        self.ungranted = 0

    def fail(self, reason: str) -> None:
        self.error = self.error or reason
        self.complete = True
        self.has_head.set()
        self.news.set()


class Response:
    """The response of a call, as ModelResponse of the ports has it."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self.status = call.status
        self.headers: Mapping[str, str] = call.headers

    async def body(self) -> AsyncIterator[bytes]:
        call = self._call
        while True:
            while call.chunks:
                chunk = call.chunks.popleft()
                call.ungranted += len(chunk)
                if call.ungranted >= _GRANT_AT and call.line is not None:
                    call.line.urgent(Credit(call.line.epoch, call.stream, call.ungranted))
                    call.window += call.ungranted
                    call.ungranted = 0
                yield chunk
            if call.complete:
                if call.error:
                    raise ModelLinkError(call.error)
                return
            call.news.clear()
            await call.news.wait()


class _Request:
    """The context of one call."""

    def __init__(self, calls: Calls, call: _Call) -> None:
        self._calls = calls
        self._call = call

    async def __aenter__(self) -> Response:
        call = self._call
        self._calls.begin(call)
        try:
            await call.has_head.wait()
            if not call.status:
                raise ModelLinkError(call.error)
        except BaseException:
            await self._calls.end(call)
            raise
        return Response(call)

    async def __aexit__(self, *_: object) -> None:
        await self._calls.end(self._call)


class Calls:
    """ModelTransport of the ports."""

    def __init__(self) -> None:
        self._line: ModelLink | None = None
        self._up_since: float | None = None
        self._open: dict[str, _Call] = {}
        self._by_stream: dict[int, _Call] = {}
        self._next_stream = 0

    def request(
        self, call_id: str, method: str, path: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> _Request:
        """See ModelTransport."""
        return _Request(self, _Call(call_id, method, path, headers, body))

    def link_up_since(self) -> float | None:
        """The monotonic second since which a driver is attached; None while there is none."""
        return self._up_since

    def attach(self, line: ModelLink) -> None:
        """A driver is there: calls that wait, and those of an earlier connection of the same client, are opened on its link."""
        self._line = line
        self._up_since = time.monotonic()
        for call in self._open.values():
            if call.line is None:
                self._resume(call)
        self.back(line)

    def back(self, line: ModelLink) -> None:
        """A client has a new link, also one that does not drive any more: what it reads goes on there."""
        for call in self._open.values():
            if call.client == line.client and call.line is not line and not call.complete:
                self._leave_line(call)
                self._start(call, line)

    def detach(self, line: ModelLink) -> None:
        """A link is gone: its calls wait for their client, or go over to the driver of now."""
        if self._line is line:
            self._line = None
            self._up_since = None
        for call in self._open.values():
            if call.line is line:
                self._leave_line(call)
                call.lost_at = time.monotonic()
                self._resume(call)

    def forget(self, line: ModelLink) -> None:
        """The client of a link will not be back: when that is gone, its calls wait for nobody."""
        for call in self._open.values():
            if call.line is line:
                call.client = ""

    def withdraw(self, line: ModelLink) -> None:
        """Read nothing more over a link that drives no more: its client does not move."""
        for call in self._open.values():
            if call.line is line and not call.complete:
                line.urgent(Cancel(line.epoch, call.stream, "another client reads this now"))
        self.forget(line)
        self.detach(line)

    def uses(self, line: ModelLink) -> bool:
        """Whether a call is read over that link."""
        return any(call.line is line and not call.complete for call in self._open.values())

    def _resume(self, call: _Call) -> None:
        """Open a call that has no link on the driver's, at once or when its own client has been waited for."""
        line = self._line
        if line is None or call.complete or call.line is not None or self._open.get(call.id) is not call:
            return
        left = call.lost_at + CLIENT_WAIT_S - time.monotonic()
        if call.client in ("", line.client) or left <= 0:
            self._start(call, line)
        else:
            if call.timer is not None:
                call.timer.cancel()
            call.timer = asyncio.get_running_loop().call_later(left, self._resume, call)

    def _leave_line(self, call: _Call) -> None:
        self._by_stream.pop(call.stream, None)
        call.line = None
        call.stream = 0
        if call.pump is not None:
            call.pump.cancel()

    def begin(self, call: _Call) -> None:
        self._open[call.id] = call
        if self._line is not None:
            self._start(call, self._line)

    async def end(self, call: _Call) -> None:
        """Forget a call; one that is not complete is cancelled on the laptop too."""
        self._open.pop(call.id, None)
        self._by_stream.pop(call.stream, None)
        if call.timer is not None:
            call.timer.cancel()
        if call.line is not None:
            if not call.complete or call.error:
                call.line.urgent(Cancel(call.line.epoch, call.stream, "the worker left"))
            elif call.ungranted > 0:
                call.line.urgent(Credit(call.line.epoch, call.stream, call.ungranted))
            call.line = None
        if call.pump is not None:
            call.pump.cancel()
            await asyncio.gather(call.pump, return_exceptions=True)

    def _start(self, call: _Call, line: ModelLink) -> None:
        self._next_stream += 1
        call.stream = self._next_stream
        call.line = line
        call.client = line.client
        if call.timer is not None:
            call.timer.cancel()
        call.credit = call.window = INITIAL_CREDIT
        call.ungranted = -sum(map(len, call.chunks))  # what lies here unread is not on this link's account
        self._by_stream[call.stream] = call
        opened = Open(
            line.epoch,
            call.stream,
            call.id,
            line.nonce,
            call.method,
            call.path,
            call.request_headers,
            call.size,
            call.received,
        )
        line.urgent(opened)
        call.pump = asyncio.get_running_loop().create_task(self._send_body(call, line, call.stream))

    async def _send_body(self, call: _Call, line: ModelLink, stream: int) -> None:
        offset = 0
        for piece in call.request:
            view = memoryview(piece)
            while view:
                while call.credit <= 0:
                    call.credit_news.clear()
                    await call.credit_news.wait()
                count = min(CHUNK, len(view), call.credit)
                call.credit -= count
                await line.bulk(Data(line.epoch, stream, offset, base64.b64encode(view[:count]).decode("ascii")))
                offset += count
                view = view[count:]
        await line.bulk(End(line.epoch, stream))

    def handle(self, line: ModelLink, frame: Head | Data | End | Credit) -> None:
        """A frame that came over `line`. One for a stream that is not open there is late and dropped."""
        call = self._by_stream.get(frame.stream)
        if call is None or call.line is not line:
            return
        if isinstance(frame, Head):
            if not call.has_head.is_set():
                call.status = frame.status
                call.headers = {name.lower(): value for name, value in frame.headers.items()}
                call.has_head.set()
            elif not call.received and frame.status != call.status:  # another laptop has asked again
                call.fail("the answer to the repeated call is another one: %d, not %d" % (frame.status, call.status))
        elif isinstance(frame, Data):
            self._take(call, frame)
        elif isinstance(frame, Credit):
            call.credit += frame.bytes
            call.credit_news.set()
        elif frame.error:
            call.fail(frame.error)
        else:
            call.complete = True
            call.has_head.set()
            call.news.set()

    def _take(self, call: _Call, frame: Data) -> None:
        try:
            chunk = base64.b64decode(frame.b64, validate=True)
        except (binascii.Error, ValueError):
            call.fail("the laptop sent data that is no base64")
            return
        if frame.off != call.received:
            call.fail("the laptop sent byte %d of the response, expected %d" % (frame.off, call.received))
            return
        if len(chunk) > call.window:
            call.fail("the laptop sent more than it was granted")
            return
        call.window -= len(chunk)
        call.received += len(chunk)
        call.chunks.append(chunk)
        call.news.set()
