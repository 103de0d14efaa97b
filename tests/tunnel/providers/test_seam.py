"""A second provider with a dialect of its own, behind the same auth proxy: resuming needs nothing of Anthropic's
provider.

The API of this provider takes a prompt as plain text and answers with one word a line; `.` ends the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import aiohttp
from aiohttp import web
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import NONCE, answer_to, message_body

from ccb.tunnel.errors import CredentialError
from ccb.tunnel.providers.provider import ProviderError, ProviderRequest, ProviderResponse
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.secret import Secret

KEY = "key-of-the-word-api"


def event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


class WordProvider:
    """Translates requests of the Messages API to the word API, and words to Anthropic events."""

    def __init__(self, url: str, key: Secret | None) -> None:
        self._url = url
        self._key = key
        self._session: aiohttp.ClientSession | None = None

    name = "words.example"
    what_to_check = "the word service"
    routes = frozenset({("POST", "/v1/messages")})

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    def prepare(self) -> None:
        pass

    async def credential_name(self) -> str:
        if self._key is None:
            raise CredentialError("the word API has no key", do="Set one.")
        return "WORD_API_KEY"

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        await self.credential_name()
        assert self._key is not None and self._session is not None
        asked = json.loads(b"".join([piece async for piece in request.body]))
        headers = {"word-key": self._key.reveal(), "worker-headers": json.dumps(dict(request.headers))}
        try:
            async with self._session.post(
                self._url, data=asked["messages"][-1]["content"], headers=headers
            ) as response:
                kept = [("content-type", "text/event-stream"), ("set-cookie", "a=b"), ("word-account", "me")]
                yield ProviderResponse(response.status, kept, self._events(response))
        except aiohttp.ClientError as error:
            raise ProviderError(f"no words ({type(error).__name__})") from None

    async def _events(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        yield event("message_start")
        try:
            async for line in response.content:
                word = line.decode().strip()
                if word == ".":
                    yield event("message_stop")
                    return
                yield event("content_block_delta", text=word)
        except aiohttp.ClientError as error:
            raise ProviderError(f"the words ended early ({type(error).__name__})") from None


class WordApi:
    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.requests: list[tuple[str, dict[str, str]]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((await request.text(), dict(request.headers)))
        response = web.StreamResponse()
        await response.prepare(request)
        for word in self.words:
            await response.write(f"{word}\n".encode())
        await response.write(b".\n")
        return response

    def answer(self) -> bytes:
        deltas = (event("content_block_delta", text=word) for word in self.words)
        return event("message_start") + b"".join(deltas) + event("message_stop")


@asynccontextmanager
async def proxy_to(api: WordApi, *, key: str | None = KEY) -> AsyncIterator[AuthProxy]:
    async with serving(api.handle) as url, AuthProxy(WordProvider(url, Secret(key) if key else None)) as proxy:
        yield proxy


async def test_the_worker_gets_anthropic_events_and_only_the_provider_sees_its_key() -> None:
    api = WordApi(["one", "two"])
    body = message_body("count")
    brought = {"Authorization": "Bearer stolen", "X-Auth-Nonce": NONCE, "Anthropic-Version": "1", "Host": "evil"}
    async with proxy_to(api) as proxy:
        got = await answer_to(proxy, body, headers=brought)
    assert (got.status, got.headers) == (200, {"content-type": "text/event-stream"}) and got.body == api.answer()
    ((prompt, headers),) = api.requests
    assert (prompt, headers["word-key"]) == ("count", KEY)
    assert json.loads(headers["worker-headers"]) == {"anthropic-version": "1"}


async def test_a_request_that_this_provider_does_not_serve_is_refused() -> None:
    api = WordApi(["never"])
    async with proxy_to(api) as proxy:
        answer = await answer_to(proxy, path="/v1/messages/count_tokens")
        assert answer.status == 404 and b"words.example" in answer.body
    assert not api.requests


async def test_a_missing_key_and_an_unreachable_api_are_answers_of_the_proxy(unused_tcp_port: int) -> None:
    async with proxy_to(WordApi([]), key=None) as proxy:
        answer = await answer_to(proxy, message_body())
        assert answer.status == 401 and b"the word API has no key" in answer.body
    async with AuthProxy(WordProvider(f"http://127.0.0.1:{unused_tcp_port}", Secret(KEY))) as proxy:
        answer = await answer_to(proxy, message_body())
    text = answer.body.decode()
    assert answer.status == 503 and "words.example" in text and "check the word service" in text and KEY not in text
