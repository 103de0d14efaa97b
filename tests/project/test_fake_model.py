"""The scripted model of the test kit speaks the Messages API the way a client sees it."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.model.model_script import Json


def call(prompt: str = "hi", **more: Any) -> Json:
    return {"model": "m", "max_tokens": 100, "stream": True, "messages": [{"role": "user", "content": prompt}], **more}


async def post(model: FakeModel, body: Json, **headers: str) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{model.url}/v1/messages", json=body, headers={"x-api-key": API_KEY, **headers}) as answer,
    ):
        return answer.status, await answer.read()


@pytest.mark.slow
@pytest.mark.thorough
async def test_the_official_sdk_reads_a_stream_with_thinking_text_and_tools(fake_model: FakeModel) -> None:
    import anthropic  # takes more than a second, which every run of any test would pay

    tool_input = {"file_path": '/a/ü"\\', "lines": [1, 2, {"deep": None}]}
    fake_model.add(
        {
            "blocks": [
                {"type": "thinking", "thinking": "Let me see.", "signature": "signed"},
                {"type": "text", "text": "Grüße, 世界"},
                {"type": "tool_use", "name": "Read", "input": tool_input},
                {"type": "tool_use", "name": "Read", "input": {}, "id": "toolu_x"},
            ],
            "usage": {"input_tokens": 7},
            "network_pieces": 3,
        }
    )
    async with anthropic.AsyncAnthropic(api_key=API_KEY, base_url=fake_model.url) as client:
        async with client.messages.stream(
            model="m", max_tokens=100, messages=[{"role": "user", "content": "hi"}]
        ) as stream:
            final = await stream.get_final_message()
        counted = await client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hi"}])
        models = await client.models.list()
    thinking, text, first, second = (block.model_dump() for block in final.content)
    assert (thinking["thinking"], thinking["signature"]) == ("Let me see.", "signed")
    assert text["text"] == "Grüße, 世界"
    assert first["input"] == tool_input
    assert (second["id"], second["input"]) == ("toolu_x", {})
    assert final.stop_reason == "tool_use"
    assert final.usage.input_tokens == 7
    assert counted.input_tokens > 0
    assert models.data[0].id == "fake-model"
    assert [request.path for request in fake_model.other_requests] == ["/v1/messages/count_tokens", "/v1/models"]


async def test_a_wrong_key_and_a_broken_history_are_refused(fake_model: FakeModel) -> None:
    fake_model.add({"text": "ok", "times": 0})
    status, answer = await post(fake_model, call(), **{"x-api-key": "wrong"})
    assert (status, json.loads(answer)["error"]["type"]) == (401, "authentication_error")
    open_call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}
    status, answer = await post(fake_model, call(messages=[{"role": "user", "content": "go"}, open_call]))
    assert (status, json.loads(answer)["error"]["type"]) == (400, "invalid_request_error")


def test_an_unknown_field_in_a_script_is_named() -> None:
    with pytest.raises(ValueError, match=r"when\.nothing"):
        FakeModel([{"text": "x", "when": {"nothing": 1}}])
