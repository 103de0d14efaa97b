"""After a compaction the model is told again what a summary must not lose: the files it worked on, its todos, its
plan."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.remote.agent_kit import World, calls, make_world, says
from tests.remote.tools_kit import opened_context

from ccb.remote.agent.agent_messages import compact_summary
from ccb.remote.agent.conversation import Conversation
from ccb.remote.agent.turn_state import Prompt
from ccb.remote.permissions.rules import Behavior, Decision
from ccb.remote.session_store.session_files import PlanFile
from ccb.remote.system.deadline import within
from ccb.remote.tools.asking import PlanReminders
from ccb.remote.tools.read import Read
from ccb.remote.tools.todo import TodoWrite
from ccb.remote.tools.toolset import Toolset
from ccb.tunnel.wire.journal_records import MessageRecord


async def turn(world: World, text: str) -> None:
    """Run a turn whose tools take real time."""
    await within(30, world.agent.run_turn([Prompt([{"type": "text", "text": text}])]))


def told_in(world: World) -> str:
    """What the history begins with."""
    return "\n".join(block.get("text", "") for block in world.history()[0]["content"])


@asynccontextmanager
async def real_tools(world: World, tmp_path: Path) -> AsyncIterator[None]:
    """The agent of `world` with the tools Read and TodoWrite in a real directory."""
    async with opened_context(tmp_path, tmp_path / "out") as context:
        world.agent.configure(replace(world.agent.config, context=context, tools=Toolset([Read(), TodoWrite()])))
        yield


async def test_the_files_that_were_used_last_are_told_again_as_they_are_now(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(7)]
    for path in files:
        path.write_text(f"old {path.name}\n")
    reads = [(f"t{number}", "Read", {"file_path": str(path)}) for number, path in enumerate(files)]
    script = calls(*reads), says("done", "m2"), says("SUMMARY", "m_s"), calls(reads[3], message_id="m3")
    world = make_world(*script, says("on", "m4"))
    async with real_tools(world, tmp_path):
        await turn(world, "read them")
        files[2].unlink()
        files[3].write_text("".join(f"new line {number}\n" for number in range(3_000)))
        for path in files[4:]:
            path.write_text(f"new {path.name}\n")
        await turn(world, "/compact")
        told = told_in(world)
        await turn(world, "go on")
    expected = f"{files[3]}:\n", "new line 0\n", "(cut here)", "new 4.txt", "new 5.txt", "new 6.txt"
    places = [told.find(text) for text in expected]
    assert -1 not in places and places == sorted(places), "the oldest comes first, and none takes all the room"
    assert "new line 2999" not in told and "old " not in told
    assert not any(str(path) in told for path in files[:3]), "only the last five, and none that is gone"
    assert "new line 1999" in str(world.history()[-2]), "what was cut can be read"
    assert [m.api() for m in Conversation.from_records(world.journal.records).messages] == world.history()


async def test_the_files_are_told_again_by_each_later_compaction_also_in_a_new_worker(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("red house\n")
    named = [("t1", "Read", {"file_path": str(path)}), ("t2", "Read", {"file_path": "a.txt"})]
    summaries = [says("SUMMARY", f"m_s{number}") for number in range(3)]
    world = make_world(calls(*named), says("done", "m2"), *summaries)
    async with real_tools(world, tmp_path):
        await turn(world, "read it")
        for _ in summaries[1:]:
            await turn(world, "/compact")
        assert told_in(world).count("red house") == 1, "a file with two names is told once"
    after = make_world(summaries[2], conversation=Conversation.from_records(world.journal.records))
    async with real_tools(after, tmp_path):
        await turn(after, "/compact")
        assert "red house" in told_in(after)
    after.journal.emit(MessageRecord(compact_summary("")))  # as /clear does it
    assert not Conversation.from_records(after.journal.records).files


@pytest.mark.parametrize("behavior", [Behavior.ALLOW, Behavior.ASK, Behavior.DENY])
async def test_a_file_is_told_again_only_if_reading_it_asks_no_question(tmp_path: Path, behavior: Behavior) -> None:
    path = tmp_path / "a.txt"
    path.write_text("secret\n")
    world = make_world(calls(("t1", "Read", {"file_path": str(path)})), says("done", "m2"), says("SUMMARY", "m_s"))
    async with real_tools(world, tmp_path):
        await turn(world, "read it")
        world.permissions.decisions["Read"] = Decision(behavior, "a new rule")
        await turn(world, "/compact")
    assert "SUMMARY" in told_in(world)
    assert ("secret" in told_in(world)) == (behavior is Behavior.ALLOW)


@pytest.mark.parametrize("status", ["pending", "completed"])
async def test_the_todo_list_is_told_again_unless_it_is_done(tmp_path: Path, status: str) -> None:
    stages = {"Build": "completed", "Paint": status}
    items = [{"content": f"{verb} it", "status": at, "activeForm": f"{verb}ing it"} for verb, at in stages.items()]
    world = make_world(calls(("t1", "TodoWrite", {"todos": items})), says("done", "m2"), says("SUMMARY", "m_s"))
    async with real_tools(world, tmp_path):
        await turn(world, "build the house")
        await turn(world, "/compact")
    listed = "Your todo list:\n- #1 [completed] Build it\n- #2 [pending] Paint it" in told_in(world)
    assert listed == (status == "pending")


async def test_the_plan_is_told_again(tmp_path: Path) -> None:
    plan = PlanFile(str(tmp_path / "plan.md"))
    world = make_world(says("hello"), says("SUMMARY", "m_s"))
    world.agent.reminders.follow(PlanReminders(plan, lambda: "plan", lambda: True))
    await turn(world, "first")
    plan.write("1. Move the red house")
    await turn(world, "/compact")
    told = told_in(world)
    assert told.index("SUMMARY") < told.index("1. Move the red house") and "Plan mode is on." in told
