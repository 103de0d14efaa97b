"""The scripted model of the test kit speaks the Messages API the way a client sees it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from tests.support.model.fake_model import API_KEY, FakeModel

Json = dict[str, Any]


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


async def test_replies_come_in_order_and_conditions_choose_by_tool_result(fake_model: FakeModel) -> None:
    fake_model.add(
        {"text": "never", "when": {"tool_result_contains": "no such text"}},
        {"text": "failed", "when": {"tool_result_contains": "FAILED"}},
        lambda request: {"text": f"tool said {request.tool_result_text}"} if request.tool_results else None,
        {"text": "first"},
        {"text": "second"},
    )

    def after_tool(output: str) -> Json:
        return call(
            messages=[
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": output}]},
            ]
        )

    texts = []
    for body in (call(), after_tool("1 FAILED"), after_tool("ok"), call(), call()):
        status, answer = await post(fake_model, {**body, "stream": False})
        parsed = json.loads(answer)
        texts.append(parsed["content"][0]["text"] if status == 200 else parsed["error"]["message"])
    assert texts == ["first", "failed", "tool said ok", "second", "the script has no reply for request 5"]


@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limit_error"), (529, "overloaded_error"), (500, "api_error")])
async def test_scripted_failures_have_the_shape_of_the_api(fake_model: FakeModel, status: int, kind: str) -> None:
    fake_model.add({"status": status, "retry_after": 2, "error": {"message": "not now"}})
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            f"{fake_model.url}/v1/messages", json=call(), headers={"authorization": f"Bearer {API_KEY}"}
        ) as answer,
    ):
        assert (answer.status, answer.headers["retry-after"]) == (status, "2")
        assert await answer.json() == {"type": "error", "error": {"type": kind, "message": "not now"}}


async def test_a_wrong_key_and_a_broken_history_are_refused(fake_model: FakeModel) -> None:
    fake_model.add({"text": "ok", "times": 0})
    status, answer = await post(fake_model, call(), **{"x-api-key": "wrong"})
    assert (status, json.loads(answer)["error"]["type"]) == (401, "authentication_error")
    open_call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}
    status, answer = await post(fake_model, call(messages=[{"role": "user", "content": "go"}, open_call]))
    assert (status, json.loads(answer)["error"]["type"]) == (400, "invalid_request_error")


async def test_a_cut_ends_the_body_after_exactly_that_many_bytes(fake_model: FakeModel) -> None:
    fake_model.add({"text": "a longer text that is cut", "cut_after": 333})
    got = b""
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{fake_model.url}/v1/messages", json=call(), headers={"x-api-key": API_KEY}) as answer,
    ):
        with pytest.raises(aiohttp.ClientPayloadError):
            async for piece in answer.content.iter_any():
                got += piece
    assert len(got) == 333


async def test_a_stalled_stream_waits_for_release_and_notices_who_leaves(fake_model: FakeModel) -> None:
    fake_model.add({"text": "one", "stall_after": 2}, {"text": "two", "stall_after": 2})
    leaver = asyncio.create_task(post(fake_model, call()))
    await fake_model.until(lambda model: len(model.requests) == 1)
    leaver.cancel()
    await fake_model.until(lambda model: model.aborted == [1])
    waiter = asyncio.create_task(post(fake_model, call()))
    await fake_model.until(lambda model: len(model.requests) == 2)
    assert not waiter.done()
    fake_model.release()
    assert b"message_stop" in (await waiter)[1]
    assert fake_model.finished == [2]


async def test_a_huge_response_is_as_large_as_asked(fake_model: FakeModel) -> None:
    fake_model.add({"blocks": [{"type": "fill", "bytes": 3_000_000}]})
    status, answer = await post(fake_model, call())
    assert (status, answer.count(b"x") >= 3_000_000) == (200, True)


def test_an_unknown_field_in_a_script_is_named() -> None:
    with pytest.raises(ValueError, match=r"when\.nothing"):
        FakeModel([{"text": "x", "when": {"nothing": 1}}])
