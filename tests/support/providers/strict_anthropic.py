"""A scripted server of the Messages API. It refuses thinking that it has not made, and calls without theirs."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from tests.support.model.model_script import Json, Recorded, Reply, events

from ..network.http_server import serving
from .turns import Said


class AnthropicServer:
    """Its signatures begin with `mark`. `model` is the name with which it answers, `refused` are its answers 400."""

    def __init__(self, mark: str, model: str) -> None:
        self.url = ""
        self.replies: deque[Said] = deque()
        self.requests: list[Json] = []
        self.refused: list[str] = []
        self._mark = mark
        self._model = model
        self._minted: list[Json] = []
        self._before: dict[str, Json] = {}  # the thinking before a call

    @asynccontextmanager
    async def running(self) -> AsyncIterator[AnthropicServer]:
        async with serving(self._handle) as self.url:
            yield self

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        if why := self._refusal(body):
            self.refused.append(why)
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": why}}
            return web.json_response(error, status=400)
        told = self._events(self.replies.popleft())
        text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in told)
        return web.Response(text=text, content_type="text/event-stream")

    def _refusal(self, body: Json) -> str:
        for message in body["messages"]:
            content = message["content"]
            blocks = content if isinstance(content, list) else []
            if not content:
                return "messages: content is empty"
            thinking = [block for block in blocks if "thinking" in block["type"]]
            if any(block not in self._minted for block in thinking):
                return "Invalid `signature` in `thinking` block"
            for block in blocks:
                if self._before.get(block.get("id", ""), block) not in blocks:
                    return "the thinking before a call is missing"
        return ""

    def _events(self, said: Said) -> list[Json]:
        number = len(self.requests)
        blocks: list[Json] = []
        if said.thinking:
            signature = f"{self._mark}{number}=="
            blocks.append({"type": "thinking", "thinking": said.thinking, "signature": signature})
            blocks.append({"type": "redacted_thinking", "data": f"{self._mark}redacted{number}"})
            self._minted += blocks
            self._before |= dict.fromkeys(said.ids, blocks[0])
        if said.text:
            blocks.append({"type": "text", "text": said.text})
        blocks += [
            {"type": "tool_use", "id": use, "name": name, "input": given}
            for use, (name, given) in zip(said.ids, said.calls, strict=True)
        ]
        usage = {"input_tokens": said.prompt, "output_tokens": said.output}
        asked = Recorded(number, "POST", "/v1/messages", "", {}, None, 0)
        made = [data for _, data in events(Reply(blocks=blocks, model=self._model, usage=usage), asked)]
        made[0]["message"]["id"] = f"msg_{self._mark}{number}"
        return made
