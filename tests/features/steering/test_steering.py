"""Steering in the middle of a session: model, effort, thinking and the fallback on overload, with a valid history."""

from __future__ import annotations

import json

from tests.remote.agent_kit import Reply, calls, closing, opening, says, text_block, thinking_block, tool_block
from tests.remote.worker_process import WorkerHost
from tests.support.model.model_script import Json

from ccb.tunnel.wire.frames import Event
from ccb.tunnel.wire.session_options import SessionOptions

_SONNET, _OPUS = "claude-sonnet-4-5", "claude-opus-4-5"


def thinks(*blocks: bytes, message_id: str, stop: str = "end_turn") -> Reply:
    """An answer that begins with thinking."""
    return Reply([opening(message_id), thinking_block(0, "hm"), *blocks, closing(stop)])


def kinds(request: Json) -> list[list[str]]:
    return [[block["type"] for block in message["content"]] for message in request["messages"]]


async def test_thinking_goes_on_and_off_between_turns_and_over_a_restart(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions(max_thinking_tokens=4000))
    first = await laptop.sent("one", thinks(text_block(1, "1"), message_id="m1"))
    assert first["thinking"] == {"type": "enabled", "budget_tokens": 4000} and first["max_tokens"] > 4000
    assert "interleaved-thinking" in first["betas"]
    await laptop.control("set_max_thinking_tokens", max_thinking_tokens=0)
    second = await laptop.sent("two", says("2", "m2"))
    assert "thinking" not in second
    assert kinds(second)[1] == ["thinking", "text"]  # signed thinking stays: the prefix of the history is the same
    await laptop.stop()
    again = await host.drive(session, have=laptop.last_seq)
    assert "thinking" not in await again.sent("three", says("3", "m3"))
    await again.control("set_max_thinking_tokens", max_thinking_tokens=2000)
    await again.say("four")
    assert (await again.tell(says("4", "m4")))["thinking"]["budget_tokens"] == 2000


async def test_thinking_that_is_switched_on_waits_for_a_history_that_allows_it(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions(allowed_tools=["Bash"]))
    await laptop.begin("one", calls(("t1", "Bash", {"command": "sleep 60"})))
    await laptop.next(Event, lambda event: event.kind == "tool_start")
    await laptop.control("set_max_thinking_tokens", max_thinking_tokens=2000)
    await laptop.control("interrupt")
    await laptop.message("result")
    assert "thinking" not in await laptop.sent("two", says("2", "m2"))
    await laptop.say("three")
    assert "thinking" in await laptop.tell(says("3", "m3"))


async def test_another_model_in_the_middle_of_a_turn_gets_no_earlier_thinking(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions(allowed_tools=["Bash"], max_thinking_tokens=2000))
    await laptop.say("one")
    command = {"command": "while [ ! -e go ]; do sleep 0.02; done"}
    reply = thinks(tool_block(1, "t1", "Bash", command), message_id="m1", stop="tool_use")
    await laptop.tell(reply)
    await laptop.next(Event, lambda event: event.kind == "tool_start")
    await laptop.request("set_model", model="opus")
    (host.project / "go").touch()
    request = await laptop.tell(says("done", "m2"))
    assert (request["model"], "thinking" in request, kinds(request)[1]) == (_OPUS, False, ["tool_use"])
    await laptop.message("result")
    await laptop.say("two")
    request = await laptop.tell(says("2", "m3"))
    assert (request["model"], "thinking" in request) == (_OPUS, True)  # the choice outlives the turn


async def test_effort_goes_to_models_that_know_it(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions(model="opus", effort="max"))
    first = await laptop.sent("one", says("1", "m1"))
    assert (first["output_config"], "effort-" in first["betas"]) == ({"effort": "high"}, True)
    await laptop.control("set_effort", effort="low")
    assert (await laptop.sent("two", says("2", "m2")))["output_config"] == {"effort": "low"}
    await laptop.control("set_model", model="sonnet")
    assert "output_config" not in await laptop.sent("three", says("3", "m3"))
    assert "low, medium, high" in (await laptop.request("set_effort", effort="huge"))["error"]


async def test_what_the_laptop_tells_of_a_model_counts_from_the_next_call_on(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions(model="lab/first-1", effort="max", small_model="lab/small-1"))
    assert "output_config" not in await laptop.sent("one", says("1", "m1")), "nothing is known of this model"
    facts = {"models": {"lab/second-1": [64_000, 4_000, 0.5, 2.0, 0.1, 1.0]}, "thinking": {"lab/second-1": ["low"]}}
    await laptop.control("learn_models", **facts)
    await laptop.control("set_model", model="lab/second-1")
    await laptop.say("two")
    request = await laptop.tell(says("2", "m2"))
    assert (request["output_config"], request["max_tokens"]) == ({"effort": "low"}, 4_000)


async def test_an_overloaded_model_is_replaced_for_the_turn(host: WorkerHost, session: str) -> None:
    host.more_env["CCB_MAX_RETRIES"] = "10"
    laptop = await host.drive(session, SessionOptions(fallback_model="haiku"))
    await laptop.say("one")
    for _ in range(3):
        opened, body = await laptop.call()
        assert json.loads(body)["model"] == _SONNET
        error = b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
        await laptop.answer(opened, error, status=529)
    assert (await laptop.tell(says("1", "m1")))["model"] == "claude-haiku-4-5"
    assert (await laptop.message("result"))["result"] == "1"
    told = [event.body["content"] for event in laptop.events if event.body.get("subtype") == "informational"]
    assert len(told) == 1 and _SONNET in told[0] and "claude-haiku-4-5" in told[0]
    await laptop.say("two")
    assert (await laptop.tell(says("2", "m2")))["model"] == _SONNET
