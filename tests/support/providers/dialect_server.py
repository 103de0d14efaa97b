"""A scripted server of OpenAI's dialects. It refuses what the real ones refuse, and streams real SSE, cut anywhere."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from aiohttp import web
from tests.support.model.model_script import Json

from ..network.http_server import serving
from . import strict_chat, strict_responses
from .turns import Said, call_id, chat_events, reasoning_item, responses_events

KEY = "key-of-the-other-provider"


@dataclass(frozen=True)
class Raw:
    """An answer as bytes. With `cut`, the connection breaks behind them."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    cut: bool = False


Reply = Said | Raw | Callable[[Json], Said | Raw]


class Held:
    """Answers stop behind `after` bytes until `release()`; `reached` is set once one does."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.reached = asyncio.Event()
        self._released = asyncio.Event()

    def release(self) -> None:
        self._released.set()

    async def wait(self) -> None:
        self.reached.set()
        await self._released.wait()


def sse(*events: object, done: bool = True) -> bytes:
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return (text + ("data: [DONE]\n\n" if done else "")).encode()


def stream_of(said: Said, number: int, flavour: str) -> bytes:
    if flavour == "responses":
        made = responses_events(said, number)
        return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in made).encode()
    return sse(*chat_events(said, number, flavour))


class DialectServer:
    """Serves one flavour: responses, or one of Chat Completions (openai, azure, gemini, grok, deepseek, openrouter,
    ollama, vllm, llamacpp). `replies` are given one after the other. `refused` are the reasons of its answers 400,
    `listed` its list of models. `held` stops the answers that begin while it is set."""

    def __init__(self, flavour: str, *replies: Reply) -> None:
        self.flavour = flavour
        self.url = ""
        self.replies = deque(replies)
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.refused: list[str] = []
        self.count_tokens: int | None = None
        self.wants_usage = True
        self.listed: object = None
        self.lists_asked = 0
        self.held: Held | None = None
        self._minted: dict[str, Any] = {"signatures": set(), "details": [], "items": [], "before": {}, "owed": {}}

    def add(self, *replies: Reply) -> None:
        self.replies.extend(replies)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[DialectServer]:
        async with serving(self._handle) as url:
            self.url = f"{url}/v1"
            yield self

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        named = {name.lower(): value for name, value in request.headers.items()}
        self.headers.append(named)
        given = named.get("authorization", "").removeprefix("Bearer ") or named.get("api-key")
        given = given or named.get("x-goog-api-key") or named.get("x-api-key")
        if given != KEY:
            return _error(401, f"Incorrect API key provided: sk-{KEY[:4]}***{KEY[-4:]}.", "invalid_api_key")
        if request.method == "GET" and request.path.endswith("/models") and self.listed is not None:
            self.lists_asked += 1
            return web.json_response(self.listed)
        body = await request.json()
        if request.path == "/v1/responses/input_tokens" and self.count_tokens is not None:
            return web.json_response({"object": "response.input_tokens", "input_tokens": self.count_tokens})
        if request.path != ("/v1/responses" if self.flavour == "responses" else "/v1/chat/completions"):
            return _error(404, "Unknown request URL", "unknown_url")
        self.requests.append(body)
        if self.flavour == "responses":
            why = strict_responses.refusal(body, self._minted)
        else:
            why = strict_chat.refusal(body, self.flavour, self._minted, wants_usage=self.wants_usage)
        if why:
            self.refused.append(why)
            return _error(400, why, None)
        if not self.replies:
            return _error(400, "the script has no more replies", None)
        reply = self.replies.popleft()
        if callable(reply):
            reply = reply(body)
        if isinstance(reply, Said):
            self._mint(reply)
            reply = Raw(stream_of(reply, len(self.requests), self.flavour))
        return await send(request, reply, self.held)

    def _mint(self, said: Said) -> None:
        """Remember what must come back."""
        number = len(self.requests)
        ids = said.ids or [call_id(number, index) for index in range(len(said.calls))]
        if said.thinking and self.flavour == "responses":
            item = reasoning_item(said, number)
            self._minted["items"].append(item)
            self._minted["before"] |= dict.fromkeys(ids, item)
        self._minted["signatures"].add(f"sig-{number}")
        details = [
            {"type": "reasoning.text", "text": said.thinking, "index": 0, "format": "f"},
            {"type": "reasoning.encrypted", "data": f"sealed-{number}", "index": 1, "format": "f"},
        ]
        self._minted["details"].append(details)
        owed = {"deepseek": said.thinking, "gemini": f"sig-{number}", "openrouter": details if said.thinking else None}
        self._minted["owed"] |= dict.fromkeys(ids[:1], owed.get(self.flavour))


async def send(request: web.Request, reply: Raw, held: Held | None = None) -> web.StreamResponse:
    if reply.status != 200:
        return web.Response(status=reply.status, body=reply.body, headers=reply.headers)
    response = web.StreamResponse(headers=reply.headers)
    await response.prepare(request)
    bounds = {*range(0, len(reply.body), 701), len(reply.body)} | ({held.after} if held else set())
    for start, end in pairwise(sorted(bounds)):
        if held and start == held.after:
            await held.wait()
        await response.write(reply.body[start:end])
    if reply.cut and request.transport is not None:
        request.transport.close()
        return response
    await response.write_eof()
    return response


def _error(status: int, message: str, code: str | None) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return web.json_response({"error": error}, status=status)
