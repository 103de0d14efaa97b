"""Calls that fail: what is retried, what is withdrawn, what stands, and what the person reads in the end."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.remote.agent_kit import (
    Json,
    Reply,
    World,
    assert_valid,
    block_stop,
    calls,
    closing,
    error_event,
    error_reply,
    json_delta,
    make_world,
    opening,
    says,
    settle,
    sse,
    text_block,
    text_delta,
    text_start,
    thinking_block,
    tool_block,
    tool_start,
)

from ccb.remote.agent.conversation import Conversation
from ccb.remote.model.model_request import ModelLinkError, WindowSettings
from ccb.remote.tools.tool_contract import ToolDeclaration, ToolResult
from ccb.tunnel.wire.model_facts import ModelFacts


def _retries(world: World) -> list[Json]:
    return world.journal.messages("system", "api_retry")


def _texts(world: World) -> list[str]:
    blocks = [line["message"]["content"][0] for line in world.journal.messages("assistant")]
    return [block["text"] for block in blocks if block["type"] == "text"]


async def _patient(world: World, *steps: tuple[float, asyncio.Event]) -> str:
    """Return the answer of a turn in which each event happens after so many seconds, and nothing is asked again."""
    turn = world.start()
    for seconds, event in steps:
        await world.clock.advance(seconds)
        assert not _retries(world)
        event.set()
    return str((await turn)["result"])


async def test_an_overloaded_model_is_asked_again_under_a_new_call_id() -> None:
    world = make_world(error_reply(529, "overloaded_error", "Overloaded"), says("hi"))
    result = await world.turn()
    assert result["subtype"] == "success"
    assert len(set(world.transport.call_ids)) == 2
    assert world.transport.bodies[0] == world.transport.bodies[1]
    (note,) = _retries(world)
    assert (note["attempt"], note["max_retries"], note["error_status"]) == (1, 10, 529)
    assert note["error"] == "overloaded"
    assert 500 <= note["retry_delay_ms"] <= 563


@pytest.mark.parametrize("kind", ["laptop_unreachable", "laptop_failed"])
async def test_what_the_proxy_says_for_itself_has_no_status_and_is_tried_as_often_as_any_failure(kind: str) -> None:
    said = "this laptop cannot reach api.test: no route; check the network"
    world = make_world(*[error_reply(503, kind, said)] * 3, max_retries=2)
    result = await world.turn()
    assert [
        (note["error"], note["error_status"], note["api_error_type"], note["message"]) for note in _retries(world)
    ] == [("unknown", None, kind, said)] * 2
    assert (result["api_error_status"], result["result"]) == (None, f"API Error: {said}")
    (line,) = world.journal.messages("assistant")
    assert line["api_error_type"] == kind and "api_error_status" not in line


async def test_giving_up_is_a_readable_error() -> None:
    world = make_world(*[error_reply(500, message="oops")] * 3, max_retries=2)
    result = await world.turn()
    assert (result["subtype"], result["is_error"]) == ("success", True)
    assert (result["terminal_reason"], result["api_error_status"]) == ("api_error", 500)
    assert result["result"] == "API Error: 500 oops"
    (line,) = world.journal.messages("assistant")
    assert line["is_api_error_message"] is True and line["error"] == "server_error"
    assert line["message"]["model"] == "<synthetic>"
    assert [m["role"] for m in world.history()] == ["user"], "the error is no part of the conversation"
    world.transport.replies.append(says("back"))
    assert (await world.turn())["result"] == "back"
    assert_valid(world.history())


def _json(body: object, kind: str = "application/json") -> Reply:
    return Reply([json.dumps(body).encode()], 200, {"content-type": kind})


_WHOLE: Json = {
    "id": "msg_w",
    "type": "message",
    "role": "assistant",
    "model": "claude-test",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "Look", "input": {"key": "a"}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 7, "output_tokens": 5},
}


_QUOTA: Json = {"message": "no credit is left", "type": "billing_error"}


@pytest.mark.parametrize(
    "reply",
    [
        Reply([sse({"type": "error", "error": _QUOTA})]),
        Reply([opening(), text_start(0), sse({"type": "error", "error": _QUOTA})]),
        Reply([b"data: " + json.dumps({"error": _QUOTA}).encode() + b"\n\n"]),
        Reply([b"event: error\ndata: " + json.dumps(_QUOTA).encode() + b"\n\n"]),
        _json({"type": "error", "error": _QUOTA}),
        _json({"error": {**_QUOTA, "code": 402}}),
        _json({"error": _QUOTA}, "text/event-stream"),
    ],
    ids=["event", "in the middle", "no type", "by its name", "json", "json with a code", "json that is no stream"],
)
async def test_an_error_in_a_200_shows_its_message_and_its_class(reply: Reply) -> None:
    world = make_world(reply)
    result = await world.turn()
    assert result["is_error"] and result["api_error_status"] == 402
    assert result["result"] == "API Error: 402 no credit is left (billing_error)"
    (line,) = world.journal.messages("assistant")
    assert (line["error"], line["api_error_type"]) == ("billing_error", "billing_error")
    assert not _retries(world)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (_json({"error": "the key has expired", "code": 401}), "401 the key has expired"),
        (_json({"error": True, "detail": "no such route", "status": 404}), "404 no such route"),
        (_json({"error": {"message": "no credit", "code": "402"}}), "402 no credit (api_error)"),
        (_json({"detail": "no such deployment"}), "no such deployment"),
        (Reply([b"event: error\ndata: upstream is gone\n\n"]), "500 upstream is gone (api_error)"),
        (Reply([b"Please log in."], 200, {"content-type": "text/plain"}), "'text/plain'"),
        (Reply([b"Please log in."], 200, {"content-type": "text/plain"}), "Please log in."),
        (Reply([b"<html>Bad " * 1000], 400, {"content-type": "text/html"}), "API Error: 400 <html>Bad"),
        (error_reply(502, "laptop_unreachable", "no TLS", **{"x-should-retry": "false"}), "API Error: no TLS"),
        (_json({"type": "error"}), "api_error"),
        (_json({**_WHOLE, "content": "text"}), "is the base URL right?"),
        (_json({**_WHOLE, "content": [1]}), "not an object"),
        (_json([1]), "not an object"),
    ],
)
async def test_an_error_in_a_200_that_says_it_in_its_own_way_is_told_as_well(reply: Reply, said: str) -> None:
    world = make_world(*[reply] * 3, max_retries=1)
    result = await world.turn()
    assert said in result["result"] and len(result["result"]) < 500
    assert result["terminal_reason"] == "api_error" and len(_retries(world)) <= 1


@pytest.mark.parametrize("events", [text_block(0, "no start"), opening() + block_stop(3), b"data: [1]\n\n"])
async def test_an_answer_whose_format_stays_wrong_is_no_outage(events: bytes) -> None:
    world = make_world(*[Reply([events])] * 3)
    result = await world.turn()
    assert result["is_error"] and len(world.transport.call_ids) == 2


@pytest.mark.parametrize(
    "reply",
    [
        Reply(head_error=ModelLinkError("upstream unreachable")),
        Reply([]),
        Reply([opening()]),
        Reply([opening(), text_start(0), text_delta(0, "Hel"), ModelLinkError("connection reset")]),
        Reply([opening(), text_start(0), text_delta(0, "Hel")[:40]]),
        Reply([opening(), text_block(0, "Hello")]),
        Reply([opening(), text_start(0), text_delta(0, "Hel"), error_event("overloaded_error")]),
        Reply([opening(), b"data: {nonsense}\n\n"]),
        Reply([block_stop(0)]),
    ],
    ids=["no head", "nothing", "opening", "reset", "cut in event", "text only", "overloaded", "nonsense", "no start"],
)
async def test_a_stream_that_dies_is_asked_again_and_shows_nothing_twice(reply: Reply) -> None:
    world = make_world(reply, says("Hello!", "msg_2"))
    result = await world.turn()
    assert result["result"] == "Hello!"
    assert _texts(world) == ["Hello!"]
    assert len(_retries(world)) == 1
    assert not world.journal.facts("withdrawn")
    assert_valid([*world.history(), {"role": "user", "content": [{"type": "text", "text": "x"}]}])


async def test_after_two_cut_streams_the_answer_is_asked_for_in_one_piece() -> None:
    cut = Reply([opening(), text_start(0), text_delta(0, "I lo")])
    world = make_world(cut, cut, _json(_WHOLE), says("Done."))
    assert (await world.turn())["result"] == "Done."
    asked = [json.loads(body) for body in world.transport.bodies]
    assert [each["stream"] for each in asked] == [True, True, False, True]
    assert {**asked[2], "stream": True} == asked[1]
    assert _texts(world) == ["I look.", "Done."]
    answer, results = world.history()[1:3]
    assert answer["content"] == _WHOLE["content"] and results["content"][0]["tool_use_id"] == "t1"
    assert_valid(world.history()[:-1])


async def test_a_lost_link_is_no_reason_to_do_without_streams() -> None:
    lost = Reply([opening(), text_start(0), ModelLinkError("connection reset")])
    world = make_world(lost, lost, lost, says("Done."))
    assert (await world.turn())["result"] == "Done."
    assert all(json.loads(body)["stream"] for body in world.transport.bodies)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("first", range(7))
async def test_every_cut_of_an_answer_ends_well(first: int) -> None:
    whole = opening() + text_block(0, "I look.") + tool_block(1, "t1", "Look", {"key": "a"}) + closing("tool_use")
    for cut in range(first, len(whole), 7):
        whole_again = calls(("t2", "Look", {"key": "a"}), message_id="m2")
        world = make_world(Reply([whole[:cut]]), whole_again, says("ok", "m3"), says("ok", "m4"))
        result = await world.turn()
        assert (result["subtype"], result["is_error"]) == ("success", False)
        assert world.log.count("end a") in (1, 2)
        assert len(_retries(world)) == (0 if "t1" in str(world.history()) else 1)
        assert_valid(world.history())
        assert [m.api() for m in Conversation.from_records(world.journal.records).messages] == world.history()


async def test_a_told_block_of_a_lost_answer_is_withdrawn() -> None:
    dying = Reply([opening("msg_lost"), thinking_block(0, "hm"), text_start(1), text_delta(1, "Hel")])
    world = make_world(dying, says("Hello!", "msg_2"))
    await world.turn()
    assert world.journal.facts("withdrawn") == [{"message_id": "msg_lost"}]
    assert [b["type"] for b in world.history()[1]["content"]] == ["text"]
    rebuilt = Conversation.from_records(world.journal.records)
    assert [m.api() for m in rebuilt.messages] == world.history()


async def test_watchers_see_an_abandoned_answer_closed() -> None:
    held = Reply([opening("msg_0"), text_block(0, "Hello")])
    dying = Reply([opening("msg_lost"), text_start(0), text_delta(0, "Hel"), error_event("overloaded_error")])
    world = make_world(held, dying, says("Hello!", "msg_2"), partial=True)
    await world.turn()
    events = world.journal.stream_events()
    types = [event["type"] for event in events]
    second = types.index("message_start", 1)
    assert types[:second].count("content_block_stop") == 1 and types[second - 1] == "message_stop"
    again = types.index("message_start", second + 1)
    assert events[again - 2 : again] == [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_stop", "abandoned_blocks": {"api_message_id": "msg_lost", "from_block_index": 0}},
    ]
    kinds = [body.get("subtype") or body.get("event", {}).get("type") for _, body in world.journal.all]
    assert kinds.index("api_retry") > kinds.index("message_stop")


@pytest.mark.parametrize("death", [ModelLinkError("gone"), error_event("overloaded_error"), b""])
async def test_after_a_finished_tool_use_nothing_is_asked_again(death: bytes | Exception) -> None:
    told = text_block(0, "I look.") + tool_block(1, "t1", "Look", {"key": "a"}) + text_start(2)
    world = make_world(Reply([opening(), told, death]), says("ok", "msg_2"), partial=True)
    assert (await world.turn())["result"] == "ok"
    assert not _retries(world) and world.log == ["start a", "end a"]
    (synthetic,) = [line for line in world.journal.messages("assistant") if line.get("is_api_error_message")]
    assert synthetic["message"]["content"][0]["text"].startswith("API Error: Connection lost mid-response")
    stop = next(event for event in world.journal.stream_events() if "abandoned_blocks" in event)
    assert stop["abandoned_blocks"] == {"api_message_id": "msg_1", "from_block_index": 2}
    assert_valid(world.history())


async def test_a_cut_after_the_stop_reason_costs_nothing() -> None:
    whole = opening() + text_block(0, "Hello") + closing()
    world = make_world(Reply([whole[: -len(sse({"type": "message_stop"}))], ModelLinkError("gone")]), partial=True)
    assert (await world.turn())["result"] == "Hello"
    assert world.journal.stream_events()[-1] == {"type": "message_stop"}


_EMPTY = json.dumps({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ""}})
_NOISE = {
    "nothing": b"",
    "pings": sse({"type": "ping"}),
    "comments": b": keep-alive\n\n",
    "empty deltas": f"data: {_EMPTY}\n\n".encode(),
    "unknown events": sse({"type": "still_here", "index": 0}),
    "usage without an end": sse({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1}}),
    "pieces of an event": b"data: {",
}


@pytest.mark.parametrize(
    ("begun", "noise"),
    [(opening() + text_start(0), noise) for noise in _NOISE]
    + [(b"", noise) for noise in ("nothing", "pings", "comments", "unknown events", "pieces of an event")],
)
async def test_a_model_that_says_nothing_for_five_minutes_is_asked_once_more(begun: bytes, noise: str) -> None:
    def silent() -> tuple[Reply, list[asyncio.Event]]:
        beats = [asyncio.Event() for _ in range(60)]
        chunks: list[bytes | Exception | asyncio.Event] = [begun]
        for beat in beats:
            chunks += [beat, _NOISE[noise]]
        return Reply([*chunks, asyncio.Event()]), beats

    (first, beats), (second, _) = silent(), silent()
    if noise == "empty deltas" and not begun:
        pytest.skip("it is no stream of the Messages API")
    world = make_world(first, second, says("never asked for"))
    turn = world.start()
    for beat in beats[:29]:
        await world.clock.advance(10)
        beat.set()
    await settle()
    assert not _retries(world)
    await world.clock.advance(10)
    (retry,) = _retries(world)
    assert "said nothing for 300 s" in retry["message"] and (retry["attempt"], retry["max_retries"]) == (1, 1)
    assert world.transport.closed == 1, "the silent call is given up before it is made again"
    result = await world.clock.run_until_done(turn)
    assert result["is_error"] and "said nothing for 300 s" in result["result"]
    assert len(world.transport.replies) == 1, "one new try"


async def test_a_silence_is_counted_down_until_the_model_goes_on() -> None:
    more = asyncio.Event()
    world = make_world(Reply([opening(), text_start(0), more, text_delta(0, "Hi"), block_stop(0), closing()]))
    assert await _patient(world, (150, more)) == "Hi"
    *waits, last = [body for _, body in world.journal.all if body.get("subtype") == "model_silent"]
    told = [(each["silent_ms"] // 1000, each["retry_in_ms"] // 1000) for each in waits]
    assert told == [(30, 270), (60, 240), (120, 180)], "how long it lasts, and when the model is asked again"
    assert last["retry_in_ms"] is None and not world.journal.messages("system", "model_silent"), "not journalled"


async def test_a_server_that_reads_the_prompt_behind_its_head_is_waited_for() -> None:
    head, more = asyncio.Event(), asyncio.Event()
    world = make_world(Reply([more, opening(), text_block(0, "late"), closing()], head_wait=head))
    assert await _patient(world, (200, head), (280, more)) == "late"
    assert not _retries(world)


async def test_a_model_that_thinks_is_waited_for_twice_as_long() -> None:
    world = make_world(Reply([opening(), asyncio.Event()]), says("hi"), model="local/thinker")
    world.agent._deps.models.learn("local/thinker", ModelFacts(efforts=("low", "high")))
    turn = world.start()
    await world.clock.advance(599)
    assert not _retries(world)
    await world.clock.advance(2)
    assert len(_retries(world)) == 1
    assert (await world.clock.run_until_done(turn))["result"] == "hi"


async def test_what_the_laptop_has_of_an_answer_is_fetched_before_the_model_is_asked_again() -> None:
    rest = asyncio.Event()
    world = make_world(Reply([opening(), text_start(0), rest, text_delta(0, "Hi"), block_stop(0), closing()]))
    asked: list[str] = []

    def resume(call_id: str) -> float:
        asked.append(call_id)
        rest.set()
        return 0.0

    world.transport.resume = resume
    assert (await world.turn())["result"] == "Hi"
    assert asked == world.transport.call_ids, "the same call, which is paid for once"


async def test_a_request_that_is_still_being_sent_is_no_silence() -> None:
    head = asyncio.Event()
    world = make_world(Reply([opening(), text_block(0, "late"), closing()], head_wait=head))
    world.transport.resume = lambda call_id: min(world.clock.now(), 1_900.0)  # sent until then
    assert await _patient(world, (1_180, head)) == "late"


async def test_silence_while_the_link_is_down_is_not_the_models() -> None:
    link: list[float | None] = [None]
    more = asyncio.Event()
    world = make_world(Reply([opening(), more, text_block(0, "patience"), closing()]), link_up_since=lambda: link[0])
    turn = world.start()
    await world.clock.advance(10_000)
    link[0] = world.clock.now()
    await world.clock.advance(80)
    assert not _retries(world)
    more.set()
    assert (await turn)["result"] == "patience"


async def test_a_cut_off_answer_is_silently_asked_for_with_a_higher_limit() -> None:
    world = make_world(says("The answer is", stop_reason="max_tokens"), says("The answer is 42.", "msg_2"))
    result = await world.turn()
    assert [world.transport.request_json(i)["max_tokens"] for i in range(2)] == [8000, 64000]
    assert _texts(world) == ["The answer is 42."]
    assert result["num_turns"] == 1
    assert result["usage"]["output_tokens"] == 40, "both answers were paid for"
    assert [m["role"] for m in world.history()] == ["user", "assistant"]


@pytest.mark.parametrize(
    "cut", [tool_block(0, "t1", "Look", '{"key": "a'), tool_start(0, "t1", "Look") + block_stop(0)]
)
async def test_a_tool_input_cut_by_the_limit_is_asked_for_again_with_a_higher_one(cut: bytes) -> None:
    whole = calls(("t1", "Look", {"key": "a"}), message_id="msg_2")
    world = make_world(Reply([opening(), cut, closing("max_tokens")]), whole, says("ok", "msg_3"))
    await world.turn()
    assert world.log == ["start a", "end a"]
    assert len(world.journal.messages("user")) == 1
    assert [world.transport.request_json(i)["max_tokens"] for i in range(2)] == [8000, 64000]


def _optional(world: World) -> World:
    """Let the tool Look have no required fields."""
    traits = world.read.declaration.traits
    world.read.declaration = ToolDeclaration(traits, "A tool for tests.", {"type": "object", "properties": {}})
    return world


_BARE = tool_start(0, "t1", "Look") + json_delta(0, "") + block_stop(0)
_PART: Json = {"type": "message", "content": [{"type": "tool_use", "id": "t1", "name": "Look", "input": {"key": "a"}}]}


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
@pytest.mark.parametrize(
    "body",
    [_BARE, tool_start(0, "t1", "Look") + block_stop(0), tool_block(0, "t1", "Look", {})],
    ids=["empty delta", "no delta", "made by the server"],
)
async def test_a_call_that_was_cut_before_its_input_does_not_run(reason: str, body: bytes) -> None:
    first = Reply([opening() + body, closing(reason)])
    world = _optional(make_world(first, says("ok", "msg_2"), model="claude-3-haiku-20240307"))
    await world.turn()
    assert world.log == []
    (told,) = world.history()[2]["content"]
    assert told["is_error"] and "before the input of this call was whole" in told["content"]


async def test_of_an_answer_in_one_piece_the_last_call_does_not_run_if_it_was_cut() -> None:
    cut = _json({**_PART, "id": "msg_1", "role": "assistant", "model": "m", "stop_reason": "max_tokens"})
    world = make_world(cut, says("ok", "msg_2"), model="claude-3-haiku-20240307")
    await world.turn()
    assert world.log == [] and "before the input" in str(world.history()[2])


@pytest.mark.parametrize("after", [closing("tool_use"), text_block(1, "So.") + closing("end_turn")])
async def test_a_call_without_input_runs_once_its_end_is_sure(after: bytes) -> None:
    world = _optional(make_world(Reply([opening() + _BARE, after]), says("ok", "msg_2")))
    world.read.results[""] = ToolResult("looked")
    await world.turn()
    assert "t1" in str(world.history()[1]) and "error" not in str(world.history()[2])


async def test_a_call_without_input_does_not_run_if_the_person_interrupts_before_its_end_is_sure() -> None:
    world = _optional(make_world(Reply([opening() + _BARE, asyncio.Event()])))
    turn = world.start()
    await settle()
    world.agent.interrupt()
    assert (await turn)["is_error"] and world.log == []
    assert "not run" in str(world.history()[2])
    assert_valid(world.history())


async def test_after_a_finished_call_one_without_input_does_not_run_if_the_stream_dies() -> None:
    both = tool_block(0, "t0", "Look", {"key": "a"}) + tool_start(1, "t1", "Look") + block_stop(1)
    world = _optional(make_world(Reply([opening() + both]), says("ok", "msg_2")))
    await world.turn()
    assert world.log == ["start a", "end a"]
    first, second = world.history()[2]["content"]
    assert "is_error" not in first and second["is_error"] and "broke off" in second["content"]
    assert_valid(world.history())


async def test_an_answer_still_too_long_goes_on_in_pieces_and_after_three_the_error_is_released() -> None:
    parts = [says(f"part {i} ", f"m{i}", "max_tokens") for i in range(3)]
    world = make_world(*parts, says("end", "m9"))
    result = await world.turn()
    assert len([line for line in world.journal.messages("user") if line.get("isSynthetic")]) == 2
    assert (result["result"], result["is_error"]) == ("part 1 part 2 end", False)
    assert_valid([*world.history(), {"role": "user", "content": [{"type": "text", "text": "x"}]}])
    world = make_world(*[says(f"part {i}", f"m{i}", "max_tokens") for i in range(5)])
    result = await world.turn()
    assert (result["subtype"], result["is_error"], result["stop_reason"]) == ("success", True, "max_tokens")
    assert world.journal.messages("assistant")[-1]["error"] == "max_output_tokens"
    assert not world.transport.replies


async def test_a_refusal_is_an_error_and_an_empty_answer_is_said() -> None:
    cut = says("cut", stop_reason="model_context_window_exceeded")
    full = await make_world(cut, window=WindowSettings(auto=False)).turn()
    assert (full["is_error"], full["terminal_reason"]) == (True, "prompt_too_long")
    thought = Reply([opening("m2"), thinking_block(0, "hm"), closing()])
    world = make_world(Reply([opening(), closing("refusal")]), thought)
    refused = await world.turn()
    assert refused["is_error"] and refused["result"].startswith("API Error: the model refused to answer")
    assert world.journal.messages("assistant")[-1]["error"] == "invalid_request"
    empty = await world.turn()
    assert (empty["is_error"], empty["result"]) == (False, "")
    (note,) = world.journal.messages("system", "informational")
    assert note["content"] == "The model ended its turn without an answer."


async def test_an_answer_without_a_stop_reason_still_counts() -> None:
    world = make_world(Reply([opening(), text_block(0, "Hello"), sse({"type": "message_stop"})]))
    result = await world.turn()
    assert (result["result"], result["stop_reason"], result["is_error"]) == ("Hello", None, False)
    assert _texts(world) == ["Hello"]
