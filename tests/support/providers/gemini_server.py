"""A scripted server of Gemini's own API: generateContent, streamGenerateContent, countTokens, the list of models."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from aiohttp import web
from tests.support.model.model_script import Json

from ..network.http_server import serving
from .dialect_server import KEY, Held, Raw, Reply, send
from .turns import Said, pieces

_ROUTE = re.compile(r"/v1beta/models/([\w.-]+):(\w+)")
_FINISH = {"end": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY"}
_STATUS = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND"}
_SKIPPED = "skip_thought_signature_validator"


class GeminiServer:
    """`replies` are given one after the other. Calls that want JSON (a client asks so which model a prompt needs) are
    `asides` and get `aside`. `requests` are the bodies, with the model of the path as `model`; `paths` all paths with
    their queries; `refused` the reasons of its answers 400. `held` stops the answers that begin while it is set."""

    def __init__(self, *replies: Reply) -> None:
        self.url = ""
        self.replies = deque(replies)
        self.aside: Json = {"complexity_reasoning": "simple", "complexity_score": 5}
        self.requests: list[Json] = []
        self.asides: list[Json] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.refused: list[str] = []
        self.held: Held | None = None
        self._signatures: set[str] = {_SKIPPED}

    def add(self, *replies: Reply) -> None:
        self.replies.extend(replies)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[GeminiServer]:
        async with serving(self._handle) as self.url:
            yield self

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path_qs)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if KEY not in (request.headers.get("x-goog-api-key"), request.query.get("key")):
            return _error(400, "API key not valid. Please pass a valid API key.")
        if (request.method, request.path) == ("GET", "/v1beta/models"):
            listed = {"name": "models/gemini-2.5-pro", "supportedGenerationMethods": ["generateContent"]}
            return web.json_response({"models": [listed]})
        route = _ROUTE.fullmatch(request.path)
        if request.method != "POST" or route is None:
            return _error(404, "Requested entity was not found.")
        model, method = route.groups()
        body = await request.json()
        if why := _refusal(body, self._signatures):
            self.refused.append(why)
            return _error(400, why)
        if method == "countTokens":
            return web.json_response({"totalTokens": max(1, len(json.dumps(body)) // 4)})
        if method not in ("generateContent", "streamGenerateContent"):
            return _error(404, f"models/{model} has no method {method}")
        streams = method == "streamGenerateContent"
        if body.get("generationConfig", {}).get("responseMimeType") == "application/json":
            self.asides.append({**body, "model": model})
            return await send(request, _answer(Said(json.dumps(self.aside)), 0, model, streams=streams))
        self.requests.append({**body, "model": model})
        if not self.replies:
            return _error(400, "the script has no more replies")
        reply = self.replies.popleft()
        reply = reply(body) if callable(reply) else reply
        if isinstance(reply, Said):
            number = len(self.requests)
            self._signatures.add(f"sig-{number}")
            reply = _answer(reply, number, model, streams=streams)
        return await send(request, reply, self.held)


def function_results(body: Json) -> list[Json]:
    """What came back from the calls of the model, in all of the conversation: name and response of each."""
    parts = [part for content in body["contents"] for part in content["parts"]]
    return [part["functionResponse"] for part in parts if "functionResponse" in part]


def _answer(said: Said, number: int, model: str, *, streams: bool) -> Raw:
    """The bytes of an answer. Like the real server, it ends lines with CRLF, and counts tokens in every event."""
    if not streams:
        parts = list(_parts(said, number, size=max(1, len(said.text), len(said.thinking))))
        return Raw(json.dumps(_event(said, number, model, parts, last=True)).encode(), headers=_JSON)
    events = [_event(said, number, model, [part], last=False) for part in _parts(said, number)]
    events.append(_event(said, number, model, [{"text": ""}], last=True))
    return Raw("".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events).encode())


def _parts(said: Said, number: int, size: int = 8) -> Iterator[Json]:
    for piece in pieces(said.thinking, size):
        yield {"text": piece, "thought": True}
    for piece in pieces(said.text, size):
        yield {"text": piece}
    for index, (name, given) in enumerate(said.calls):
        signature = {"thoughtSignature": f"sig-{number}"} if index == 0 else {}
        yield {"functionCall": {"name": name, "args": given}, **signature}


def _event(said: Said, number: int, model: str, parts: list[Json], *, last: bool) -> Json:
    usage: Json = {"promptTokenCount": said.prompt, "totalTokenCount": said.prompt}
    candidate: Json = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if last:
        candidate["finishReason"] = _FINISH[said.stop]
        usage["cachedContentTokenCount"] = said.cached
        usage["candidatesTokenCount"] = said.output - said.reasoning
        usage["thoughtsTokenCount"] = said.reasoning
        usage["totalTokenCount"] = said.prompt + said.output
    named = {"modelVersion": model, "responseId": f"response-{number}"}
    return {"candidates": [candidate], "usageMetadata": usage, **named}


def _refusal(body: Json, signatures: set[str]) -> str:
    """Why the real server would answer 400, "" if it would not."""
    asked = body.get("generateContentRequest", body)  # as countTokens takes it
    contents = asked.get("contents")
    if not contents:
        return "contents is not specified"
    called = 0
    for content in contents:
        parts = content.get("parts")
        if content.get("role") not in ("user", "model") or not parts:
            return "Please use a valid role: user, model, and at least one part."
        answered = sum("functionResponse" in part for part in parts)
        if answered != called:
            return (
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        calls = [part for part in parts if "functionCall" in part]
        if any(part.get("thoughtSignature", _SKIPPED) not in signatures for part in calls):
            return "Thought signature is not valid."
        called = len(calls)
    return "" if called == 0 else "the contents end with a function call"


def _error(status: int, message: str) -> web.Response:
    error = {"code": status, "message": message, "status": _STATUS[status]}
    return web.json_response({"error": error}, status=status)


_JSON = {"content-type": "application/json; charset=UTF-8"}
