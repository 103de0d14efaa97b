"""Keeps the answer to one call until the worker has it, and finds calls by their ids.

One reader at a time takes bytes out by offset and acknowledges them. Bytes that are not acknowledged stay, so after a
lost connection another reader can go on at any of them. When the buffer is full the provider waits, whether or not
there is a reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ..providers.api_errors import Refusal
from ..providers.provider import ProviderError

BUFFER = 4 * 1024 * 1024  # bytes of a response that are kept ahead of its reader


class Superseded(Exception):
    """Another reader asked for the same call; this one gets no more."""


class ProxiedCall:
    """The response of one call. One task fills it; at most one `CallReader` reads it. `uploaded`: all of the request is
    here, and it must not be sent again. `in_one_piece`: the provider makes the whole answer, and wants its price, also
    if nobody waits for it. `refusal` is why the proxy itself answers, None for an answer of the provider.
    `status` is 0 until the head of the response is here; `headers` are what the worker may see of it. `over`: nothing
    more will arrive; `complete`: all of it has, else `failure` is why not."""

    def __init__(self, call_id: str, refusal: Refusal | None = None) -> None:
        self.id = call_id
        self.refusal = refusal
        self.uploaded = self.in_one_piece = False
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.over = self.complete = False
        self.failure: Refusal | ProviderError | None = None
        self.reader: CallReader | None = None
        self._limit = BUFFER
        self._bytes = bytearray()  # those that are not acknowledged
        self._base = 0  # the offset of the first of them
        self._news = asyncio.Event()  # for the reader
        self._room = asyncio.Event()  # for the provider

    @property
    def held(self) -> int:
        return len(self._bytes)

    @property
    def end(self) -> int:
        """The offset of the next byte to arrive."""
        return self._base + len(self._bytes)

    def limit(self, size: int) -> None:
        """Set how many bytes are kept ahead of the reader before the provider has to wait."""
        self._limit = size
        self._room.set()

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        self._news.set()

    def put(self, chunk: bytes) -> bool:
        """Append bytes of the body, and return whether there is room for more. A call that is over takes none."""
        if chunk and not self.over:
            self._bytes += chunk
            self._news.set()
        return self.held < self._limit

    async def news(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def room(self) -> None:
        while self.held >= self._limit:
            self._room.clear()
            await self._room.wait()

    def finish(self) -> None:
        self.over = self.complete = True
        self._news.set()

    def fail(self, error: Refusal | ProviderError) -> None:
        """End the call without a complete response. Bytes that have arrived can still be read."""
        if not self.over:
            self.failure, self.over = error, True
        self._news.set()

    def revoke(self, refusal: Refusal) -> None:
        """End the call at once: not even bytes that have arrived can be read any more."""
        self.failure, self.over, self.complete = refusal, True, False
        self.acknowledge(self.end)
        self._news.set()

    def attach(self, offset: int) -> CallReader:
        """Return a reader that starts at byte `offset` and acknowledges everything before it. An earlier reader gets
        `Superseded`. Raise Refusal (410) if the buffer does not reach from or to `offset`."""
        if not self._base <= offset <= self.end:
            raise Refusal(410, f"byte {offset} of this response is not held any more")
        self.reader = CallReader(self, offset)
        self._news.set()
        self.acknowledge(offset)
        return self.reader

    def bytes_at(self, offset: int, limit: int) -> bytes:
        start = offset - self._base
        return bytes(self._bytes[start : start + limit])

    def acknowledge(self, offset: int) -> None:
        if offset > self._base:
            del self._bytes[: offset - self._base]
            self._base = offset
            self._room.set()


class CallReader:
    """Reads one call. `offset` is the position of the next byte in the response."""

    def __init__(self, call: ProxiedCall, offset: int) -> None:
        self.call = call
        self.offset = offset

    @property
    def current(self) -> bool:
        """Whether no later reader has taken over."""
        return self.call.reader is self

    @property
    def status(self) -> int:
        return self.call.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self.call.headers

    async def head(self) -> None:
        """Wait for the response head. Raise Refusal or ProviderError if the call fails before it arrives."""
        call = self.call
        while not call.status:
            if call.failure is not None:
                raise call.failure
            if not self.current:
                raise Superseded
            await call.news()

    async def read(self, limit: int = 64 * 1024) -> bytes:
        """Return the next bytes, at most `limit`; b"" at the end of the response. Raise Superseded, or when everything
        that arrived has been read and the call failed, Refusal or ProviderError."""
        call = self.call
        while self.current:
            if piece := call.bytes_at(self.offset, limit):
                self.offset += len(piece)
                return piece
            if call.over:
                if call.failure is not None:
                    raise call.failure
                return b""
            await call.news()
        raise Superseded

    def ack(self, offset: int) -> None:
        """Release the bytes before `offset`: the worker has them."""
        if self.current:
            self.call.acknowledge(min(offset, self.offset))


HOLD = 600.0  # seconds a call without a reader is kept. Only time with a link counts: else nobody can ask for it

READ_AHEAD = 64 * 1024 * 1024  # bytes that all calls without a reader may hold, each an equal share

MAX_HELD, MAX_HELD_BYTES = 256, 8 * 1024 * 1024
"""How many finished calls without a reader are kept, and their bytes. Beyond that the oldest is forgotten."""


class CallRegistry:
    """Finds calls by id. An id stands for one call and one outcome until it is forgotten. While the link is down
    nothing is forgotten: a response that was paid for is there when the worker comes back, however late. `abort` is
    called for every call that is forgotten; it ends one that is under way."""

    def __init__(self, abort: Callable[[ProxiedCall], None], hold: float = HOLD) -> None:
        self._abort = abort
        self._hold = hold
        self.calls: dict[str, ProxiedCall] = {}
        self._unread: dict[ProxiedCall, asyncio.TimerHandle | None] = {}  # with the clocks that run
        self._link_down = False

    def reader_came(self, call: ProxiedCall) -> None:
        """Stop the clock of `call`: it has a reader again."""
        self._stop_clock(call)
        self._unread.pop(call, None)
        call.limit(BUFFER)
        self._share()

    def reader_left(self, call: ProxiedCall) -> None:
        """Keep `call`, which has no reader now, for HOLD seconds, counted while the link is up."""
        if self.calls.get(call.id) is not call:
            return
        self._unread[call] = None
        self._share()
        if self._link_down:
            return
        self._start_clock(call)
        kept = [call for call in self._unread if call.over]
        size = sum(call.held for call in kept)
        while kept and (len(kept) > MAX_HELD or size > MAX_HELD_BYTES):
            oldest = kept.pop(0)
            size -= oldest.held
            self.drop(oldest)

    def link_down(self) -> None:
        """Stop the clocks: no worker is connected."""
        self._link_down = True
        for call in self._unread:
            self._stop_clock(call)

    def link_up(self) -> None:
        """Start the clocks: a worker is connected and can ask for its calls."""
        self._link_down = False
        for call in self._unread:
            self._start_clock(call)

    def drop(self, call: ProxiedCall) -> None:
        if self.calls.get(call.id) is call:
            self._stop_clock(call)
            self._unread.pop(call, None)
            del self.calls[call.id]
            self._abort(call)

    def close(self) -> None:
        for call in list(self.calls.values()):
            self.drop(call)

    def _share(self) -> None:
        for call in self._unread:
            call.limit(max(BUFFER, READ_AHEAD // len(self._unread)))

    def _start_clock(self, call: ProxiedCall) -> None:
        self._stop_clock(call)
        self._unread[call] = asyncio.get_running_loop().call_later(self._hold, self.drop, call)

    def _stop_clock(self, call: ProxiedCall) -> None:
        if handle := self._unread.get(call):
            handle.cancel()
            self._unread[call] = None


def own_answer(refusal: Refusal) -> CallReader:
    body = refusal.body()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    call = ProxiedCall("", refusal)
    call.start(refusal.status, headers)
    call.put(body)
    call.finish()
    return call.attach(0)
