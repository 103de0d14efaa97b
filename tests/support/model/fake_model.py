"""A scripted Anthropic Messages API over real HTTP with real SSE. See ../README.md.

`async with FakeModel([...]) as model:` in tests, or `python -m tests.support.model.fake_model --script FILE` as a
program."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Sequence
from typing import Self

from aiohttp import web
from tests.support.model.model_script import Json, Recorded, Reply, Script, ScriptEntry, content_text, events, message
from tests.support.network.http_server import serving

API_KEY = "sk-ant-test-key-0000"

_CREATED = "2025-01-01T00:00:00Z"
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class FakeModel:
    """Serves on 127.0.0.1 while its context is open. Accepts API_KEY as x-api-key or as bearer token. `requests` holds
    every request to POST /v1/messages, `other_requests` all others (count_tokens, models, unknown paths) and those for
    the title of a session, which no script is about; `aborted` the numbers of those whose client left before the end. A
    history in which a tool_use has no tool_result is refused with 400, as the real API does."""

    def __init__(self, script: Sequence[ScriptEntry] = (), *, tls: ssl.SSLContext | None = None) -> None:
        self.script = Script(list(script))
        self.requests: list[Recorded] = []
        self.other_requests: list[Recorded] = []
        self.aborted: list[int] = []
        self.finished: list[int] = []
        self.url = ""
        self._count = 0
        self._released = asyncio.Event()
        self._changed = asyncio.Condition()
        self._serving = serving(self._handle, tls)

    def add(self, *entries: ScriptEntry) -> None:
        self.script.add(*entries)

    def release(self) -> None:
        self._released.set()

    async def until(self, condition: Callable[[FakeModel], object], timeout: float = 60) -> None:
        """Return once `condition(self)` holds; checked whenever a request arrives, ends or is aborted."""
        async with asyncio.timeout(timeout), self._changed:
            await self._changed.wait_for(lambda: bool(condition(self)))

    async def __aenter__(self) -> Self:
        self.url = await self._serving.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._released.set()
        await self._serving.__aexit__(None, None, None)

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        request = self._record(http, raw)
        try:
            await self._notify()
            response = await self._answer(http, request)
        except (asyncio.CancelledError, ConnectionError):
            self.aborted.append(request.number)
            await asyncio.shield(self._notify())
            raise
        self.finished.append(request.number)
        await self._notify()
        return response

    async def _answer(self, http: web.Request, request: Recorded) -> web.StreamResponse:
        given = (request.headers.get("x-api-key"), request.headers.get("authorization"))
        if given[0] != API_KEY and given[1] != f"Bearer {API_KEY}":
            return _error(401, "invalid x-api-key")
        match (request.method, request.path):
            case ("POST", "/v1/messages"):
                return await self._messages(http, request)
            case ("POST", "/v1/messages/count_tokens"):
                return web.json_response({"input_tokens": max(1, request.size // 4)})
            case ("GET", "/v1/models"):
                known = {"type": "model", "id": "fake-model", "display_name": "Fake", "created_at": _CREATED}
                ends = {"first_id": "fake-model", "last_id": "fake-model"}
                return web.json_response({"data": [known], "has_more": False, **ends})
        return _error(404, f"{request.method} {request.path} is not served here")

    async def _messages(self, http: web.Request, request: Recorded) -> web.StreamResponse:
        wrong = history_error(request)
        if wrong:
            return _error(400, wrong)
        reply = _title(request) if _asks_for_title(request) else self.script.choose(request)
        if reply is None:
            return _error(400, f"the script has no reply for request {request.number}")
        if reply.first_delay:
            await asyncio.sleep(reply.first_delay)
        headers = {"request-id": f"req_{request.number:04d}", **reply.headers}
        if reply.retry_after is not None:
            headers["retry-after"] = str(reply.retry_after)
        if reply.status != 200:
            return _error(reply.status, "scripted", reply.error, headers)
        if not (request.body or {}).get("stream"):
            return web.json_response(message(reply, request), headers=headers)
        return await self._stream(http, request, reply, headers)

    async def _stream(
        self, http: web.Request, request: Recorded, reply: Reply, headers: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers}
        )
        await response.prepare(http)
        out = _Output(http, response, reply)
        for index, (name, data) in enumerate(events(reply, request)):
            if reply.stall_after is not None and index == reply.stall_after:
                await self._released.wait()
            if reply.delay and index:
                await asyncio.sleep(reply.delay)
            if not await out.send(name, data):
                return response
        await response.write_eof()
        return response

    def _record(self, http: web.Request, raw: bytes) -> Recorded:
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = None
        self._count += 1
        headers = {name.lower(): value for name, value in http.headers.items()}
        given = body if isinstance(body, dict) else None
        request = Recorded(self._count, http.method, http.path, http.query_string, headers, given, len(raw))
        scripted = request.path == "/v1/messages" and not _asks_for_title(request)
        (self.requests if scripted else self.other_requests).append(request)
        return request

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _asks_for_title(request: Recorded) -> bool:
    return content_text((request.body or {}).get("system")).startswith("You name sessions")


def _title(request: Recorded) -> Reply:
    """The title of a session whose first prompt is in the second line of the request."""
    return Reply(text=f"About {request.last_user_text.splitlines()[1]}")


class _Output:
    """Writes SSE events of one response, in odd network pieces or cut off when the reply says so."""

    def __init__(self, http: web.Request, response: web.StreamResponse, reply: Reply) -> None:
        self._http = http
        self._response = response
        self._left = reply.cut_after
        self._piece = reply.network_pieces

    async def send(self, name: str, data: Json) -> bool:
        """False when the connection was cut in this event."""
        payload = f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
        cut = self._left is not None and len(payload) >= self._left
        if self._left is not None:
            payload = payload[: self._left]
            self._left -= len(payload)
        for start in range(0, len(payload), self._piece or len(payload) or 1):
            await self._response.write(payload[start : start + self._piece] if self._piece else payload)
        if cut and self._http.transport is not None:
            self._http.transport.close()
        return not cut


def _error(
    status: int, text: str, error: Json | None = None, headers: dict[str, str] | None = None
) -> web.StreamResponse:
    body = {"type": _ERROR_TYPES.get(status, "api_error"), "message": text, **(error or {})}
    return web.json_response({"type": "error", "error": body}, status=status, headers=headers)


def history_error(request: Recorded) -> str:
    """What the real API would refuse in the request; empty when nothing."""
    if request.body is None:
        return "the body is not a JSON object"
    for name in ("model", "max_tokens", "messages"):
        if not request.body.get(name):
            return f"{name}: Field required"
    open_ids: list[str] = []
    for index, blocks in enumerate(_turns(request.messages)):
        results = [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
        if sorted(results) != sorted(open_ids):
            return (
                f"messages.{index}: every `tool_use` must have exactly one `tool_result` in the next message; "
                f"called {open_ids}, answered {results}"
            )
        if not blocks or any(block.get("type") == "text" and not block.get("text") for block in blocks):
            return f"messages.{index}: text content blocks must be non-empty"
        open_ids = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
    return f"the history ends with unanswered `tool_use` {open_ids}" if open_ids else ""


def _turns(messages: list[Json]) -> list[list[Json]]:
    """Content blocks with neighbours of the same role joined, as the real API reads them."""
    turns: list[list[Json]] = []
    role = None
    for entry in messages:
        content = entry.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        if entry.get("role") == role:
            turns[-1] += blocks
        else:
            turns.append(list(blocks))
        role = entry.get("role")
    return turns
