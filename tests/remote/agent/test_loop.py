"""A turn on the wire: what is emitted, in which order, and what the model is sent."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.remote.agent_kit import (
    Json,
    Reply,
    SpyTool,
    assert_valid,
    calls,
    closing,
    make_world,
    opening,
    says,
    text_block,
    thinking_block,
    tool_block,
)

from ccb.remote.agent.agent_histories import Ledger
from ccb.remote.agent.conversation import Conversation
from ccb.remote.agent.turn_state import Prompt
from ccb.remote.model.retry import ModelError
from ccb.tunnel.wire import ndjson
from ccb.tunnel.wire.journal_records import InputRecord, MessageRecord, PromptItem, PromptRecord, record_of, replay
from ccb.tunnel.wire.messages import UserMessage, parse_message


async def test_the_request_is_what_the_api_expects() -> None:
    world = make_world(says("x"))
    await world.turn("do it")
    method, path, headers = world.transport.heads[0]
    assert (method, path) == ("POST", "/v1/messages")
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["user-agent"] == "ccb/9.9.9"
    assert not {"x-api-key", "authorization"} & {name.lower() for name in headers}
    sent = world.transport.request_json(0)
    assert (sent["model"], sent["max_tokens"], sent["stream"]) == ("claude-sonnet-4-5", 8000, True)
    assert [tool["name"] for tool in sent["tools"]] == ["Look", "Change"]
    assert "cache_control" in sent["tools"][-1]
    (message,) = sent["messages"]
    assert message["role"] == "user"
    assert message["content"] == [
        {"type": "text", "text": "CLAUDE.md says hi"},
        {"type": "text", "text": "do it", "cache_control": {"type": "ephemeral"}},
    ]
    assert "6f1c1f5e" not in sent["metadata"]["user_id"]


async def test_a_tool_call_and_its_result() -> None:
    world = make_world(calls(("toolu_1", "Look", {"key": "a"})), says("Done.", "msg_2"))
    result = await world.turn()
    called = ["assistant tool_use toolu_1", "user tool_result toolu_1"]
    assert world.journal.outline() == ["init", *called, "assistant text Done.", "result success"]
    assert (result["is_error"], result["result"], result["num_turns"]) == (False, "Done.", 2)
    assert (result["stop_reason"], result["terminal_reason"]) == ("end_turn", "completed")
    assert result["api_error_status"] is None and not world.journal.stream_events(), "nobody has asked for events"
    assert world.journal.committed == len(world.journal.records)
    line = world.journal.messages("user")[0]
    assert line["tool_use_result"] == {"key": "a"}
    assert line["message"]["content"] == [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "did a"}]
    sent = world.transport.request_json(1)["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert_valid(world.history())


async def test_one_line_for_each_block_under_one_message_id() -> None:
    blocks = [thinking_block(0, "let me see"), text_block(1, "I look."), tool_block(2, "toolu_1", "Look", {"key": "a"})]
    world = make_world(Reply([opening("msg_7"), *blocks, closing("tool_use")]), says("Done.", "msg_8"))
    await world.turn()
    lines = world.journal.messages("assistant")
    assert [line["message"]["id"] for line in lines] == ["msg_7", "msg_7", "msg_7", "msg_8"]
    assert all(len(line["message"]["content"]) == 1 and line["message"]["stop_reason"] is None for line in lines)
    assert lines[0]["request_id"] == "req_1"
    assert len(world.history()) == 4


async def test_the_prefix_of_requests_never_changes() -> None:
    world = make_world(
        calls(("t1", "Look", {"key": "ä"})),
        calls(("t2", "Change", {"key": "b"}), message_id="msg_2"),
        says("ok", "msg_3"),
        says("again", "msg_4"),
    )
    await world.turn("one")
    await world.turn("two")
    mark = rb',"cache_control":\{"type":"ephemeral"\}'
    plain = [re.sub(mark, b"", body) for body in world.transport.bodies]
    for earlier, later in zip(plain, plain[1:]):
        stable = earlier[: earlier.rindex(b'],"model":')]
        assert later.startswith(stable)
        assert later[len(stable) :].startswith(b',{"role":"assistant"')
    head = world.transport.bodies[0][: world.transport.bodies[0].index(b'"messages":[')]
    assert all(body.startswith(head) for body in world.transport.bodies)
    for i in range(len(world.transport.bodies)):
        assert world.transport.bodies[i].count(b"cache_control") <= 4


async def test_an_added_tool_is_offered_from_the_next_turn_on_and_changes_the_prefix_once() -> None:
    world = make_world(calls(("t1", "Look", {"key": "a"})), *(says("ok", f"msg_{number}") for number in range(2, 6)))
    world.read.gates["a"] = asyncio.Event()
    turn = world.start()
    await world.read.until("start a")
    world.agent.config.tools.add([SpyTool("mcp__a__x", read_only=True, log=world.log)])
    world.read.gates["a"].set()
    await world.clock.run_until_done(turn)
    await world.turn()
    await world.turn()
    world.agent.config.tools.add([SpyTool("mcp__a__x", read_only=True, log=world.log)])
    await world.turn()
    offered = [[tool["name"] for tool in world.transport.request_json(i)["tools"]] for i in range(5)]
    assert offered == 2 * [["Look", "Change"]] + 3 * [["Look", "Change", "mcp__a__x"]]
    heads = [body[: body.index(b'"messages":[')] for body in world.transport.bodies]
    assert heads[0] == heads[1]
    assert heads[2] == heads[3] == heads[4], "the same declaration again, as after a server has reconnected"
    assert [message["tools"] for message in world.journal.messages("system", "init")] == [offered[0], *offered[2:]]


async def test_the_system_prompt_is_gathered_once() -> None:
    world = make_world(says("one"), says("two", "msg_2"))
    texts = iter(["first", "second"])

    async def changing() -> list[Json]:
        return [{"type": "text", "text": next(texts)}]

    world.agent.config.prompts.system = changing  # type: ignore[method-assign]
    await world.turn()
    await world.turn()
    assert [world.transport.request_json(i)["system"][0]["text"] for i in range(2)] == ["first", "first"]


async def test_unchanged_messages_are_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(*[calls((f"t{i}", "Look", {"key": "a"}), message_id=f"m{i}") for i in range(30)], says("x"))
    await world.turn()
    counted: list[str] = []

    def dump(data: Json) -> str:
        counted.append(data["role"])
        return ndjson.dump(data)

    monkeypatch.setattr("ccb.remote.model.model_request.sendable", dump)
    world.transport.replies.append(says("y", "msg_y"))
    await world.turn("more")
    assert len(counted) <= 4


async def test_a_restart_from_the_journal_sends_the_same_bytes() -> None:
    def script() -> list[Reply]:
        return [
            calls(("t1", "Look", {"key": "a"}), ("t2", "Change", {"key": "b"})),
            Reply([opening("msg_2"), thinking_block(0, "hm"), text_block(1, "Done."), closing()]),
            says("more", "msg_3"),
        ]

    lasting = make_world(*script())
    await lasting.turn("one")
    before = len(lasting.journal.records)
    await lasting.turn("two")

    events = lasting.journal.records[:before]
    conversation, ledger = Conversation(), Ledger()
    replay(events, conversation, ledger)
    restarted = make_world(script()[2], conversation=conversation, ledger=ledger)
    result = await restarted.turn("two")
    assert restarted.transport.bodies[0] == lasting.transport.bodies[2]
    assert result["total_cost_usd"] == lasting.journal.messages("result")[1]["total_cost_usd"]


async def test_a_turn_after_a_crash_closes_what_was_left_open() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "Look", "input": {"key": "a"}}
    line = {"type": "assistant", "message": {"id": "m0", "role": "assistant", "content": [use]}}
    prompt = PromptRecord([], [PromptItem(content=[{"type": "text", "text": "go"}])])
    crashed = Conversation.from_records([record_of(prompt), record_of(MessageRecord(line))])
    world = make_world(says("x"), conversation=crashed)
    await world.turn()
    assert world.journal.outline()[1] == "user tool_result t1"
    assert_valid(world.history())


async def test_prompts_of_journalled_inputs_are_in_the_journal_once() -> None:
    world = make_world(says("x"))
    body = {"type": "user", "message": {"role": "user", "content": "from the client"}}
    world.journal.emit(InputRecord("i1", body))
    line = parse_message(body)
    assert isinstance(line, UserMessage)
    await world.clock.run_until_done(world.agent.run_turn([Prompt.from_input("i1", line)]))
    assert world.journal.facts("prompt")[0]["items"] == [{"input": "i1"}]
    assert [m.api() for m in Conversation.from_records(world.journal.records).messages] == world.history()
    assert world.history()[0]["content"][1] == {"type": "text", "text": "from the client"}


async def test_usage_and_cost_add_up() -> None:
    world = make_world(calls(("t1", "Look", {"key": "a"})), says("x", "msg_2"), says("y", "msg_3"))
    first = await world.turn()
    second = await world.turn()
    assert (first["usage"]["input_tokens"], first["usage"]["output_tokens"]) == (200, 40)
    assert second["usage"]["input_tokens"] == 100
    one = ((100 + 1.25 * 5 + 0.1 * 10) * 3 + 20 * 15) / 1e6
    assert first["total_cost_usd"] == pytest.approx(2 * one)
    assert second["total_cost_usd"] == pytest.approx(3 * one)
    entry = second["modelUsage"]["claude-sonnet-4-5"]
    assert (entry["inputTokens"], entry["outputTokens"]) == (300, 60)
    assert entry["costUSD"] == pytest.approx(3 * one)
    assert entry["contextWindow"] == 200_000


async def test_max_turns_allows_that_many_model_calls() -> None:
    script = [calls((f"t{i}", "Look", {"key": "a"}), message_id=f"m{i}") for i in range(2)]
    world = make_world(*script, max_turns=2)
    result = await world.turn()
    assert (result["subtype"], result["is_error"], result["num_turns"]) == ("error_max_turns", True, 3)
    assert result["errors"] == ["Reached maximum number of turns (2)"]
    assert (result["terminal_reason"], result["stop_reason"]) == ("max_turns", "tool_use")
    assert "result" not in result
    assert_valid(world.history())


async def test_stream_events_when_asked_for() -> None:
    world = make_world(
        Reply([opening(), text_block(0, "I look."), tool_block(1, "t1", "Look", {"key": "a"}), closing("tool_use")]),
        says("Done.", "msg_2"),
        partial=True,
    )
    await world.turn()
    first_answer = [
        body["event"]["type"] if body["type"] == "stream_event" else body["type"]
        for kind, body in world.journal.all
        if kind in ("message", "progress") and body["type"] in ("stream_event", "assistant")
    ]
    start, delta, end = "content_block_start", "content_block_delta", ["assistant", "content_block_stop"]
    blocks = [start, delta, *end, start, delta, delta, *end]
    assert first_answer[:13] == ["message_start", *blocks, "message_delta", "message_stop", "message_start"]
    statuses = [body for kind, body in world.journal.all if kind == "progress" and body["type"] == "system"]
    assert [body["status"] for body in statuses] == ["requesting", "requesting"]


async def test_a_model_switch_counts_from_the_next_call_and_drops_old_thinking() -> None:
    thinking = Reply([opening(), thinking_block(0, "hm"), text_block(1, "A"), closing()])
    world = make_world(thinking, says("B", "msg_2"), says("C", "m3"))
    await world.turn()
    world.agent.set_model("opus")
    await world.turn()
    sent = world.transport.request_json(1)
    assert sent["model"] == world.agent.model == "claude-opus-4-5"
    assert all(b["type"] != "thinking" for m in sent["messages"] for b in m["content"])
    assert Conversation.from_records(world.journal.records).model == "claude-opus-4-5"
    world.agent.set_model(None)
    await world.turn()
    assert world.transport.request_json(2)["model"] == "claude-sonnet-4-5"


def test_prose_of_errors_tells_what_to_do() -> None:
    assert "/login" in ModelError("bad key", status=401).prose("m")
    assert "ccb auth status" in ModelError("not for you", status=403).prose("m")
    assert "--model" in ModelError("nope", status=404).prose("m")
    later = ModelError("slow down", status=429, retry_after=7_500).prose("m")
    assert re.fullmatch(r"API Error: 429 slow down · send it again in 126 min, after [A-Z][a-z]+ \d\d:\d\d UTC", later)
    assert ModelError("prompt is too long: 5 > 4", status=400).prompt_too_long
