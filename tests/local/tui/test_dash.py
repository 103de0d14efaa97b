"""The screen of `ccb dash`: what keys do with the marked row, and an answer that takes the session from nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.support.hosts.reporting_host import ReportingHost
from tests.support.repl.scripted_session import ScriptedSession, hello
from tests.support.screens.dash_scene import DashDesk, dash_desk, dash_row

from ccb.local.tui import dash_app
from ccb.local.tui.cards.question_card import QuestionCard
from ccb.local.tui.dash_app import DashChoice
from ccb.local.tui.panels.dash_panel import DashPanel
from ccb.tunnel.errors import AuthFailed, ConnectionLost

DRIVEN = {"driver": "ann@laptop pid 7 0123ab"}


def rows_shown(at: DashDesk) -> list[str]:
    return [line for line in at.lines if " task " in line and "ccb dash" not in line]


async def test_the_mark_stays_on_its_row_and_enter_opens_that() -> None:
    web = ReportingHost("web", dash_row(1, "running"), dash_row(2), dash_row(3, idle_s=900))
    async with dash_desk(web) as at:
        await at.press("down")
        assert "› idle" in rows_shown(at)[1]
        web.tell(dash_row(3)["session"], state="requires_action")
        await at.sees("1 waits for you")
        assert [line.split("task ")[1][0] for line in rows_shown(at)] == ["3", "1", "2"]
        assert "› idle" in rows_shown(at)[2]
        await at.press("enter")
        choice = at.choice
    assert choice is not None and (choice.host.name, choice.session) == ("web", dash_row(2)["session"])


async def test_a_click_marks_a_row_and_opens_the_marked_one() -> None:
    async with dash_desk(ReportingHost("web", dash_row(1), dash_row(2, idle_s=900))) as at:
        await at.click("task 2", then=lambda: "› idle" in rows_shown(at)[1])
        await at.click("task 2", then=lambda: at.choice)
        choice = at.choice
    assert choice is not None and choice.session == dash_row(2)["session"]


async def test_letters_act_and_only_after_a_slash_they_search() -> None:
    web, db = ReportingHost("web", dash_row(1), dash_row(2)), ReportingHost("db", dash_row(3))
    async with dash_desk(web, db) as at:
        await at.type("/db task")
        assert len(rows_shown(at)) == 1 and "3" in rows_shown(at)[0]
        await at.press("enter", "n", sees="Directory of the new session on db")
        await at.press("ctrl+u")
        await at.enter("/srv/api")
        choice = at.choice
    assert choice is not None and (choice.host.name, choice.session, choice.directory) == ("db", "", "/srv/api")


@pytest.mark.parametrize("ends", [["escape"], ["enter", "escape"]], ids=["while typing", "once kept"])
async def test_the_end_of_a_search_leaves_the_mark_on_its_row(ends: list[str]) -> None:
    async with dash_desk(ReportingHost("web", *(dash_row(each, idle_s=each) for each in (1, 2, 3)))) as at:
        await at.type("/task 3")
        await at.press(*ends)
        assert "› idle" in rows_shown(at)[2], at.screen


async def test_a_stop_is_asked_about_and_a_name_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, ...]] = []

    class Sessions:
        async def stop(self, session: str) -> None:
            done.append(("stop", session))

        async def rename(self, session: str, title: str) -> None:
            done.append(("rename", session, title))

    async def sessions(self: object, *, ask: bool) -> Sessions:
        assert not ask, "a login would ask under the screen"
        return Sessions()

    monkeypatch.setattr("ccb.local.connect.host_connection.HostConnection.sessions", sessions)
    async with dash_desk(ReportingHost("web", dash_row(1)), size=(40, 16)) as at:  # a phone, where the question wraps
        await at.press("s", sees="Stop task 1 on web?")
        await at.type("no")
        await at.sees("no▏")
        await at.press("enter", loses="Stop task")
        await at.press("s")
        await at.enter("yes", sees="Stopped.")
        await at.press("r", sees="New name")
        await at.press("ctrl+u")
        await at.enter("the cart", sees="Renamed.")
    session = dash_row(1)["session"]
    assert done == [("stop", session), ("rename", session, "the cart")]


async def test_a_silent_host_says_why_and_enter_logs_in() -> None:
    web = ReportingHost("web")
    web.refuses = AuthFailed("web wants \x1b[31ma password")
    async with dash_desk(web) as at:
        await at.sees("0 of 1 hosts", "web wants", "Enter logs in")
        assert "\x1b" not in at.screen
        await at.press("a", sees="This is no session")
        await at.press("enter")
        choice = at.choice
    assert choice == DashChoice(at.dash_app.dash.hosts[0])


async def test_of_rows_that_are_old_nothing_is_asked() -> None:
    web = ReportingHost("web", dash_row(1))
    async with dash_desk(web) as at:
        web.refuses = AuthFailed("web wants a password")
        web.cut()
        await at.sees("s old")
        await at.press("l", sees="web does not answer: ")


async def test_a_new_question_rings_also_when_another_was_there() -> None:
    web = ReportingHost("web", dash_row(1, "requires_action"), dash_row(2))
    async with dash_desk(web) as at:
        rung: list[str] = []
        at.dash_app.attention.notify_person = rung.append
        web.tell(dash_row(1)["session"], last="still the same")
        await at.sees("still the same")
        assert rung == []
        web.tell(dash_row(2)["session"], state="requires_action")
        await at.sees("2 wait for you", then=lambda: rung == ["permission_prompt"])


@asynccontextmanager
async def asked(
    monkeypatch: pytest.MonkeyPatch, tool: str = "Bash", **driven: Any
) -> AsyncIterator[tuple[DashDesk, ScriptedSession]]:
    """A dash with a session that waits, at whose question the person has just looked."""
    session = ScriptedSession(greeting=replace(hello(), capabilities=["viewer_answers"]), driving=False)

    @asynccontextmanager
    async def viewed(*_: object, answers: bool, ask: bool) -> AsyncIterator[ScriptedSession]:
        assert answers and not ask, "a login would ask under the screen"
        yield session

    monkeypatch.setattr(dash_app, "view_session", viewed)
    async with dash_desk(ReportingHost("web", dash_row(1, "requires_action", **driven))) as at:
        with session.replay():
            session.ask("ask", tool, {"command": "make \x1b[31mall"})
        await at.press("a")
        yield at, session
    await session.close()


async def card_listens(at: DashDesk) -> None:
    await at.sees("Bash on web:/srv/shop", "Yes, once")
    await at.until(lambda: at.dash_app.query_one(QuestionCard).has_focus)


async def test_a_answers_on_the_whole_card_without_driving(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(monkeypatch, **DRIVEN) as (at, session):
        await card_listens(at)
        await at.press("enter")
        assert session.answers == {}, "nothing is marked when the card comes"
        await at.pause_of_a_person()
        await at.press("1")
        await at.pause_of_a_person()
        await at.press("enter", then=lambda: session.answers)
        session.answered("ask")
        await at.until(lambda: not at.dash_app.query(QuestionCard))
        assert session.answers["ask"]["behavior"] == "allow"


async def test_esc_leaves_the_question_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(monkeypatch, **DRIVEN) as (at, session):
        await card_listens(at)
        await at.press("escape", sees="The question stays open.", loses="Yes, once")
        assert session.answers == {} and isinstance(at.dash_app.focused, DashPanel)


async def test_esc_after_an_answer_does_not_say_that_the_question_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    async def unconfirmed(request_id: str, _: object) -> None:
        given.append(request_id)

    async with asked(monkeypatch, **DRIVEN) as (at, session):
        await card_listens(at)
        monkeypatch.setattr(session, "answer", unconfirmed)
        await at.pause_of_a_person()
        await at.press("1")
        await at.pause_of_a_person()
        await at.press("enter", then=lambda: given)
        await at.press("escape", sees="the host has not confirmed it", loses="Yes, once")


async def test_another_clients_answer_takes_the_card_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(monkeypatch, **DRIVEN) as (at, session):
        await card_listens(at)
        session.answered("ask")
        await at.sees("settled elsewhere", loses="Yes, once")


async def test_an_answer_to_a_session_that_has_ended_does_not_end_the_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ended(*_: object) -> None:
        raise ConnectionLost("the session has ended")

    async with asked(monkeypatch, **DRIVEN) as (at, session):
        await card_listens(at)
        monkeypatch.setattr(session, "answer", ended)
        await at.pause_of_a_person()
        await at.press("1")
        await at.pause_of_a_person()
        await at.press("enter")
        await session.close()
        await at.sees("the session has ended", loses="Yes, once")


async def test_what_cannot_be_answered_here_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asked(monkeypatch, "mcp__mail__send", **DRIVEN) as (at, _):
        await at.sees("about a tool of an MCP server")
    async with asked(monkeypatch) as (at, _):
        choice = at.choice
    assert choice is not None and choice.session, "nobody drives it, so it is opened"
