"""A login in the middle of a session: asked on the plain terminal, and the interface comes back as it was."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractAsyncContextManager

import pytest
from tests.support.person.terminal import Terminal, screen_env, terminal

pytestmark = pytest.mark.programs

PROGRAM = """
import asyncio, sys
from ccb.local.session.session_client import LinkState
from ccb.local.terminal.terminal_prompts import TerminalPrompts
from ccb.local.slash_commands.session_api import ReplInfo
from ccb.tunnel.transports.host_keys import HostKeyInfo
from tests.support.repl.attached_repl import run_on
from tests.support.repl.scripted_session import ScriptedSession

prompts = TerminalPrompts()

class Asking(ScriptedSession):
    def retry(self):
        self.task = asyncio.create_task(self.log_in())

    async def log_in(self):
        prompts.banner("Only for friends.")
        if sys.argv[1] == "elsewhere":
            return says.set()
        for _ in range(100):
            self.text("said meanwhile " * 20)
        try:
            asks = {"password": self.password, "challenge": self.challenge, "failing": self.failing}
            answer = await asks[sys.argv[1]]()
        except ZeroDivisionError:
            answer = "a failure"
        if answer is None:
            self.link(LinkState.NEEDS_PERSON, "nobody logged in")
        else:
            self.text(f"WELCOME with {answer}")
            self.link(LinkState.CONNECTED)

    async def password(self):
        answer = await prompts.password("me@devbox", 1)
        return answer and f"{len(answer)} letters"

    async def challenge(self):
        answers = await prompts.challenge("", "Two factors", [("Code: ", False), ("Colour: ", True)])
        return answers and " and ".join(answers)

    async def failing(self):
        async with prompts.pause():
            1 / 0

async def says_later(says):  # a task of a connection is older than the interface
    await says.wait()
    prompts.banner("Visit https://login.invalid and type 1234")

async def main():
    global says
    says = asyncio.Event()
    saying = asyncio.create_task(says_later(says))
    session = Asking()
    session.link(LinkState.NEEDS_PERSON, "devbox asks for something")
    code = await run_on(session, ReplInfo("devbox", "/srv", "m", "default", "0"), prompts=prompts)
    assert prompts.pause is None
    return code

sys.exit(asyncio.run(main()))
"""
IN, OUT = b"\x1b[?1049h", b"\x1b[?1049l"


def program(kind: str) -> AbstractAsyncContextManager[Terminal]:
    return terminal([sys.executable, "-c", PROGRAM, kind], screen_env(), os.getcwd())


async def _log_in(at: Terminal, question: str) -> None:
    await at.shows("logs in")
    await at.types("half a thought", "half a thought")
    await at.chord("\x1br")  # Alt+R
    await at.shows(question)


async def test_a_password_is_asked_on_the_plain_terminal_and_the_interface_comes_back() -> None:
    async with program("password") as at:
        await _log_in(at, "Password for me@devbox: ")
        lines = at.text_from(at.written.rindex(OUT)).splitlines()
        assert lines == ["ccb: logging in to devbox again", "Only for friends.", "Password for me@devbox: "]
        asked = len(at.written)
        await at.types("s3cr3t\n", "WELCOME with 6 letters")
        await at.until(lambda: "half a thought" in at.text_from(asked))
        assert b"s3cr3t" not in at.written and IN in at.written[asked:]
        assert b"said meanwhile" not in at.written[asked : at.written.index(IN, asked)]
        assert await at.ended_by("\x03\x04") == 0
        assert at.written.count(IN) == at.written.count(OUT) == 2


@pytest.mark.thorough
async def test_where_to_log_in_is_shown_without_a_question() -> None:
    async with program("elsewhere") as at:
        await _log_in(at, "Visit https://login.invalid and type 1234")
        assert OUT not in at.written


async def test_every_question_of_a_challenge_is_asked() -> None:
    async with program("challenge") as at:
        await _log_in(at, "Code: ")
        await at.shows("Two factors")
        await at.types("123456\n", "Colour: ")
        await at.types("blue\n", "WELCOME with 123456 and blue")


@pytest.mark.thorough
async def test_who_does_not_answer_is_back_in_the_interface() -> None:
    async with program("password") as at:
        await _log_in(at, "Password for me@devbox: ")
        await at.types("\x04", "nobody logged in")
        asked = len(at.written)
        await at.types("!", lambda: "!" in at.text_from(asked))


@pytest.mark.thorough
async def test_the_interface_comes_back_also_after_a_failure() -> None:
    async with program("failing") as at:
        await at.shows("logs in")
        await at.chord("\x1br")
        await at.shows("WELCOME with a failure")
        await at.until(lambda: at.written.count(IN) == 2)


async def test_ctrl_c_at_the_question_leaves_and_the_interface_stays_away() -> None:
    async with program("password") as at:
        await _log_in(at, "Password for me@devbox: ")
        asked = len(at.written)
        assert await at.ended_by("\x03") == 130
        await at.shows("Session 5e55 on devbox:/srv")
        assert IN not in at.written[asked:]
