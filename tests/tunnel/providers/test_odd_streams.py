"""Streams of servers that are nearly compatible: their calls are put together, or refused with one word."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.providers.adapters import adapter, tool, user
from tests.support.providers.dialect_server import Raw, sse
from tests.support.providers.turns import Said, calls_chunk, chunk, frag

from ccb.remote.model.answer_stream import BlockDone, MessageAssembler
from ccb.remote.model.retry import ModelError, RetryPolicy
from ccb.tunnel.providers.anthropic_events import whole_message
from ccb.tunnel.providers.dialect import ModelTarget, ToolNames
from ccb.tunnel.providers.model_traits import ModelTraits
from ccb.tunnel.providers.openai_chat import ChatReader, ChatRules
from ccb.tunnel.wire.frames import Json

TOOLS = [tool("Read"), tool("Bash"), tool("BashOutput")]


READ, BASH, BOTH = [("Read", {"a": 1})], [("Bash", {"b": 2})], [("Read", {"a": 1}), ("Bash", {"b": 2})]
ROWS: dict[str, tuple[list[list[Json]], list[tuple[str, Json]]]] = {
    "a name that grows": ([[frag(0, "x", "Re")], [frag(0, "x", "Read")], [frag(0, "x", None, '{"a":1}')]], READ),
    "the input before the name": (
        [[frag(0, "x", "", '{"a"')], [frag(0, None, "Read")], [frag(0, None, None, ":1}")]],
        READ,
    ),
    "an index only at first": ([[frag(0, "x", "Read", '{"a"')], [frag(None, None, None, ":1}")]], READ),
    "an index only later": ([[frag(None, "x", "Read", '{"a"')], [frag(0, None, None, ":1}")]], READ),
    "an empty id": ([[frag(0, "", "Read", '{"a"')], [frag(0, "", "", ":1}")]], READ),
    "a new id in each chunk": ([[frag(0, "x", "Read")], [frag(0, "y", None, '{"a"')], [frag(0, "z", "", ":1}")]], READ),
    "a new id in each chunk, no index": ([[frag(None, "x", "Read")], [frag(None, "y", None, '{"a":1}')]], READ),
    "two calls of one tool on one index in one event, their inputs later": (
        [[frag(0, "x", "Read"), frag(0, "y", "Read")], [frag(0, "x", None, '{"a":1}')], [frag(0, "y", None, "{}")]],
        [*READ, ("Read", {})],
    ),
    "two calls on one index, their inputs later": (
        [[frag(0, "x", "Read")], [frag(0, "y", "Bash")], [frag(0, "x", None, '{"a":1}')], [frag(0, "y", None, "{}")]],
        [*READ, ("Bash", {})],
    ),
    "fragments of two calls mixed": (
        [
            [frag(0, "x", "Read"), frag(1, "y", "Bash")],
            [frag(1, arguments='{"b"'), frag(0, arguments='{"a"')],
            [frag(0, arguments=":1}"), frag(1, arguments=":2}")],
        ],
        BOTH,
    ),
    "five calls in one event": (
        [[frag(place, f"i{place}", "Bash", f'{{"n":{place}}}') for place in range(5)]],
        [("Bash", {"n": place}) for place in range(5)],
    ),
    "empty names behind the first": ([[frag(0, "x", "Read", '{"a"')], [frag(0, "x", " ", ":1}")]], READ),
}


@pytest.mark.parametrize(("chunks", "calls"), ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
async def test_calls_are_put_together(chunks: list[list[Json]], calls: list[tuple[str, Json]], finish: str) -> None:
    events = [calls_chunk(*each) for each in chunks]
    async with adapter("vllm", Raw(sse(*events, chunk({}, finish)))) as it:
        told = await it.ask([user("go")], tools=TOOLS)
    uses = [block for block in told.message["content"] if block["type"] == "tool_use"]
    assert [(use["name"], use["input"]) for use in uses] == calls
    assert all(use["id"] for use in uses) and len({use["id"] for use in uses}) == len(uses)
    assert told.message["stop_reason"] == "tool_use"


TOOL_NAMES = ("Read", "Bash", "BashOutput")
INPUTS = st.dictionaries(st.sampled_from("ab"), st.sampled_from([1, "}", {"x}": '{"'}]))


@given(
    st.lists(st.tuples(st.sampled_from(TOOL_NAMES), INPUTS), min_size=1, max_size=3),
    st.sampled_from(["its own", "0", "none"]),
    st.sampled_from(["first", "each", "none"]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_any_way_to_cut_calls_gives_the_same_calls(
    calls: list[tuple[str, Json]], indexes: str, ids: str, named: bool, chance: random.Random
) -> None:
    target = ModelTarget("lab", "m", "lab/m", ModelTraits())
    reader = ChatReader(ChatRules(), target, ToolNames(TOOL_NAMES))
    reader.answer.begin("1")
    for number, (name, given_input) in enumerate(calls):
        text = json.dumps(given_input)
        cuts = sorted({0, *(chance.randint(0, len(text)) for _ in range(3)), len(text)})
        fragments = [(name if named else "", text[one:two]) for one, two in itertools.pairwise(cuts)]
        fragments = [(name, fragments[0][1]), *fragments[1:]] if chance.random() < 0.5 else [(name, ""), *fragments]
        for place, (head, arguments) in enumerate(fragments):
            index = {"its own": number, "0": 0}.get(indexes)
            made = {"each": f"id{number}", "first": None if place else f"id{number}"}.get(ids)
            reader.feed(json.dumps(calls_chunk(frag(index, made, head, arguments))).encode())
    reader.feed(json.dumps(chunk({}, "tool_calls")).encode())
    reader.end()
    message, _ = whole_message(reader.answer.take())
    assert message is not None and [(each["name"], each["input"]) for each in message["content"]] == calls


async def test_only_the_answer_that_was_asked_for_counts() -> None:
    """A server may make several answers, and send their pieces mixed and in any order."""

    def said(index: int, text: str, finish: str | None = None) -> Json:
        return {"index": index, "delta": {"content": text}, "finish_reason": finish}

    events: list[Json] = [
        {"id": "c", "choices": [said(1, "second"), said(0, "first")]},
        {"id": "c", "choices": [said(1, "", "stop")]},
        calls_chunk(frag(0, "x", "Bash", "{}"), index=1),
        {"id": "c", "choices": [said(0, " of all", "stop")]},
    ]
    async with adapter("vllm", Raw(sse(*events))) as it:
        message = (await it.ask([user("go")], tools=TOOLS)).message
    assert (message["content"], message["stop_reason"]) == ([{"type": "text", "text": "first of all"}], "end_turn")


WRONG = {
    "a call without a name": sse(calls_chunk(frag(0, "x", None, '{"a":1}')), chunk({}, "tool_calls")),
    "an empty name": sse(calls_chunk(frag(0, "x", "", "{}")), chunk({}, "tool_calls")),
    "no JSON": b"data: {'id': 'c'}\n\ndata: [DONE]\n\n",
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_format_that_is_not_understood_is_one_error_and_no_outage(body: bytes, stream: bool) -> None:
    """The worker does not ask again: each of its ten tries would be paid for."""
    async with adapter("vllm", Raw(body)) as it:
        told = await it.ask([user("go")], tools=TOOLS, stream=stream)
    if not stream:
        assert (told.status, json.loads(told.body)["error"]["type"]) == (400, "invalid_request_error")
        return
    assembler = MessageAssembler()
    with pytest.raises(ModelError) as failed:
        for event in told.events:
            assert not isinstance(assembler.feed(event), BlockDone)
    assert RetryPolicy(10).delay(failed.value) is None


@pytest.mark.parametrize("status", [400, 422])
async def test_a_server_that_refuses_stream_options_is_asked_without_them(status: int) -> None:
    detail = {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "not permitted"}]}
    error = Raw(json.dumps(detail).encode(), status, {"content-type": "application/json"})

    def answer(body: Json) -> Said | Raw:
        return error if "stream_options" in body else Said("fine")

    async with adapter("vllm", answer, answer, answer) as it:
        it.server.wants_usage = False
        for _ in range(2):
            told = await it.ask([user("go")])
            assert told.message["content"] == [{"type": "text", "text": "fine"}]
        asked = ["stream_options" in each for each in it.server.requests]
    assert asked == [True, False, False], "it is remembered"


async def test_another_refusal_is_not_asked_again() -> None:
    error = Raw(b'{"error": {"message": "no such model"}}', 400, {"content-type": "application/json"})
    async with adapter("vllm", error, Said("fine")) as it:
        assert "no such model" in (await it.ask([user("go")])).error["message"]
        assert len(it.server.requests) == 1
