"""The front for frames of the link: HTTP-shaped streams with credit in both directions.

One `LinkFront` serves one connection. When the connection ends its calls go on in the auth proxy, and the next
connection may ask for them by their ids."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Self

from ..errors import CcbError
from ..providers.api_errors import Refusal
from ..providers.provider import ProviderError
from ..secret import Secret
from ..tasks import cancelled
from ..wire.body_deltas import MAX_PARTS, pack
from ..wire.frames import CHUNK, INITIAL_CREDIT, CallData, CallEnd, CallHead, CallOpen, Cancel, Credit, Frame, Packed
from .auth_proxy import AuthProxy, BodyLost
from .body_store import CannotRebuild
from .policy import NonceGuard, RequestHead
from .proxied_call import CallReader, Superseded

log = logging.getLogger(__name__)

MAX_STREAMS = 128  # how many streams one connection may have. A stream counts until its last bytes are acknowledged

_MAX_ANSWERS = 1024
_MAX_HEAD = 64 * 1024  # characters of a request head: it is kept as long as its stream
_READ_ELSEWHERE = "the call is read by a newer stream"
_ID = re.compile(r"[!-~]{0,128}")  # names a call. It stands in the rows of ledger and audit, and in the log

Send = Callable[[Frame], Awaitable[None]]


class _Stream:
    """One stream: request bytes that have not been read yet, and how much of the response the worker can take."""

    def __init__(self, opened: CallOpen, grant: Callable[[int, int], Awaitable[None]], *, resumed: bool) -> None:
        self.opened = opened
        self.task: asyncio.Task[None] | None = None
        self.response: CallReader | None = None
        self.finished = False
        self.credit = INITIAL_CREDIT
        self._taken = opened.offset
        self._grant = grant
        self.resumed = resumed
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()  # None behind the last
        self._size = opened.sent if opened.parts else opened.size
        self._received = 0
        self._allowed = INITIAL_CREDIT
        self._lost = False
        self._credit_news = asyncio.Event()

    async def feed(self, data: CallData) -> None:
        """Take request bytes. Raise ValueError if they are not at the next offset or exceed the credit."""
        chunk = base64.b64decode(data.b64, validate=True)
        if data.off != self._received:
            raise ValueError(f"data at offset {data.off}, expected {self._received}")
        self._received += len(chunk)
        if self._received > self._allowed:
            raise ValueError("more data than the credit allows")
        if self.resumed or self.finished:
            await self._taken_in(len(chunk))
        else:
            self._chunks.put_nowait(chunk)

    def end(self, *, lost: bool = False) -> None:
        """No more request bytes will come. `lost`: the body is not complete."""
        self._lost = self._lost or lost
        self._chunks.put_nowait(None)

    async def body(self) -> AsyncIterator[bytes]:
        """The request body. The worker gets credit for a piece once it has been read: nobody may ever read it."""
        while (chunk := await self._chunks.get()) is not None:
            yield chunk
            await self._taken_in(len(chunk))
        if self._lost:
            raise BodyLost

    async def _taken_in(self, count: int) -> None:
        self._allowed += count
        if self._allowed - INITIAL_CREDIT < self._size:
            await self._grant(self.opened.stream, count)

    def take(self, count: int) -> None:
        self.credit += count
        self._taken += count
        self.release()
        self._credit_news.set()

    def release(self) -> None:
        if self.response is not None:
            self.response.ack(self._taken)

    async def next_credit(self) -> int:
        """Wait until the worker can take bytes and return how many."""
        while self.credit <= 0:
            self._credit_news.clear()
            await self._credit_news.wait()
        return self.credit

    def acknowledged(self) -> bool:
        return self.finished and (self.response is None or self._taken >= self.response.offset)


class LinkFront:
    """Serves the model calls of one connection whose `attach` carried `nonce`. `send` must wait while the link is full.
    `packs`: the worker takes compressed answers. A context: on leaving, the calls go on in the auth proxy."""

    def __init__(self, proxy: AuthProxy, send: Send, nonce: Secret, *, epoch: int = 0, packs: bool = False) -> None:
        self._proxy = proxy
        self._send = send
        self._nonce = NonceGuard(nonce)
        self._epoch = epoch
        self._packs = packs
        self._streams: dict[int, _Stream] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._answers: asyncio.Queue[Frame] = asyncio.Queue(_MAX_ANSWERS)
        self._answering: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._proxy.link_up()
        self._answering = asyncio.create_task(self._send_answers(), name="answers to model streams")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._proxy.link_down()
        streams = list(self._streams.values())
        self._streams.clear()
        self._idle.set()
        for stream in streams:
            stream.end(lost=True)
        await cancelled(*(stream.task for stream in streams), self._answering)

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    async def read_out(self) -> None:
        """Wait until no stream is open or the context is left."""
        await self._idle.wait()

    async def handle(self, frame: CallOpen | CallData | CallEnd | Credit | Cancel) -> None:
        """Take one frame of the connection. Never wait for the provider. Ignore frames of unknown streams."""
        if isinstance(frame, CallOpen):
            await self._open(frame)
            return
        stream = self._streams.get(frame.stream)
        if stream is None:
            return
        match frame:
            case CallData():
                try:
                    await stream.feed(frame)
                except (ValueError, binascii.Error) as error:
                    await self._break(stream, f"bad data frame: {error}")
            case CallEnd():
                stream.end(lost=bool(frame.error))
            case Credit():
                stream.take(frame.bytes)
                if stream.acknowledged():
                    self._forget(stream)
            case Cancel():
                await self._cancel(stream)

    async def _open(self, opened: CallOpen) -> None:
        if refused := self._refused(opened):
            await self._answers.put(CallEnd(self._epoch, opened.stream, refused))
            return
        for earlier in [each for each in self._streams.values() if opened.id and each.opened.id == opened.id]:
            await self._end_stream(earlier)
            await self._answers.put(CallEnd(self._epoch, earlier.opened.stream, _READ_ELSEWHERE))
        resumed = bool(opened.id) and self._proxy.knows(opened.id)

        stream = _Stream(opened, self._grant, resumed=resumed)
        self._streams[opened.stream] = stream
        self._idle.clear()
        stream.task = asyncio.create_task(self._serve(stream), name=f"model stream {opened.stream}")

    def _refused(self, opened: CallOpen) -> str:
        if opened.stream in self._streams:
            return "the stream number is in use"
        if len(self._streams) >= MAX_STREAMS:
            return "too many streams"
        if not _ID.fullmatch(opened.id):
            return "the id of the call is too long, or no plain text"
        texts = (opened.nonce, opened.method, opened.path, opened.digest, opened.base)
        size = sum(map(len, texts)) + sum(len(name) + len(value) for name, value in opened.headers.items())
        return "the request head is too long" if size > _MAX_HEAD or len(opened.parts) > MAX_PARTS else ""

    def _forget(self, stream: _Stream) -> None:
        self._streams.pop(stream.opened.stream, None)
        if not self._streams:
            self._idle.set()

    async def _grant(self, stream: int, count: int) -> None:
        await self._answers.put(Credit(self._epoch, stream, count))

    async def _send_answers(self) -> None:
        """Send credit and errors. `handle` only queues them: it must read on while the link cannot send."""
        try:
            while True:
                await self._send(await self._answers.get())
        except CcbError as error:
            log.debug("answers to model streams ended with their connection: %s", error.what)

    async def _cancel(self, stream: _Stream) -> None:
        """Abort the call and do not keep it: the worker no longer wants the response."""
        if stream.opened.id:
            self._proxy.discard(stream.opened.id)
        await self._end_stream(stream)

    async def _end_stream(self, stream: _Stream) -> None:
        self._forget(stream)
        stream.end(lost=True)
        await cancelled(stream.task)

    async def _break(self, stream: _Stream, reason: str) -> None:
        await self._cancel(stream)
        await self._answers.put(CallEnd(self._epoch, stream.opened.stream, reason))

    async def _serve(self, stream: _Stream) -> None:
        try:
            await self._send(await self._outcome(stream))
        except CcbError as error:
            log.debug("stream %d ended with its connection: %s", stream.opened.stream, error.what)
        finally:
            stream.finished = True
            if stream.acknowledged():
                self._forget(stream)

    async def _outcome(self, stream: _Stream) -> CallEnd:
        """Answer a call and return the end of its stream, with what was wrong. Raise CcbError without a connection."""
        wrong, again = "", False
        try:
            await self._respond(stream)
        except (ProviderError, Refusal) as error:
            wrong = str(error) or "the call failed"
        except CannotRebuild:
            wrong, again = "the laptop needs the whole request body", True
        except BodyLost:
            wrong = "the request body did not arrive whole"
        except Superseded:
            wrong = _READ_ELSEWHERE
        except CcbError:
            raise
        except Exception:
            log.exception("stream %d failed", stream.opened.stream)
            wrong = "the auth proxy on the laptop failed"
        return CallEnd(self._epoch, stream.opened.stream, wrong, again)

    async def _respond(self, stream: _Stream) -> None:
        opened, body = stream.opened, stream.body()
        deltas = bool(opened.digest) and not stream.resumed and self._nonce.matches(opened.nonce)
        if deltas and opened.parts:
            body = await self._proxy.bodies.rebuilt(opened, body)
        keep, target = deltas and not opened.parts, (opened.method, opened.path)
        head = RequestHead(opened.id, opened.nonce, *target, opened.headers, opened.size, keep)
        async with self._proxy.call(head, body, nonce=self._nonce, offset=opened.offset) as response:
            if response.call.refusal is not None and opened.offset:
                raise response.call.refusal
            stream.response = response
            await self._send(CallHead(self._epoch, opened.stream, response.status, dict(response.headers)))
            while True:
                credit = await stream.next_credit()
                offset = response.offset
                chunk = await response.read(min(CHUNK, credit))
                if not chunk:
                    return
                stream.credit -= len(chunk)
                stream.release()
                await self._send(self._piece(opened.stream, offset, chunk))

    def _piece(self, stream: int, offset: int, chunk: bytes) -> CallData:
        if self._packs and len(packed := pack(chunk)) < len(chunk):
            return Packed(self._epoch, stream, offset, base64.b64encode(packed).decode("ascii"))
        return CallData(self._epoch, stream, offset, base64.b64encode(chunk).decode("ascii"))
