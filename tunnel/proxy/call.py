"""One model call: the part of the provider's response that the worker has not acknowledged yet.

A task of the auth proxy appends what the provider sends. One reader at a time takes bytes out by offset and
acknowledges them. Bytes that are not acknowledged stay, so after a lost connection another reader can go on at any of
them. When the buffer is full the provider waits, whether or not there is a reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum

from ..wire.dataclass import dataclass
from .guards.refusal import Refusal
from .providers.provider import ProviderError

BUFFER = 4 * 1024 * 1024
"""Bytes of a response that are kept ahead of its reader."""


class CallState(Enum):
    """How far a call is."""

    WAITING = "waiting for the response head"
    STREAMING = "response body arrives"
    DONE = "response complete"
    FAILED = "over without a complete response"


class Superseded(Exception):
    """Another reader asked for the same call; this one gets no more."""


@dataclass(frozen=True)
class ResponseHead:
    """What the worker may see of a response head. Names are in lower case."""

    status: int
    headers: Mapping[str, str]


class Call:
    """The response of one call. One task fills it; at most one `Reader` reads it.

    `uploaded` says that the provider has the whole request: from then on the call must not be sent again.
    """

    def __init__(self, call_id: str, limit: int = BUFFER) -> None:
        self.id = call_id
        self.state = CallState.WAITING
        self.uploaded = False
        self._limit = limit
        self._head: ResponseHead | None = None
        self._failure: Refusal | ProviderError | None = None
        self._buffer = bytearray()
        self._base = 0
        self._reader: Reader | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def limit(self) -> int:
        """Bytes to keep ahead of the reader before the provider has to wait."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self._room.set()

    @property
    def over(self) -> bool:
        """Whether nothing more will arrive."""
        return self.state in (CallState.DONE, CallState.FAILED)

    @property
    def held(self) -> int:
        """Bytes kept in memory."""
        return len(self._buffer)

    @property
    def failure(self) -> Refusal | ProviderError | None:
        """Why the call failed, or None."""
        return self._failure

    def start(self, head: ResponseHead) -> None:
        """Note the response head."""
        self._head = head
        self.state = CallState.STREAMING
        self._news.set()

    async def put(self, chunk: bytes) -> None:
        """Append bytes of the body. Wait while the buffer is full. A call that is over takes none."""
        while len(self._buffer) >= self._limit:
            self._room.clear()
            await self._room.wait()
        if self.over:
            return
        self._buffer += chunk
        self._news.set()

    def finish(self) -> None:
        """Note that the body is complete."""
        self.state = CallState.DONE
        self._news.set()

    def fail(self, error: Refusal | ProviderError) -> None:
        """End the call without a complete response. Bytes that have arrived can still be read."""
        if not self.over:
            self._failure = error
            self.state = CallState.FAILED
        self._news.set()

    def revoke(self, refusal: Refusal) -> None:
        """End the call at once: not even bytes that have arrived can be read any more."""
        self._failure, self.state = refusal, CallState.FAILED
        self._base += len(self._buffer)
        self._buffer.clear()
        self._news.set()
        self._room.set()

    def attach(self, offset: int) -> Reader:
        """Return a reader that starts at byte `offset` and acknowledges everything before it.

        An earlier reader gets `Superseded`. Raise Refusal (410) if the buffer does not reach from or to `offset`.
        """
        if not self._base <= offset <= self._base + len(self._buffer):
            raise Refusal(410, f"byte {offset} of this response is not held any more")
        reader = Reader(self, offset)
        self._reader = reader
        self._news.set()
        reader.ack(offset)
        return reader

    def _trim(self, reader: Reader, offset: int) -> None:
        if reader is self._reader and offset > self._base:
            count = min(offset - self._base, len(self._buffer))
            del self._buffer[:count]
            self._base += count
            self._room.set()


class Reader:
    """Reads one call. `offset` is the position of the next byte in the response."""

    def __init__(self, call: Call, offset: int) -> None:
        self._call = call
        self.offset = offset

    @property
    def current(self) -> bool:
        """Whether no later reader has taken over."""
        return self._call._reader is self

    async def head(self) -> ResponseHead:
        """Wait for the response head. Raise Refusal or ProviderError if the call fails before it arrives."""
        call = self._call
        while call._head is None:
            if call._failure is not None:
                raise call._failure
            await self._wait()
        return call._head

    async def read(self, limit: int) -> bytes:
        """Return the next bytes, at most `limit`; b"" at the end of the response.

        Raise Superseded, or when everything that arrived has been read and the call failed, Refusal or ProviderError.
        """
        call = self._call
        while True:
            self._check()
            start = self.offset - call._base
            if 0 <= start < len(call._buffer):
                chunk = bytes(call._buffer[start : start + limit])
                self.offset += len(chunk)
                return chunk
            if call.state is CallState.DONE:
                return b""
            if call._failure is not None:
                raise call._failure
            await self._wait()

    def ack(self, offset: int) -> None:
        """Release the bytes before `offset`: the worker has them."""
        self._call._trim(self, min(offset, self.offset))

    def _check(self) -> None:
        if not self.current:
            raise Superseded

    async def _wait(self) -> None:
        self._check()
        self._call._news.clear()
        await self._call._news.wait()
        self._check()
