"""Before the session is there: the interface takes typing, keeps it in order, and never gives it to a login."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from tests.support.person.terminal import Terminal, screen_env, terminal
from tests.support.repl.pilot import COLOURFUL, Desk, QuickPilot, wait_until
from tests.support.repl.scripted_session import MODEL, ScriptedSession

from ccb.local.session.session_client import AS_PROMPT, LinkState
from ccb.local.slash_commands.session_api import ReplInfo
from ccb.local.tui.app import Repl


@dataclass
class Waiting(Desk):
    """A REPL whose session comes when `come` is called."""

    arrived: asyncio.Event

    async def submits(self, *texts: str) -> None:
        for text in texts:
            self.composer.type(text)
            await self.pilot.press("enter")

    async def come(self) -> None:
        self.arrived.set()
        await wait_until(self.pilot, lambda: self.app.attached)


@asynccontextmanager
async def waiting(
    session: ScriptedSession | None = None, *, prompt: str = "", watching: bool = False
) -> AsyncIterator[Waiting]:
    session, arrived = session or ScriptedSession(), asyncio.Event()

    async def attend(app: Repl) -> None:
        await arrived.wait()
        info = ReplInfo("devbox", "/srv/shop", MODEL, "default", "0", first_prompt=prompt)
        await app.attach(session, info, ["the settings are odd"])
        await app.switching.wait()

    app = Repl("devbox", attend, first_prompt=prompt, watching=watching, environ=COLOURFUL)
    async with app.run_test(size=(100, 30)):
        pilot = QuickPilot(app)
        await wait_until(pilot, lambda: app.session_task)
        yield Waiting(app, session, pilot, arrived)
    app.switching.leave()
    assert app.session_task is not None
    app.session_task.cancel()
    await asyncio.gather(app.session_task, return_exceptions=True)
    await session.close()


async def test_what_is_sent_before_the_session_is_there_is_shown_and_sent_in_order() -> None:
    async with waiting(prompt="/etc is first") as at:
        await at.submits("second", "third\nof two lines", "/mode plan", "last")
        at.composer.type("half a though")
        assert at.screen.count("(queued)") == 5 and "third …  (queued)" in at.screen
        assert at.session.prompts == []
        await at.come()
        await wait_until(at.pilot, lambda: len(at.session.prompts) == 4)
        assert at.session.prompts == ["/etc is first", "second", "third\nof two lines", "last"]
        assert at.view.reducer.facts.mode == "plan"
        await at.press("t", has="half a thought")
        assert at.app.focused is at.composer and "the settings are odd" in at.screen
        assert "Connecting" not in at.screen


async def test_what_is_sent_while_the_first_ones_are_on_their_way_comes_after_them() -> None:
    class Slow(ScriptedSession):
        async def prompt(self, content, *, uuid=None, how=AS_PROMPT):  # type: ignore[no-untyped-def]
            if not self.prompts:
                await gate.wait()
            return await super().prompt(content, uuid=uuid, how=how)

    gate = asyncio.Event()
    async with waiting(Slow()) as at:
        await at.submits("one", "two")
        await at.come()
        await at.submits("three")
        gate.set()
        await wait_until(at.pilot, lambda: len(at.session.prompts) == 3)
        assert at.session.prompts == ["one", "two", "three"]


async def test_what_a_terminal_that_only_watches_cannot_send_comes_back_in_order() -> None:
    session = ScriptedSession(driving=False)
    session.link(LinkState.FENCED, "bob drives")
    async with waiting(session) as at:
        await at.submits("one", "two")
        at.composer.type("three")
        await at.come()
        await wait_until(at.pilot, lambda: at.composer.text == "one\ntwo\nthree")
        assert at.session.prompts == []


async def test_a_viewer_takes_no_text_from_the_beginning() -> None:
    async with waiting(watching=True) as at:
        await at.press("h", "i", "enter", has="")
        assert "only watches" in at.screen


async def test_an_input_that_ccb_does_not_understand_comes_back_at_once() -> None:
    async with waiting() as at:
        await at.submits("#")
        assert at.composer.text == "#"
        assert "keeps a note" in at.screen and "(queued)" not in at.screen


@pytest.mark.parametrize(
    ("keys", "code"),
    [(("ctrl+c",), 130), (("h", "ctrl+c"), 130), (("ctrl+d",), 0), (("ctrl+q",), 0), ((*"/quit", "enter"), 0)],
)
async def test_who_leaves_before_the_session_is_there_leaves_at_once(keys: tuple[str, ...], code: int) -> None:
    async with waiting() as at:
        await at.press(*("slash" if key == "/" else key for key in keys))
        assert at.app.return_value == code


@pytest.mark.parametrize("turns", [4, 8, 9, 10, 11, 12])
async def test_who_leaves_at_the_moment_in_which_the_session_comes_has_left(turns: int) -> None:
    async with waiting() as at:
        at.arrived.set()
        for _ in range(turns):  # of the event loop
            await asyncio.sleep(0)
        at.app.exit(0)
    assert (at.app.return_value, at.app.return_code, at.app._exception) == (0, 0, None)


async def test_keys_that_need_a_session_do_nothing_yet() -> None:
    async with waiting() as at:
        for key in ("escape", "tab", "shift+tab", "alt+a", "alt+t", "alt+r", "ctrl+o", "pageup", "pagedown", "f1"):
            await at.press(key)
        await at.submits("still here")
        assert "still here  (queued)" in at.screen


async def test_what_the_login_says_is_shown_and_stays() -> None:
    async with waiting() as at:
        at.app.opening.say("Only for\x00 friends.\x1b[2J")
        await wait_until(at.pilot, lambda: "Only for\u2400 friends." in at.screen)
        await at.come()
        await wait_until(at.pilot, lambda: "Only for\u2400 friends." in at.screen)


PROGRAM = """
import asyncio, select, sys
from ccb.local.terminal.terminal_prompts import TerminalPrompts
from ccb.local.tui.app import Repl
from ccb.local.tui.between_sessions import run_repl
from ccb.local.slash_commands.session_api import ReplInfo
from ccb.tunnel.errors import CcbError, Unreachable
from tests.support.repl.scripted_session import ScriptedSession

async def attend(app):
    prompts = TerminalPrompts()
    with app.login_handover.serving(prompts):
        while not app.opening.queued and sys.argv[1] != "at once":
            await asyncio.sleep(0.01)
        prompts.banner("Only for friends.")
        if sys.argv[1] == "fails":
            raise Unreachable("cannot reach devbox", do="Try again.")
        first = await prompts.password("me@devbox", 1)
        prompts.banner("Wait for a call.")
        second = await prompts.password("me@devbox", 2)
        prompts.banner("Thank you.")
        while sys.argv[1] == "at once" and not select.select([0], [], [], 0)[0]:
            await asyncio.sleep(0.01)
        session = ScriptedSession()
        await app.attach(session, ReplInfo("devbox", "/srv", "m", "default", "0"))
        session.text(f"WELCOME with {first} and {second}")
        await app.switching.wait()

try:
    code = asyncio.run(run_repl(Repl("devbox", attend)))
except CcbError as error:
    print("ERROR", error)
    code = 69
sys.exit(code)
"""
OUT = b"\x1b[?1049l"


@asynccontextmanager
async def program(kind: str) -> AsyncIterator[Terminal]:
    async with terminal([sys.executable, "-c", PROGRAM, kind], screen_env(), os.getcwd()) as at:
        await at.shows("Connecting to devbox")
        yield at


@pytest.mark.programs
async def test_questions_of_the_first_login_are_asked_on_the_plain_terminal() -> None:
    async with program("at once") as at:
        await at.shows("Password for me@devbox: ")
        await at.types("one\r", "Password for me@devbox (again): ")
        at.type("two\rsecret\r")  # as somebody does who knows that a third question comes
        await at.shows("WELCOME with one and two")
        shown = at.text_from(at.written.index(OUT)).splitlines()
        questions = ["Password for me@devbox: ", "Wait for a call.", "Password for me@devbox (again): ", "Thank you."]
        assert shown[:6] == ["ccb: connecting to devbox", "Only for friends.", *questions]
        assert at.written.count(OUT) == 1, "between the questions the interface stays away"
        await at.types("x", lambda: "x" in at.text_from(at.written.index(b"WELCOME")))
        assert "secret" not in at.text
        at.type("\x11\x11")  # Ctrl+Q
        assert await at.ended() == 0


@pytest.mark.programs
async def test_a_question_does_not_get_what_the_person_types_into_the_composer() -> None:
    async with program("asks") as at:
        await at.types("a prompt\r", "Alt+R answers it")
        at.type("and half a")
        at.type(" secret\r")  # as somebody does who types and does not look
        await at.shows("and half a secret")
        assert OUT not in at.written
        await at.chord("\x1br")
        await at.shows("Password for me@devbox: ")
        await at.types("one\r", "Password for me@devbox (again): ")
        await at.types("two\r", "WELCOME with one and two")


@pytest.mark.programs
async def test_what_was_typed_for_a_session_that_never_came_stays_on_the_terminal() -> None:
    async with program("fails") as at:
        assert await at.ended_by("a long prompt\r") == 69
        await at.shows("ERROR cannot reach devbox")
        after = at.text_from(at.written.rindex(OUT))
        assert after.index("Only for friends.") < after.index("a long prompt") < after.index("ERROR")


@pytest.mark.programs
async def test_ctrl_c_while_connecting_says_what_was_not_sent() -> None:
    async with program("nothing") as at:
        await at.types("half a thought", "half a thought")
        assert await at.ended_by("\x03") == 130
        await at.shows("ccb: interrupted")
        assert "half a thought" in at.text_from(at.written.rindex(OUT))


HEAVY = (
    "aiohttp", "asyncssh", "ccb.local.connect.connect_session", "ccb.local.session", "ccb.local.tui.session_view",
    "ccb.tunnel.wire.journal_records", "markdown_it", "pydantic", "pygments", "rich.markdown",
)  # fmt: skip


@pytest.mark.programs
def test_the_first_frame_waits_for_nothing_that_only_a_session_needs() -> None:
    code = (
        "import sys, ccb.local.main, ccb.local.repl, ccb.local.tui.app, ccb.local.tui.between_sessions\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"
