"""Another session of the host on the screen: /new, /resume, and the list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from tests.support.repl.paper import PALETTE
from tests.support.repl.pilot import COLOURFUL, Desk, QuickPilot, wait_until
from tests.support.repl.scripted_session import MODEL, ScriptedSession, hello
from tests.support.screens.scenes import row

from ccb.local.command_line.arguments import AgentOptions, Arguments, PermissionOptions, SessionChoice
from ccb.local.connect.host_sessions import HostSessions
from ccb.local.connect.session_rows import SessionRow
from ccb.local.session.session_client import LinkState
from ccb.local.slash_commands.session_api import LaptopSide, NextSession, ReplInfo, arguments_for
from ccb.local.tui.app import Repl
from ccb.local.tui.between_sessions import choose_first, take_off
from ccb.local.tui.panels.session_panel import preview_lines
from ccb.local.tui.repl_shell import Switching
from ccb.tunnel.errors import ConnectionLost, UsageError
from ccb.tunnel.plain_text import HostText

ROWS = [
    row("5e55", "/srv/shop", "idle", 1, "port it"),
    row("aaaa1111", "/srv/api", "running", 60, "fix the \x1b[31mflaky test"),
    row("bbbb2222", "/srv/shop", "requires_action", 7200, "write the docs"),
    row("cccc3333", "/srv/old", "ended", 90_000, ""),
]


class Projects:
    """Stands for the desk that asks about projects."""

    ask = tell = keep = command = None


class Shelf(HostSessions):
    """The sessions of a host in memory."""

    def __init__(self, rows: Sequence[SessionRow] | ConnectionLost) -> None:
        self.rows = rows
        self.done: list[tuple[str, ...]] = []
        self.refuse = False

    async def listed(self) -> Sequence[SessionRow]:
        if isinstance(self.rows, ConnectionLost):
            raise self.rows
        return self.rows

    async def last_said(self, session: str) -> Sequence[HostText]:
        call = 'call Bash {"command": "say \\"hi\\"\\n\\u001b[2Jnow", "desc…'
        return [*map(HostText, (f"prompt: what is {session}?", call, f"agent: \x1b[31m{session} is a session"))]

    async def rename(self, session: str, title: str) -> None:
        self._change("rename", session, title)

    async def remove(self, row: SessionRow) -> None:
        self._change("remove", row.session)

    def _change(self, *what: str) -> None:
        if self.refuse:
            raise UsageError("somebody drives it now", do="Look again.")
        self.done.append(what)


@asynccontextmanager
async def switching(
    sessions: Sequence[ScriptedSession],
    rows: Sequence[SessionRow] | ConnectionLost = ROWS,
    *,
    shelf: Shelf | None = None,
    size: tuple[int, int] = (100, 30),
) -> AsyncIterator[tuple[Desk, list[NextSession]]]:
    """A REPL that shows one of `sessions` after the other; and where the person has gone."""
    gone: list[NextSession] = []

    there = shelf or Shelf(rows)

    async def attend(app: Repl) -> None:
        for session in sessions:
            info = ReplInfo("devbox", session.hello.cwd.raw, MODEL, "default", "0.1.0")
            await app.attach(session, info, (), LaptopSide(cast(Any, Projects()), None, cast(Any, there)))
            following = await app.switching.wait()
            if following is None:
                return
            gone.append(following)
            await take_off(app)
        await app.switching.wait()

    app = Repl("devbox", attend, environ=COLOURFUL)
    async with app.run_test(size=size):
        pilot = QuickPilot(app)
        await wait_until(pilot, lambda: app.attached)
        yield Desk(app, sessions[0], pilot), gone
    app.switching.leave()
    assert app.session_task is not None
    await app.session_task
    for session in sessions:
        await session.close()


async def test_new_begins_a_session_and_says_how_to_come_back() -> None:
    first, second = ScriptedSession(), ScriptedSession(greeting=hello(cwd="/srv/new"))
    async with switching([first, second]) as (at, gone):
        first.text("From the first session.")
        await at.sees("From the first session.")
        await at.give("/mode plan", then=lambda: at.view.reducer.facts.mode == "plan")
        await at.enter("/clear", sees=("devbox:/srv/new", "Before this: session 5e55. /resume 5e55 goes back to it."))
        assert gone == [NextSession("", MODEL, "plan")]
        assert "From the first session." not in at.screen and "Connecting" not in at.screen
        await at.give("hello there", then=lambda: second.prompts == ["hello there"])
        assert first.prompts == [] and at.app.focused is at.composer


async def test_what_is_typed_while_the_next_session_is_opened_is_sent_to_it() -> None:
    first, second = ScriptedSession(), ScriptedSession(greeting=hello(cwd="/srv/new"))
    async with switching([first]) as (at, _):
        first.begin()
        await at.sees("working")
        await at.give("/new", sees=("Connecting to devbox", "The agent keeps working there."))
        await at.give("typed early")
        assert at.app.attached is None and "typed early" in at.screen
        await at.app.attach(second, ReplInfo("devbox", "/srv/new", MODEL, "default", "0.1.0"))
        await at.until(lambda: second.prompts == ["typed early"])
        assert first.prompts == []
    await second.close()


async def test_resume_lists_the_sessions_and_narrows_them() -> None:
    async with switching([ScriptedSession(), ScriptedSession(greeting=hello(cwd="/srv/docs"))]) as (at, gone):
        await at.enter("/resume")
        await at.sees("Sessions on devbox", "here       port it", "›    1m  working    fix the flaky test")
        await at.sees("2h  asks you   write the docs", "flaky test", "  /srv/api", "3 sessions", lacks="no prompt")
        assert "\x1b" not in at.screen and "  /srv/shop" not in at.screen, "where the person is"
        await at.type("shop docs", sees=("1 of 3 sessions", "›    2h  asks you   write the docs"))
        await at.press("x", sees="No session fits what you typed.")
        await at.press("enter", "backspace", "enter", sees="devbox:/srv/docs")
        assert gone == [NextSession("bbbb2222")]


async def test_the_session_on_the_screen_is_not_opened_again_and_esc_stays() -> None:
    async with switching([ScriptedSession()]) as (at, gone):
        await at.give("/resume", sees="Sessions on devbox")
        await at.press("up", "enter", sees="Sessions on devbox")
        await at.press("escape", loses="Sessions on devbox")
        assert not gone and at.app.focused is at.composer


async def test_the_last_messages_of_the_marked_session_are_shown() -> None:
    for size in ((100, 30), (140, 30)):
        async with switching([ScriptedSession()], size=size) as (at, _):
            await at.give("/resume", sees=("❯ what is aaaa1111?", '⚙ Bash say "hi" ', "aaaa1111 is a session"))
            await at.press("down", sees="❯ what is bbbb2222?")
            assert "\x1b" not in at.screen and "aaaa1111?" not in at.screen


def test_the_preview_names_calls_as_the_conversation_does() -> None:
    said = [
        'call Edit {"file_path": "/srv/shop/cart.py", "old_string": "a"}',
        'asks to use Edit {"file_path": "/srv/shop/cart.py", "old_string": "a"}',
        'call AskUserQuestion {"questions": [{"question": "Which one?", "header": "One"}]}',
        'asks to use AskUserQuestion {"questions": [{"question": "Which one?", "header": "One"}]}',
    ]
    shown = [line.plain for line in preview_lines(said, 10, 60, PALETTE, "/srv/shop")]
    assert shown == ["⚙ Edit cart.py", "⚙ AskUserQuestion Which one?", "? AskUserQuestion Which one?"]


async def test_f2_renames_a_session() -> None:
    shelf, first = Shelf(ROWS), ScriptedSession()
    async with switching([first], shelf=shelf) as (at, gone):
        await at.give("/resume", sees="fix the flaky test")
        await at.press("f2", sees="New name")
        await at.press("ctrl+u")
        await at.enter("api fix", sees=("Renamed.", "working    api fix"))
        assert shelf.done == [("rename", "aaaa1111", "api fix")]
        await at.press("up", "f2", "x", "enter")
        await at.until(lambda: ("rename_session", {"title": "port itx"}) in first.controls)
        assert len(shelf.done) == 1 and not gone


async def test_a_session_is_deleted_only_after_yes_and_the_question_names_what_goes() -> None:
    driven = ROWS[1].model_copy(update={"driver": HostText("bob@desk"), "alive": True})
    shelf = Shelf([ROWS[0], driven, *ROWS[2:]])
    async with switching([ScriptedSession()], shelf=shelf) as (at, _):
        await at.give("/resume", sees="fix the flaky test")
        await at.press("delete")
        await at.sees("Delete “fix the flaky test” on devbox:/srv/api?", "“bob@desk” drives it", "Its agent works")
        await at.enter("y", sees="Nothing was deleted.")
        await at.press("delete", "escape")
        assert shelf.done == []


async def test_a_deleted_session_leaves_the_list_and_a_refusal_is_said() -> None:
    shelf = Shelf(ROWS)
    async with switching([ScriptedSession()], shelf=shelf) as (at, _):
        await at.give("/resume docs", sees="1 of 3 sessions")
        shelf.refuse = True
        for answer in ("somebody drives it now. Look again.", "Deleted."):
            await at.press("delete")
            await at.enter("yes", sees=answer)
            shelf.refuse = False
        assert shelf.done == [("remove", "bbbb2222")] and "write the docs" not in at.screen
        await at.press(*["backspace"] * 4, "up", "delete", sees="This session is on the screen")


async def test_the_first_session_is_chosen_on_the_screen() -> None:
    chosen: list[str | None] = []

    async def attend(app: Repl) -> None:
        chosen.append(await choose_first(app, Shelf(ROWS), ROWS))
        chosen.append(await choose_first(app, Shelf(ROWS), ROWS))
        app.leave()

    app = Repl("devbox", attend, environ=COLOURFUL)
    async with app.run_test(size=(80, 24)):
        at = Desk(app, ScriptedSession(), QuickPilot(app))
        await at.sees("Sessions on devbox", "choose the session that comes on the screen")
        await at.press("down", "down", "enter", then=lambda: chosen, sees="Sessions on devbox")
        await at.press("escape", then=lambda: len(chosen) == 2)
    assert chosen == ["bbbb2222", None]


async def test_the_start_of_an_id_opens_that_session_and_other_text_narrows() -> None:
    async with switching([ScriptedSession(), ScriptedSession(greeting=hello(cwd="/srv/docs"))]) as (at, gone):
        await at.give("/resume docs", sees="1 of 3 sessions")
        await at.press("escape")
        await at.give("/resume AAAA", sees="devbox:/srv/docs")
        assert gone == [NextSession("aaaa1111")]


async def test_a_list_that_cannot_be_read_leaves_the_session_where_it_is() -> None:
    async with switching([ScriptedSession()], ConnectionLost("devbox is gone")) as (at, gone):
        await at.give("/resume", sees="devbox is gone")
        assert not gone


async def test_without_a_connection_the_session_stays() -> None:
    first = ScriptedSession()
    async with switching([first]) as (at, gone):
        first.link(LinkState.RECONNECTING, "the network is down")
        await at.sees("reconnecting")
        await at.give("/new", sees="There is no connection now, so this session stays")
        assert not gone


async def test_a_terminal_with_one_session_only_says_so(at: Desk) -> None:
    await at.enter("/new", sees="This terminal shows one session only.")


async def test_leaving_wins_over_another_session() -> None:
    switch = Switching()
    switch.leave()
    switch.go_to(NextSession("x"))
    assert await switch.wait() is None


def test_the_arguments_of_the_next_session() -> None:
    agent, permissions = AgentOptions(model="opus"), PermissionOptions(dangerously_skip_permissions=True)
    session = SessionChoice(continue_latest=True, reconnect_timeout=7)
    given = Arguments("ssh", "~/app", "first prompt", agent=agent, permissions=permissions, session=session)
    new = arguments_for(NextSession("", "haiku", "plan"), given, "/home/u/app")
    assert (new.prompt, new.directory) == (None, "/home/u/app")
    assert new.session == SessionChoice(reconnect_timeout=7)
    assert new.agent == AgentOptions(model="haiku")
    assert new.permissions == PermissionOptions(permission_mode="plan", allow_bypass=True)
    known = arguments_for(NextSession("aaaa"), given, "/home/u/app")
    assert (known.prompt, known.directory) == (None, None)
    assert known.session == SessionChoice(resume="aaaa", reconnect_timeout=7)
    assert (known.agent.model, known.permissions.permission_mode) == (None, None)
    copied = arguments_for(NextSession("aaaa", copied=True), given, "/home/u/app")
    assert copied.session == SessionChoice(resume="aaaa", fork_session=True, reconnect_timeout=7)
