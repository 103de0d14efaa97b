"""The bytes of a model request."""

from __future__ import annotations

import json

import pytest

from ccb.remote.model.model_request import HistoryMessage, RequestPrefix, body
from ccb.tunnel.wire.frames import Json

MARK = {"type": "ephemeral"}


def _history(count: int) -> list[HistoryMessage]:
    messages = []
    for i in range(count):
        message = HistoryMessage("user" if i % 2 == 0 else "assistant")
        message.put({"type": "text", "text": f"text {i}"})
        messages.append(message)
    return messages


def _tool(name: str) -> Json:
    return {"name": name, "description": "d", "input_schema": {"type": "object"}}


def _request(prefix: RequestPrefix, history: list[HistoryMessage]) -> tuple[bytes, Json]:
    data = b"".join(body(prefix, history, model="m", max_tokens=5, session_id="s"))
    return data, json.loads(data)


def _marked(request: Json) -> list[int]:
    return [i for i, m in enumerate(request["messages"]) if any("cache_control" in b for b in m["content"])]


@pytest.mark.parametrize(("system_marks", "expected"), [(0, [2, 4]), (1, [2, 4]), (2, [4]), (3, []), (4, [])])
def test_never_more_cache_marks_than_the_api_takes(system_marks: int, expected: list[int]) -> None:
    system: list[Json] = [{"type": "text", "text": "s", "cache_control": MARK} for _ in range(system_marks)]
    data, request = _request(RequestPrefix(system, [_tool("A"), _tool("B")]), _history(5))
    assert data.count(b"cache_control") <= 4
    assert _marked(request) == expected


def test_what_no_provider_takes_is_replaced_in_all_that_is_sent() -> None:
    odd = "a\0\0b \\u0000 \ud800"
    message = HistoryMessage("user")
    message.put({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": odd}], "\0": 1})
    tool = {**_tool("A"), "description": odd}
    _, request = _request(RequestPrefix([{"type": "text", "text": odd}], [tool]), [message])
    found = "a\ufffd\ufffdb \\u0000 ?"
    assert request["system"][0]["text"] == request["tools"][0]["description"] == found
    (block,) = request["messages"][0]["content"]
    assert block["content"][0]["text"] == found and block["\ufffd"] == 1
    assert json.loads(message.encoded())["content"] == [{key: each for key, each in block.items() if key[:2] != "ca"}]


def test_the_golden_bytes_of_a_request() -> None:
    prefix = RequestPrefix([{"type": "text", "text": "Sei grüßt \u2603"}], [_tool("A")])
    data, _ = _request(prefix, _history(2))
    assert data.decode() == (
        '{"system":[{"type":"text","text":"Sei grüßt \u2603"}],'
        '"tools":[{"name":"A","description":"d","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}],'
        '"messages":[{"role":"user","content":[{"type":"text","text":"text 0","cache_control":{"type":"ephemeral"}}]},'
        '{"role":"assistant","content":[{"type":"text","text":"text 1"}]}],'
        '"model":"m","max_tokens":5,"stream":true,'
        '"metadata":{"user_id":"043a718774c572bd8a25adbeb1bfcd5c0256ae11cecf9f9c3f925d0e52beaf89"}}'
    )
