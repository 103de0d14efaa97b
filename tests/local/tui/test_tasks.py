"""The pane of `/tasks`: what runs beside the agent, with live output, which x stops."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.local.tui.test_steering import starts
from tests.local.tui.test_sub_agents import calls, started
from tests.support.repl.pilot import Desk
from tests.support.repl.scripted_session import ScriptedSession, ScriptedTask

from ccb.local.session.session_client import LinkState, parse_snapshot
from ccb.local.tui.panels import task_panel
from ccb.local.tui.panels.task_panel import task_rows
from ccb.remote.session_store.session_log import SnapshotProjection
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import Record, replay


def ends(at: Desk, task_id: str, status: str, how: str) -> None:
    at.session.outputs[task_id].status = status
    summary = f'Background command "make \\"all\\"" {how}'
    body = {"type": "system", "subtype": "task_notification", "task_id": task_id, "status": status}
    at.session.say({**body, "output_file": "", "summary": summary})


async def running(at: Desk, text: str = "serving on :80\x1b[31m00\n") -> ScriptedTask:
    """A command runs in the background, and its output is shown."""
    at.session.outputs["bash_1"] = task = ScriptedTask(text)
    starts(at, "bash_1", "npm run dev")
    await at.sees("1 task in the background")
    await at.give("/tasks", sees="1 running, 0 ended")
    return task


async def test_output_is_shown_as_it_comes_and_where_it_stands_still(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_panel, "_PATIENCE_S", 0.2)
    task = await running(at)
    await at.sees("› ◐    1m  bash_1    npm run dev  serving on :8000", lacks="\x1b")
    task.text += "10%\r20%\r99%"
    await at.sees("│ 99%", lacks="10%")
    await at.link(LinkState.RECONNECTING, "gone", sees="not live: there is no connection")
    task.text += "\ndone"
    await at.link(LinkState.CONNECTED, sees="│ done", loses="not live")
    at.session.answers_come.clear()
    await at.sees("not live: the host does not answer now")
    at.session.answers_come.set()
    await at.loses("not live")
    await at.until(lambda: at.session.outputs_read[-1] == ("bash_1", len(task.text) - len("done")))
    assert at.session.outputs_read == sorted(at.session.outputs_read), "only what is new crosses"
    await at.press("escape", loses="Tasks: ")
    count = len(at.session.outputs_read)
    await at.pilot.pause(1.2)
    assert len(at.session.outputs_read) == count, "nobody looks"


class Talkative(ScriptedTask):
    """A worker that sends more than it was asked for."""

    def piece(self, after: int, most: int, before: int | None) -> Json:
        return {**super().piece(0, 100 * most, before), "start": 1000 if before is None else 0}


async def test_a_worker_that_sends_more_than_it_was_asked_for_is_cut_short() -> None:
    session = ScriptedSession()
    session.outputs["bash_1"] = Talkative("x\n" * 1000, status="s" * 10_000)
    tail = task_panel.OutputTail("bash_1", 20, 100)
    assert len(await tail.read(session)) == 10 and len(tail.state) < 100
    assert len(await tail.read_earlier(session)) <= 11


async def test_x_stops_the_marked_task_but_no_word_that_is_typed_does(at: Desk) -> None:
    await running(at)
    await at.type("fix", sees="Esc closes this list and goes back to the input.")
    assert at.session.controls == []
    await at.pilot.pause(1.1)
    await at.press("x", sees="npm run dev  being stopped")
    assert at.session.controls == [("stop_task", {"task_id": "bash_1"})]
    await at.press("x")
    ends(at, "bash_1", "stopped", "was stopped")
    await at.sees("0 running, 1 ended", "npm run dev  was stopped", loses="being stopped")
    await at.press("x", sees="It has ended already.")
    assert len(at.session.controls) == 1


async def test_all_output_of_a_task_is_a_page_that_grows_and_leads_back(at: Desk, tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(60_000)]
    task = await running(at, "\n".join(lines) + "\n")
    task.directory = str(tmp_path)
    await at.press("enter", sees=("bash_1: npm run dev · running 1m · devbox:/srv/shop", "line 59999", "Esc goes back"))
    task.text += "and one more\n\nbegun"
    await at.sees("and one more\n\n begun")
    await at.press("home", sees=" line 0\n line 1\n line 2")
    page = at.view.reading.page
    assert page is not None and await page.as_text() == "\n".join([*lines, "and one more", "", "begun", ""])
    await at.link(LinkState.RECONNECTING, "gone", sees="not live: there is no connection")
    await at.press("escape", sees=("Tasks: 1 running", "Ask for a change"))
    await at.press("escape", loses="Tasks: ")
    assert at.app.focused is at.composer


async def test_a_sub_agent_in_the_list_shows_its_calls_and_leads_to_its_conversation(at: Desk) -> None:
    agent_id = await started(at)
    calls(at.session, agent_id, "c1", "Grep", pattern="word")
    await at.give("/tasks", sees=("agent     Explore: Find the parser  ◐ Grep word", "1 tool use"))
    await at.press("x", sees="being stopped")
    assert at.session.controls == [("stop_task", {"task_id": agent_id})]
    await at.press("right", sees="Explore: Find the parser · works · 1 tool use")
    await at.press("escape", sees="Tasks: 1 running")
    body: Json = {"totalToolUseCount": 1, "status": "completed"}
    at.session.done(agent_id, "In parse.py.", structured=body)
    await at.sees("0 running, 1 ended", "Explore: Find the parser  completed")


async def test_an_agent_that_goes_on_and_is_known_from_a_snapshot_leads_to_its_whole_conversation(at: Desk) -> None:
    began = {"task_type": "local_agent", "agent_id": "toolu_first", "is_backgrounded": True, "description": "Dig on"}
    note = {"type": "system", "subtype": "task_started", "task_id": "toolu_second", **began}
    kept = SnapshotProjection()
    replay([Record(1, 0.0, "message", note)], kept)
    at.view.reducer.skipped(parse_snapshot(kept.body(1, model="m", mode="default", asks=[])), running=True)
    (row,) = task_rows(at.view.reducer)
    assert row.agent is not None and (row.id, row.agent.agent_id) == ("toolu_second", "toolu_first")


async def test_the_list_stays_live_beside_a_question_and_esc_closes_it_before_it_interrupts(at: Desk) -> None:
    await at.turn("go", then=lambda: at.view.reducer.running)
    task = await running(at)
    answer = at.session.ask("r1", "Bash", {"command": "make"})
    await at.card_focused()
    await at.answer("1")
    assert (await answer)["behavior"] == "allow"
    await at.until(lambda: at.app.focused is at.composer)
    task.text += "reloaded\n"
    await at.sees("npm run dev  reloaded")
    await at.press("escape", loses="Tasks: ")
    assert at.session.interrupts == 0
    await at.press("escape", then=lambda: at.session.interrupts == 1)
