"""Tasks, other sessions and the past of a session, in lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest
from tests.local.plain.test_line_repl import plain
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import tidy_laptop
from tests.support.person.terminal import terminal

from ccb.local.connect.session_rows import SessionRow
from ccb.local.tui.session_switching import NextSession
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.client_requests import READ_TASK, REWIND_CONVERSATION, REWIND_FILES, REWIND_POINTS, STOP_TASK

POINTS = [{"id": "p2", "text": "Repair the \x1b[2Jtotal.", "files": 2}, {"id": "p1", "text": "Look around."}]
FILES = [
    {"path": "/srv/shop/cart.py", "insertions": 1, "deletions": 2, "does": "change", "changedElsewhere": True},
    {"path": "/srv/shop/big.bin", "does": "remove", "why": "it was too large to keep"},
]


class Rows:
    """The sessions of a host."""

    async def listed(self) -> list[SessionRow]:
        return [
            SessionRow(session="5e55", cwd=HostText("/srv/shop"), state="idle", prompt=HostText("this one")),
            SessionRow(
                session="aaaa1111", cwd=HostText("/srv/api"), state="running", prompt=HostText("fix the \x1b[2Jtest")
            ),
        ]


async def test_the_prompts_to_go_back_to_are_numbered_and_what_it_changes_is_said_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with plain(monkeypatch) as at:
        answers = at.session.control_answers
        answers[REWIND_POINTS.name] = {"points": POINTS}
        answers[REWIND_FILES.name] = {"files": FILES}
        answers[REWIND_CONVERSATION.name] = {"prompt": "Repair the total."}
        at.types("/rewind", "/rewind 1", "/rewind 7", "/rewind 1 conversation")
        await at.reads("1: Repair the total. (2 files changed since)", "2: Look around.", "ccb: there is no prompt 7")
        await at.reads("change cart.py, +1 -2, changed by something else since", "/rewind 1 both")
        await at.reads("remove big.bin, +0 -0, not possible: it was too large to keep", "the prompt was:")
        rewinds = [body for name, body in at.session.controls if name == REWIND_CONVERSATION.name]
        assert len(rewinds) == 1
        assert "p2" in rewinds[0].values()
        assert "\x1b" not in at.text


async def test_what_runs_in_the_background_is_read_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with plain(monkeypatch) as at:
        at.session.control_answers[READ_TASK.name] = {"status": "running", "output": "epoch 1\x1b[2J\nepoch 2\n"}
        at.types("/tasks", "/tasks b1", "/tasks stop b1")
        await at.reads("ccb: nothing runs there", "ccb: b1, running", "epoch 1\nepoch 2", "ccb: b1 is being stopped")
        assert [name for name, _ in at.session.controls] == [READ_TASK.name, STOP_TASK.name]
        assert "\x1b" not in at.text


@pytest.mark.parametrize("choice", ["2", "AAAA1111", "aaaa"])
async def test_another_session_is_chosen_by_its_number_or_its_id(monkeypatch: pytest.MonkeyPatch, choice: str) -> None:
    async with plain(monkeypatch) as at:
        at.repl.commands.use(cast(Any, Rows()))
        at.types("/resume", "/resume 9", "/resume 1")
        await at.reads(
            "1: this one (idle, /srv/shop, 5e55) (this one)", "2: fix the test (running, /srv/api, aaaa1111)"
        )
        await at.reads("9 is not the number or the ID of a session", "this is the session that you are in")
        at.types(f"/resume {choice}")
        assert at.running is not None
        assert await at.running is None
        assert at.repl.following == NextSession("aaaa1111")
        assert "\x1b" not in at.text


async def test_a_report_has_the_last_problems_and_no_prompts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    async with plain(monkeypatch) as at:
        at.types("my secret plan")
        await at.until(lambda: at.session.prompts)
        at.session.begin()
        at.session.finish(subtype="error_during_execution", is_error=True, errors=["The model is gone."])
        await at.reads("The model is gone.")
        at.types("/bug")
        await at.reads("ccb: the report is in")
        (report,) = (tmp_path / ".local/state/ccb/reports").iterdir()
        assert "The model is gone." in report.read_text()
        assert "secret plan" not in report.read_text()


@pytest.mark.programs
async def test_a_new_session_begins_in_the_place_of_this_one(tmp_path: Path, fake_model: FakeModel) -> None:
    project = tmp_path / "project"
    project.mkdir()
    fake_model.add({"text": "First-answer."}, {"text": "Second-answer."}, {"text": "Third-answer."})
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        argv = [sys.executable, "-m", "ccb", str(project), "--plain"]
        async with terminal(argv, laptop.env, str(laptop.home)) as running:
            await running.shows("Type a prompt; /help says more.")
            running.type("one\n")
            await running.shows("First-answer.")
            running.type("/new\n")
            await running.shows("this session stays on the host: ccb")
            await running.until(lambda: running.text.count("Type a prompt; /help says more.") == 2)
            running.type("two\n")
            await running.shows("Second-answer.")
            assert "one" not in str(fake_model.requests[-1].messages)
            running.type("/resume\n")
            await running.shows("/resume N goes on with one")
            listed = [line for line in running.text.splitlines() if ": one (" in line]
            running.type(f"/resume {listed[-1].strip()[0]}\n")
            await running.until(lambda: running.text.count("Type a prompt; /help says more.") == 3)
            running.type("three\n")
            await running.shows("Third-answer.")
            assert "First-answer." in str(fake_model.requests[-1].messages)
            running.type("\x04")
            assert await running.ended() == 0
