"""What tests of the auth proxy need: a proxy in front of an upstream, request heads, and a worker's end of the link."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.support.model.fake_model import API_KEY

from ccb.local.config.settings import ProviderSettings, Settings
from ccb.local.providers.session_provider import session_provider
from ccb.tunnel.providers.anthropic import AnthropicProvider, anthropic_client
from ccb.tunnel.providers.credential import Credential, CredentialSource, FixedCredential
from ccb.tunnel.providers.model_router import ModelRouter
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.link_front import LinkFront
from ccb.tunnel.proxy.policy import NonceGuard, Policy, RequestHead
from ccb.tunnel.proxy.proxied_call import CallReader
from ccb.tunnel.secret import Secret
from ccb.tunnel.wire.frames import CHUNK, INITIAL_CREDIT, CallData, CallEnd, CallHead, CallOpen, Cancel, Credit, Frame

NONCE = "nonce-of-this-connection"


def guard(nonce: str = NONCE) -> NonceGuard:
    return NonceGuard(Secret(nonce))


def message_body(prompt: str = "hi", *, stream: bool = True) -> bytes:
    body = {"model": "m", "max_tokens": 64, "stream": stream, "messages": [{"role": "user", "content": prompt}]}
    return json.dumps(body).encode()


def request_head(
    body: bytes = b"",
    *,
    call_id: str = "",
    nonce: str = NONCE,
    method: str = "POST",
    path: str = "/v1/messages",
    headers: dict[str, str] | None = None,
) -> RequestHead:
    return RequestHead(call_id, nonce, method, path, headers or {"content-type": "application/json"}, len(body))


async def pieces(body: bytes, size: int = 64 * 1024) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def body_of(response: CallReader) -> AsyncIterator[bytes]:
    """The body as it arrives. Asking for the next piece acknowledges the one before."""
    while piece := await response.read():
        yield piece
        response.ack(response.offset)


async def read_all(response: CallReader) -> bytes:
    return b"".join([piece async for piece in body_of(response)])


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        parsed = json.loads(self.body)
        assert parsed["type"] == "error"
        return dict(parsed["error"])


def calling(
    proxy: AuthProxy,
    body: bytes | Mapping[str, Any] | None = None,
    *,
    connection: NonceGuard | None = None,
    size: int = 64 * 1024,
    **head: Any,
) -> AbstractAsyncContextManager[CallReader]:
    """One call: `head` as for `request_head`, the body in pieces of `size`, by default `message_body()`."""
    data = message_body() if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    return proxy.call(request_head(data, **head), pieces(data, size), nonce=connection or guard())


async def answer_to(proxy: AuthProxy, body: bytes | Mapping[str, Any] | None = None, **more: Any) -> Answer:
    """Make one call, and read the whole answer. See `calling`."""
    async with calling(proxy, body, **more) as response:
        text = await read_all(response)
        return Answer(response.status, response.headers, text)


def router_to(url: str, credential: CredentialSource | None = None, **environ: str) -> ModelRouter:
    source = credential or FixedCredential(Credential("ANTHROPIC_API_KEY", api_key=Secret(API_KEY)))
    provider = AnthropicProvider(source, anthropic_client({"ANTHROPIC_BASE_URL": url, **environ}))
    return ModelRouter(provider, lambda name, api: None)


@asynccontextmanager
async def proxy_to(
    url: str,
    *,
    credential: CredentialSource | None = None,
    policy: Policy | None = None,
    environ: dict[str, str] | None = None,
    hold: float = 600,
    warn: Callable[[str], None] = print,
) -> AsyncIterator[AuthProxy]:
    async with AuthProxy(router_to(url, credential, **(environ or {})), policy, hold=hold, warn=warn) as proxy:
        yield proxy


def session_proxy(url: str, home: object, model: str, policy: Policy | None = None) -> AuthProxy:
    """The proxy of a session with several providers, which are all at `url`."""
    keys = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "DEEPSEEK_API_KEY": "k"}
    environ = {"HOME": str(home), "ANTHROPIC_BASE_URL": url, **keys}
    own = {name: ProviderSettings(baseUrl=f"{url}/v1") for name in ("openai", "deepseek")}
    return AuthProxy(session_provider(environ, Settings(providers=own), model), policy)


@dataclass
class Stream:
    head: CallHead | None = None
    body: bytearray = field(default_factory=bytearray)
    received: int = 0
    first_offset: int | None = None
    end: CallEnd | None = None
    upload_credit: int = INITIAL_CREDIT


def _may_send(stream: Stream, size: int) -> bool:
    return stream.upload_credit >= size or stream.end is not None


class Worker:
    """The worker's end of one connection: collects frames by stream. With `auto_credit` every byte of a response is
    acknowledged as it comes, else only what `grant` says. Without `keeps`, bodies are only counted."""

    def __init__(self, proxy: AuthProxy, *, auto_credit: bool = True, keeps: bool = True) -> None:
        self.streams: dict[int, Stream] = {}
        self.calls = LinkFront(proxy, self._take, Secret(NONCE), epoch=3)
        self._auto_credit = auto_credit
        self._keeps = keeps
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Worker:
        await self.calls.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.calls.__aexit__(None, None, None)

    async def open(
        self,
        stream: int,
        size: int,
        *,
        call_id: str = "",
        offset: int = 0,
        nonce: str = NONCE,
        path: str = "/v1/messages",
        method: str = "POST",
    ) -> None:
        """Open `stream` without sending its body."""
        self.streams[stream] = Stream()
        headers = {"content-type": "application/json"}
        await self.calls.handle(CallOpen(3, stream, call_id, nonce, method, path, headers, size, offset))

    async def upload(self, stream: int, body: bytes) -> None:
        """Send a request body within the credit."""
        known = self.streams[stream]
        for start in range(0, len(body), CHUNK):
            chunk = body[start : start + CHUNK]
            await self.until(partial(_may_send, known, len(chunk)))
            known.upload_credit -= len(chunk)
            await self.calls.handle(CallData(3, stream, start, base64.b64encode(chunk).decode()))
            await self._notify()
        await self.calls.handle(CallEnd(3, stream))

    async def begin(self, stream: int, body: bytes, *, call_id: str = "a", offset: int = 0) -> Stream:
        await self.open(stream, len(body), call_id=call_id, offset=offset)
        await self.upload(stream, body)
        return self.streams[stream]

    async def first_bytes(self, stream: int, least: int = 1) -> None:
        await self.until(lambda: len(self.streams[stream].body) >= least)

    async def post(self, stream: int, body: bytes, *, call_id: str = "", path: str = "/v1/messages") -> Stream:
        await self.open(stream, len(body), call_id=call_id, path=path)
        await self.upload(stream, body)
        return await self.ended(stream)

    async def grant(self, stream: int, count: int) -> None:
        await self.calls.handle(Credit(3, stream, count))

    async def cancel(self, stream: int) -> None:
        await self.calls.handle(Cancel(3, stream))

    async def ended(self, stream: int) -> Stream:
        await self.until(lambda: self.streams[stream].end is not None)
        return self.streams[stream]

    async def received(self, stream: int, count: int) -> None:
        await self.until(lambda: len(self.streams[stream].body) == count)

    async def until(self, condition: Callable[[], bool], timeout: float = 60) -> None:
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(condition)

    async def _take(self, frame: Frame) -> None:
        assert isinstance(frame, (CallHead, CallData, CallEnd, Credit)) and frame.epoch == 3
        known = self.streams.setdefault(frame.stream, Stream())
        match frame:
            case CallHead():
                assert known.head is None and not known.body
                known.head = frame
            case CallData():
                chunk = base64.b64decode(frame.b64)
                assert known.head is not None and known.end is None and 0 < len(chunk) <= CHUNK
                if known.first_offset is None:
                    known.first_offset = frame.off
                assert frame.off == known.first_offset + known.received
                known.received += len(chunk)
                if self._keeps:
                    known.body += chunk
                if self._auto_credit:
                    await self.grant(frame.stream, len(chunk))
            case CallEnd():
                assert known.end is None
                known.end = frame
            case Credit():
                known.upload_credit += frame.bytes
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()
