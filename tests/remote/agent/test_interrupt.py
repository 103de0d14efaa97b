"""Interrupt in every phase: fast, with a valid history, one result, and a next turn that works."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.remote import agent_kit as kit

from ccb.remote.agent.conversation import Conversation
from ccb.tunnel.wire.frames import Json

NOTE = "user text [Request interrupted by user]"
TOOL_NOTE = "user text [Request interrupted by user for tool use]"


async def _interrupt(world: kit.World, turn: asyncio.Task[Json]) -> Json:
    """Interrupt, twice to show that it does not matter. Time stands still: nothing may wait for it."""
    assert world.agent.interrupt() is True
    assert world.agent.interrupt() is True
    result = await asyncio.wait_for(turn, 4)  # less than the grace of anything that refuses to end
    assert world.journal.messages()[-1] == {**result}
    assert len(world.journal.messages("result")) == 1
    assert (result["subtype"], result["is_error"]) == ("error_during_execution", True)
    assert "result" not in result
    assert world.transport.open == 0, "every response is released"
    assert world.journal.committed == len(world.journal.records)
    return result


async def _looking(world: kit.World) -> asyncio.Task[Json]:
    """Start a turn, which stays in the call that looks at a."""
    world.read.gates = {"a": asyncio.Event()}
    turn = world.start()
    await world.read.until("start a")
    await kit.settle()
    return turn


async def _goes_on(world: kit.World) -> Json:
    """The next turn works; gives what the model saw."""
    world.transport.replies[:] = [kit.says("back", "msg_back")]
    assert (await world.turn("again"))["result"] == "back"
    kit.assert_valid([*world.history(), {"role": "user", "content": [{"type": "text", "text": "x"}]}])
    rebuilt = Conversation.from_records(world.journal.records)
    rebuilt.seal()
    assert [m.api() for m in rebuilt.messages] == world.history()
    return world.transport.request_json(len(world.transport.bodies) - 1)


_UNHEARD = kit.Reply([kit.opening(), kit.tool_start(0, "t1", "Look"), kit.json_delta(0, '{"ke'), asyncio.Event()])


@pytest.mark.parametrize(
    ("reply", "lines"),
    [
        (kit.Reply(head_wait=asyncio.Event()), []),
        (kit.Reply([kit.opening(), kit.text_block(0, "All said."), asyncio.Event()]), ["assistant text All said."]),
        (kit.Reply([kit.opening(), kit.thinking_block(0, "hm"), asyncio.Event()]), ["assistant thinking hm"]),
        (_UNHEARD, []),
        (kit.error_reply(529), ["api_retry"]),
    ],
    ids=["before any byte", "a finished text", "thinking", "a tool's input", "the pause before a retry"],
)
async def test_while_the_model_answers(reply: kit.Reply, lines: list[str]) -> None:
    world = kit.make_world(reply)
    assert world.agent.interrupt() is False, "no turn runs"
    turn = world.start()
    await kit.settle()
    assert not world.journal.messages("assistant"), "a block is held until the next one"
    result = await _interrupt(world, turn)
    assert world.journal.outline() == ["init", *lines, NOTE, "result error_during_execution"]
    assert (result["terminal_reason"], result["num_turns"]) == ("aborted_streaming", 2) and not world.log
    assert "[Request interrupted by user]" in str((await _goes_on(world))["messages"])
    await kit.settle()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_in_the_middle_of_a_text() -> None:
    half = kit.text_start(1) + kit.text_delta(1, "Half a")
    world = kit.make_world(kit.Reply([kit.opening(), kit.thinking_block(0, "hm"), half, asyncio.Event()]), partial=True)
    turn = world.start()
    await kit.settle()
    result = await _interrupt(world, turn)
    assert world.journal.outline()[1:-1] == ["assistant thinking hm", "assistant text Half a", NOTE]
    line = world.journal.messages("assistant")[1]
    assert line["aborted"] is True and line["message"]["id"] == "msg_1"
    assert result["num_turns"] == 2
    assert result["usage"]["input_tokens"] == 100 and result["total_cost_usd"] > 0, "the provider charges for it"
    assert [event["type"] for event in world.journal.stream_events()[-2:]] == ["content_block_stop", "message_stop"]
    sent = await _goes_on(world)
    assert sent["messages"][1]["content"][-1]["text"] == "Half a"


async def test_while_a_tool_runs() -> None:
    world = kit.make_world(kit.calls(("t1", "Look", {"key": "a"}), ("t2", "Change", {"key": "b"})))
    world.read.printed = {"a": "line 1\nline 2\n"}
    turn = await _looking(world)
    result = await _interrupt(world, turn)
    assert world.log == ["start a", "cancelled a"]
    assert world.journal.outline()[-4:-1] == ["user tool_result t1", "user tool_result t2", TOOL_NOTE]
    texts = [line["message"]["content"][0].get("content", "") for line in world.journal.messages("user")]
    assert all(text.startswith("The user doesn't want to proceed") for text in texts[:2])
    assert "while it ran" in texts[0] and texts[0].endswith("\nIt had printed:\nline 1\nline 2")
    assert "not run" in texts[1]
    assert (result["terminal_reason"], result["num_turns"]) == ("aborted_tools", 4)
    await _goes_on(world)


async def test_a_tool_that_ends_with_what_it_has_keeps_its_result() -> None:
    world = kit.make_world(kit.calls(("t1", "Look", {"key": "a"})))
    world.read.tidy = {"a"}
    turn = await _looking(world)
    await _interrupt(world, turn)
    assert world.journal.outline()[-3:] == ["user tool_result t1", TOOL_NOTE, "result error_during_execution"]
    assert world.journal.messages("user")[0]["message"]["content"][0]["content"] == "part of a"
    await _goes_on(world)


async def test_a_failure_of_our_own_while_a_tool_runs_closes_it_once() -> None:
    world = kit.make_world(kit.calls(("t1", "Look", {"key": "a"})))
    world.read.gates = {"a": asyncio.Event()}
    world.read.tidy = {"a"}
    commit = world.journal.commit

    async def failing() -> None:
        if world.journal.facts("model_end"):
            await world.read.until("start a")
            world.journal.commit = commit  # type: ignore[method-assign]
            raise OSError("no space left on device")
        await commit()

    world.journal.commit = failing  # type: ignore[method-assign]
    result = await asyncio.wait_for(world.start(), 4)
    assert result["terminal_reason"] == "model_error"
    assert world.journal.outline()[1:-1] == ["assistant tool_use t1", "user tool_result t1"]
    await _goes_on(world)


async def test_at_the_very_moment_the_last_tool_ends() -> None:
    world = kit.make_world(kit.calls(("t1", "Look", {"key": "a"})))
    turn = await _looking(world)
    commit = world.journal.commit

    async def interrupting() -> None:
        world.agent.interrupt()
        await commit()

    world.journal.commit = interrupting  # type: ignore[method-assign]
    world.read.gates["a"].set()
    result = await asyncio.wait_for(turn, 4)
    assert result["terminal_reason"] == "aborted_tools"
    assert world.journal.messages("user")[0]["message"]["content"][0]["content"] == "did a"
    assert len(world.transport.bodies) == 1


async def test_while_the_model_streams_and_a_tool_runs() -> None:
    call, half = kit.tool_block(0, "t1", "Look", {"key": "a"}), kit.text_start(1) + kit.text_delta(1, "and")
    world = kit.make_world(kit.Reply([kit.opening(), call, half, asyncio.Event()]))
    turn = await _looking(world)
    result = await _interrupt(world, turn)
    assert result["terminal_reason"] == "aborted_streaming"
    assert "cancelled a" in world.log
    await _goes_on(world)


async def test_while_the_prompt_is_gathered() -> None:
    world = kit.make_world()
    never = asyncio.Event()

    async def slow() -> list[Json]:
        await never.wait()
        return []

    world.agent.config.prompts.system, system = slow, world.agent.config.prompts.system  # type: ignore[method-assign]
    turn = world.start()
    await kit.settle()
    await _interrupt(world, turn)
    world.agent.config.prompts.system = system  # type: ignore[method-assign]
    await _goes_on(world)


async def test_it_takes_less_than_200_ms() -> None:
    for _ in range(30):  # the best of them counts: the machine may be busy with other things
        world = kit.make_world(kit.calls(*[(f"t{i}", "Look", {"key": f"k{i}"}) for i in range(10)]))
        world.read.gates = {f"k{i}": asyncio.Event() for i in range(10)}
        turn = world.start()
        await world.read.until(*[f"start k{i}" for i in range(10)])
        started = time.monotonic()
        await _interrupt(world, turn)
        if time.monotonic() - started < 0.2:
            return
    pytest.fail("no interrupt of thirty took less than 200 ms")


@pytest.mark.parametrize(
    ("reply", "log"),
    [
        (kit.calls(("t1", "Look", {"key": "a"})), ["start a", "cancelled a"]),
        (kit.Reply([kit.opening(), asyncio.Event()]), []),
    ],
)
async def test_shutting_down_stops_tools_and_streams_and_writes_no_result(reply: kit.Reply, log: list[str]) -> None:
    world = kit.make_world(reply)
    world.read.gates = {"a": asyncio.Event()}
    turn = world.start()
    await kit.settle()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert world.log == log and world.transport.closed == 1
    assert not world.journal.messages("result") and world.agent._turn is None
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
