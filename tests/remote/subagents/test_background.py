"""Agents that work in the background: their end is told once, an interrupt spares them, and they can be stopped."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.remote.agent_kit import calls, says
from tests.remote.subagents.delegation import MAIN, ONE, delegation, task
from tests.remote.worker_process import until


async def test_an_agent_in_the_background_returns_at_once_and_its_end_wakes_the_main_agent_once(tmp_path: Path) -> None:
    gate = asyncio.Event()
    slow = says("It is in line 7.", "c1")
    slow.head_wait = gate
    scripts = {
        MAIN: [
            calls(task(ONE, "dig", run_in_background=True), message_id="m1"),
            says("I go on.", "m2"),
            says("Line 7, then.", "m3"),
        ],
        "dig": [slow],
    }
    async with delegation(tmp_path, scripts) as d:
        d.say(MAIN + "go")
        running = asyncio.ensure_future(d.session.turns.run())
        await until(lambda: len(d.messages("result")) == 1, "the first turn")
        assert d.messages("result")[0]["result"] == "I go on."
        told = d.results()[ONE]["tool_use_result"]
        assert (told["status"], told["agentId"]) == ("async_launched", ONE)
        d.session.agent.interrupt()
        gate.set()
        await until(lambda: len(d.messages("result")) == 2, "the turn that the end starts")
        assert d.messages("result")[1]["result"] == "Line 7, then."
        last = json.dumps(d.model.requests[MAIN][-1]["messages"][-1])
        assert "<task-notification>" in last and "It is in line 7." in last
        assert [each["status"] for each in d.messages("system", "task_notification")] == ["completed"]
        assert len(d.messages("system", "task_started")) == 1
        d.session.turns.finish()
        await asyncio.wait_for(running, 60)
        assert len(d.model.requests[MAIN]) == 3, "it is told once"


async def test_a_question_of_an_agent_in_the_background_stays_open_over_an_interrupt(tmp_path: Path) -> None:
    touch = ("b1", "Bash", {"command": "touch made"})
    scripts = {
        MAIN: [
            calls(task(ONE, "make it", run_in_background=True), message_id="m1"),
            calls(("b9", "Bash", {"command": "touch never"}), message_id="m2"),
            says("Good.", "m3"),
        ],
        "make it": [calls(touch, message_id="c1"), says("made", "c2")],
    }
    async with delegation(tmp_path, scripts) as d:
        d.say(MAIN + "go")
        running = asyncio.ensure_future(d.session.turns.run())
        await until(lambda: len(d.messages("control_request")) == 2, "both ask")
        asked = {each["request"]["tool_use_id"]: each for each in d.messages("control_request")}
        assert asked["b1"]["request"]["agent_id"] == ONE
        assert asked["b1"]["request"]["agent"] == "general-purpose: Do make it"
        request = {"type": "control_request", "request_id": "r1", "request": {"subtype": "interrupt"}}
        d.session.take_input("interrupt", request)
        await until(lambda: len(d.messages("result")) == 1, "the turn ends")
        assert [each["request_id"] for each in d.messages("control_cancel_request")] == [asked["b9"]["request_id"]]
        allow = {"behavior": "allow", "updatedInput": touch[2]}
        response = {"subtype": "success", "request_id": asked["b1"]["request_id"], "response": allow}
        d.session.take_input("answer", {"type": "control_response", "response": response})
        await until(lambda: len(d.messages("result")) == 2, "the end of the agent is told")
        assert (tmp_path / "project/made").exists() and not (tmp_path / "project/never").exists()
        d.session.turns.finish()
        await asyncio.wait_for(running, 60)


async def test_a_task_can_be_looked_at_and_stopped(tmp_path: Path) -> None:
    after = ("o2", "TaskOutput", {"task_id": ONE}), ("s2", "TaskStop", {"task_id": ONE})
    scripts = {
        MAIN: [
            calls(task(ONE, "dig", run_in_background=True), message_id="m1"),
            calls(("o1", "TaskOutput", {"task_id": ONE, "block": False}), message_id="m2"),
            calls(("s1", "TaskStop", {"task_id": ONE}), message_id="m3"),
            calls(*after, ("o3", "TaskOutput", {"task_id": "nothing"}), message_id="m4"),
            says("Stopped.", "m5"),
        ],
        "dig": [calls(("b1", "Bash", {"command": "sleep 600"}), message_id="c1")],
    }
    async with delegation(tmp_path, scripts, allowed_tools=["Bash"]) as d:
        assert (await d.turn(MAIN + "go"))["result"] == "Stopped."
        assert "<status>running</status>" in d.result_text("o1")
        assert "was stopped" in d.result_text("s1")
        assert "<status>killed</status>" in d.result_text("o2")
        assert "has ended already" in d.result_text("s2") and "Known tasks: toolu_one" in d.result_text("o3")
        assert [each["status"] for each in d.messages("system", "task_notification")] == ["stopped"]
        assert [each.agent_id for each in d.records() if each.kind == "agent_result"] == [ONE]
        assert len(d.messages("result")) == 1, "who stopped it is not told again"


async def test_an_agent_in_the_background_ends_with_a_killed_worker_and_is_told_once(tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.mkdir()
    scripts = {
        MAIN: [calls(task(ONE, "dig", run_in_background=True), message_id="m1"), says("Later.", "m2")],
        "dig": [calls(("b1", "Bash", {"command": "echo started; sleep 600"}), message_id="c1")],
    }
    async with delegation(tmp_path, scripts, allowed_tools=["Bash"]) as d:
        d.say(MAIN + "go")
        running = asyncio.ensure_future(d.session.turns.run())
        await until(lambda: d.printed("b1", "started"), "it works")
        await until(lambda: len(d.messages("result")) == 1, "the turn ends")
        (cut / "journal.jsonl").write_bytes((tmp_path / "journal.jsonl").read_bytes())
        running.cancel()
        await asyncio.wait({running})
    async with delegation(cut, {MAIN: [says("I see.", "m3")]}) as d:
        d.session.turns.finish()
        await asyncio.wait_for(d.session.turns.run(), 60)
        assert [each["status"] for each in d.messages("system", "task_notification")] == ["stopped"]
        assert "was stopped with the worker" in json.dumps(d.model.requests[MAIN][0]["messages"][-1])
        assert "was stopped while this tool was open" in d.result_text("b1", ONE)
    async with delegation(cut, {}) as d:
        assert len(d.messages("system", "task_notification")) == 1
