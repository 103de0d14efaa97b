"""Model calls over the driver's link. A call outlives its connection: it is opened again under the same id on a new
link, with the number of bytes received so far. Only the client that made the upstream request has what the provider
sent meanwhile, so it reads on while another one drives, and is waited for: any other would have to pay again."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import time
import zlib
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Callable, Union

from ccb.tunnel.wire.body_deltas import OutgoingBody, SentBodies, chunks, unpack
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import INITIAL_CREDIT, CallData, CallEnd, CallHead, CallOpen, Cancel, Credit, Packed

from ..model.model_request import ModelLinkError

log = logging.getLogger(__name__)

CLIENT_WAIT_S = 5.0  # seconds that a call waits for the client that reads it, if it is lost and another one drives

_GRANT_AT = 64 * 1024
_AT_ONCE = 8 * 1024  # bytes of a body that go before the events that wait to be sent
Outgoing = Union[CallOpen, CallData, CallEnd, Credit, Cancel]


@dataclass(frozen=True)
class StreamLink:
    """The link of one `client` for model calls. `urgent` sends a frame before all others, `bulk` when there is room.
    `deltas`: it makes a body of an earlier one and what is new; `primed`: that may be a dictionary."""

    epoch: int
    client: str
    nonce: str
    urgent: Callable[[Outgoing], None]
    bulk: Callable[[Outgoing], Any]
    deltas: bool = False
    primed: bool = False

    @property
    def name(self) -> str:
        return self.client or str(self.epoch)  # a client without a name is another one on each connection

    async def send(self, frame: Outgoing, *, first: bool) -> None:
        if first:
            self.urgent(frame)
        else:
            await self.bulk(frame)


class Response:
    """What has arrived for a call. `window`: bytes the laptop may send; `ungranted`: read since the last credit."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.has_head = asyncio.Event()
        self.chunks: deque[bytes] = deque()
        self.received = 0
        self.window = 0
        self.ungranted = 0
        self.news = asyncio.Event()
        self.complete = False
        self.error = ""

    def end(self, error: str = "") -> None:
        """End the response. Only the first error counts."""
        self.error = self.error or error
        self.complete = True
        self.has_head.set()
        self.news.set()

    def open_window(self) -> None:
        self.window = INITIAL_CREDIT
        self.ungranted = -sum(map(len, self.chunks))

    def take_head(self, frame: CallHead) -> None:
        if not self.has_head.is_set():
            self.status = frame.status
            self.headers = {name.lower(): value for name, value in frame.headers.items()}
            self.has_head.set()
        elif not self.received and frame.status != self.status:  # another laptop has made the upstream request again
            self.end("the answer to the repeated call is another one: %d, not %d" % (frame.status, self.status))

    def take_data(self, frame: CallData) -> None:
        try:
            chunk = base64.b64decode(frame.b64, validate=True)
            chunk = unpack(chunk) if isinstance(frame, Packed) else chunk
        except (binascii.Error, ValueError, zlib.error):
            self.end("the laptop sent data that cannot be decoded")
            return
        if frame.off != self.received:
            self.end("the laptop sent byte %d of the response, expected %d" % (frame.off, self.received))
            return
        if len(chunk) > self.window:
            self.end("the laptop sent more than it was granted")
            return
        self.window -= len(chunk)
        self.received += len(chunk)
        self.chunks.append(chunk)
        self.news.set()

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the chunks of the body as they arrive. Raise ModelLinkError when the response breaks off."""
        while True:
            while self.chunks:
                chunk = self.chunks.popleft()
                self.ungranted += len(chunk)
                link = self._call.link
                if self.ungranted >= _GRANT_AT and link is not None:
                    link.urgent(Credit(link.epoch, self._call.stream, self.ungranted))
                    self.window += self.ungranted
                    self.ungranted = 0
                yield chunk
            if self.complete:
                if self.error:
                    raise ModelLinkError(self.error)
                return
            self.news.clear()
            await self.news.wait()


class _Call:
    """A model call, and the stream that carries it now. The laptop resumes the response to one with the same `id`."""

    def __init__(self, call_id: str, method: str, path: str, headers: dict[str, str], body: Sequence[bytes]) -> None:
        self.id = call_id
        self.request = method, path, headers
        self.body = body
        self.response = Response(self)
        self.link: StreamLink | None = None
        self.stream = 0
        self.client = ""  # the name of the client that reads it; "" when none does, or it will not come back
        self.lost_at = 0.0  # monotonic
        self.pump: asyncio.Task[None] | None = None  # sends the body of the request
        self.outgoing: OutgoingBody | None = None  # how it is sent to a laptop that takes deltas
        self.whole = False  # the laptop cannot make the body of parts
        self.sent_at = 0.0  # monotonic: when the last piece of the body went out
        self.credit = 0
        self.credit_news = asyncio.Event()


class ModelStreams:
    def __init__(self) -> None:
        self._driver_link: StreamLink | None = None
        self._up_since: float | None = None
        self._open: dict[str, _Call] = {}
        self._by_stream: dict[int, _Call] = {}
        self._streams = count(1)
        self._sent = SentBodies()

    @asynccontextmanager
    async def request(
        self, call_id: str, method: str, path: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> AsyncIterator[Response]:
        """See ModelTransport. Entering the context waits for the head of the response."""
        call = _Call(call_id, method, path, dict(headers), body)
        self._open[call_id] = call
        if self._driver_link is not None:  # else it waits for a driver
            self._start(call, self._driver_link)
        try:
            await call.response.has_head.wait()
            if not call.response.status:
                raise ModelLinkError(call.response.error)
            yield call.response
        finally:
            await self._end(call)

    def link_up_since(self) -> float | None:
        return self._up_since

    def resume(self, call_id: str) -> float:
        call = self._open.get(call_id)
        if call is None:
            return 0.0
        link = call.link
        if link is not None and not call.response.complete and call.pump is not None and call.pump.done():
            self._start(call, link)
        return call.sent_at

    def attach(self, link: StreamLink) -> None:
        """Open the waiting calls on the link of a new driver, and those that it made on earlier ones."""
        self._driver_link = link
        self._up_since = time.monotonic()
        for call in self._open.values():
            if call.link is None:
                self._resume(call)
        self.back(link)

    def back(self, link: StreamLink) -> None:
        """A client has a new link, as driver or viewer. The calls that it reads continue there."""
        for call in self._open.values():
            if call.client == link.client and call.link is not link and not call.response.complete:
                self._start(call, link)

    def detach(self, link: StreamLink) -> None:
        """A link is lost. Its calls wait for their client, or move to the present driver."""
        if self._driver_link is link:
            self._driver_link = None
            self._up_since = None
        for call in self._open.values():
            if call.link is link:
                self._leave_link(call)
                call.lost_at = time.monotonic()
                self._resume(call)

    def forget(self, link: StreamLink) -> None:
        """The client of a link will not come back: its calls do not wait for it."""
        for call in self._open.values():
            if call.link is link:
                call.client = ""

    async def _end(self, call: _Call) -> None:
        self._open.pop(call.id, None)
        self._by_stream.pop(call.stream, None)
        if call.link is not None:
            response = call.response
            if not response.complete or response.error:
                call.link.urgent(Cancel(call.link.epoch, call.stream, "the worker left"))
            elif response.ungranted > 0:
                call.link.urgent(Credit(call.link.epoch, call.stream, response.ungranted))
            call.link = None
        if call.pump is not None:
            call.pump.cancel()
            await asyncio.gather(call.pump, return_exceptions=True)

    def handle(self, link: StreamLink, frame: CallHead | CallData | CallEnd | Credit) -> None:
        """Handle a frame that came over `link`. Drop a late frame, whose stream is no longer open there."""
        call = self._by_stream.get(frame.stream)
        if call is None or call.link is not link:
            return
        if isinstance(frame, CallHead):
            if call.outgoing is not None:
                self._sent.arrived(link.name, call.outgoing, call.body)
            call.response.take_head(frame)
        elif isinstance(frame, CallData):
            call.response.take_data(frame)
        elif isinstance(frame, Credit):
            call.credit += frame.bytes
            call.credit_news.set()
        elif frame.whole and not call.whole:  # the laptop cannot make the body of parts
            if call.outgoing is not None:
                self._sent.lost(link.name, call.outgoing)
            call.whole = True
            self._start(call, link)
        else:
            call.response.end(frame.error)

    def _resume(self, call: _Call) -> None:
        """Open a call that has no link on the driver's link, after it has waited long enough for its own client."""
        link = self._driver_link
        if link is None or call.response.complete or call.link or self._open.get(call.id) is not call:
            return
        left = call.lost_at + CLIENT_WAIT_S - time.monotonic()
        if call.client in ("", link.client) or left <= 0:
            self._start(call, link)
        else:
            asyncio.get_running_loop().call_later(left, self._resume, call)

    def _leave_link(self, call: _Call) -> None:
        self._by_stream.pop(call.stream, None)
        call.link = None
        call.stream = 0
        if call.pump is not None:
            call.pump.cancel()

    def _start(self, call: _Call, link: StreamLink) -> None:
        self._leave_link(call)
        call.stream = next(self._streams)
        call.link = link
        call.client = link.client
        call.credit = INITIAL_CREDIT
        call.response.open_window()
        self._by_stream[call.stream] = call
        call.pump = asyncio.get_running_loop().create_task(self._send(call, link, call.stream))

    async def _send(self, call: _Call, link: StreamLink, stream: int) -> None:
        """Open a call, and send its body: only what is new in it, if the laptop has an earlier one."""
        whole = sum(map(len, call.body))
        body = OutgoingBody("", "", [], 0, False, call.body)
        if link.deltas:
            body = await self._sent.outgoing(link.name, call.body, whole=call.whole, primed=link.primed)
        call.outgoing = body
        opened = CallOpen(
            link.epoch, stream, call.id, link.nonce, *call.request, whole, call.response.received,
            body.digest, body.base, body.parts, body.sent, body.deflated, body.primed,
        )  # fmt: skip
        link.urgent(opened)
        # the model answers sooner if the events of the last call do not come before a short body
        first = (body.sent if body.parts else whole) <= _AT_ONCE
        offset = 0
        for piece in chunks(body.pieces):
            view = memoryview(piece)
            while view:
                while call.credit <= 0:
                    call.credit_news.clear()
                    await call.credit_news.wait()
                count = min(len(view), call.credit)
                call.credit -= count
                sent = base64.b64encode(view[:count]).decode("ascii")
                await link.send(CallData(link.epoch, stream, offset, sent), first=first)
                offset += count
                view = view[count:]
                call.sent_at = time.monotonic()
        await link.send(CallEnd(link.epoch, stream), first=first)
