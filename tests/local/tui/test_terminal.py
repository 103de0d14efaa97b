"""The REPL's bytes on a real terminal: window title, farewell, and nothing that the remote wrote as a command."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psutil
import pytest
from tests.support.machine.waiting import until
from tests.support.person.terminal import Terminal, screen_env, terminal

from ccb.local.tui.rendering.block_renderer import SPINNER

pytestmark = pytest.mark.programs

HOSTILE = """
import asyncio, sys
from ccb.local.slash_commands.session_api import ReplInfo
from tests.support.repl.attached_repl import run_on
from tests.support.repl.scripted_session import ScriptedSession

EVIL = "\\x1b]52;c;ZXZpbA==\\x07\\x1b]2;owned\\x07\\x9d52;c;eA==\\x9c" \\
    "\\x1b]8;;http://evil/\\x1b\\\\ \\ud83d [x](http://evil/) END"

async def play(session, prompt):
    session.begin(model=EVIL)
    session.text(EVIL)
    session.done(session.call(EVIL, command=EVIL), EVIL)
    session.ask("ask", EVIL, {"command": EVIL, EVIL: EVIL}, decision_reason=EVIL)

async def main():
    info = ReplInfo("host", "/srv", "m", "default", "0", first_prompt="go")
    return await run_on(ScriptedSession(play=play), info)

sys.exit(asyncio.run(main()))
"""
BUSY = """
import asyncio, os, signal, sys
from ccb.local.slash_commands.session_api import ReplInfo
from tests.support.repl.attached_repl import run_on
from tests.support.repl.scripted_session import ScriptedSession

if sys.argv[1] == "deaf":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

async def play(session, prompt):
    session.begin(model="m")
    while True:
        session.text("word " * 40)
        await asyncio.sleep(0.01)

async def main():
    info = ReplInfo("host", "/srv", "m", "default", "0", first_prompt="go")
    return await run_on(ScriptedSession(play=play), info)

os._exit(asyncio.run(main()))  # as ccb does: Python would fail to write what is left, and end with 120
"""
WAITS = HOSTILE.replace(
    """    session.begin(model=EVIL)
""",
    """    session.begin(model="m")
    session.run(session.call("Bash", command="make"), "compiling\\n" * 50, 3)
    await asyncio.Event().wait()
""",
)
CRASHES = HOSTILE.replace("session.begin(model=EVIL)", "session._events.put_nowait(5)").replace(
    "sys.exit(asyncio.run(main()))",
    "import os, ccb.__main__, ccb.local.main\n"
    "os.environ['XDG_STATE_HOME'] = '/dev/null/none'\n"
    "ccb.local.main.run = lambda argv: asyncio.run(main())\n"
    "sys.exit(ccb.__main__.main())",
)


def python(*arguments: str) -> AbstractAsyncContextManager[Terminal]:
    return terminal([sys.executable, *arguments], screen_env(), os.getcwd())


async def test_it_names_the_window_gives_the_screen_back_and_says_goodbye() -> None:
    async with python("-m", "tests.support.repl.scripted_session") as at:
        await at.shows("F1 or /help")
        assert b"\x1b]2;ccb devbox:/srv/shop\x07" in at.written
        assert await at.ended_by("\x04") == 0
        await at.until(lambda: b"\x1b[?1049l" in at.written)
        await at.until(lambda: b"\x1b[23;2t" in at.written)  # the old window title
        _, _, after = at.written.rpartition(b"\x1b[?1049l")
        assert b"Session 5e55 on devbox:/srv/shop\r\n" in after


async def test_the_prompt_is_written_in_the_editor_of_the_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "my editor"
    editor.write_text('#!/bin/sh\ncat "$2"; echo EDITING; read answer; printf "%s" "$answer" >>"$2"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("EDITOR", f"'{editor}' -w")
    async with python("-m", "tests.support.repl.scripted_session") as at:
        await at.shows("F1 or /help")
        at.type("half a \x18\x05")  # Ctrl+X Ctrl+E
        await at.shows("half a EDITING")
        await at.types("prompt\r", "half a prompt")
        await at.types("\r", "this session")
        at.type("\x03")
        assert await at.ended_by("\x04") == 0


STATES = ("working", "waits for you", "waits for the model")


async def test_nothing_the_remote_says_is_a_command_to_the_terminal() -> None:
    async with python("-c", HOSTILE) as at:
        await at.shows("Asked because")
        await at.until(lambda: b";http://evil/\x1b\\" in at.written)
        at.type("\x0f/copy\r")  # Ctrl+O: also what is folded at first
        await at.shows("The last answer was sent")
        assert await at.ended_by("\x04") == 0
        await at.shows("Session 5e55")
        sequences = re.findall(rb"\x1b\](.*?)(?:\x07|\x1b\\)", at.written, re.DOTALL)
        assert len([each for each in sequences if each.startswith(b"52;")]) == 1  # ours, asked for by /copy
        titles = [each.decode() for each in sequences if each.startswith(b"2;")]
        assert set(titles) <= {"2;ccb host:/srv", *(f"2;{state} · ccb host:/srv" for state in STATES), "2;"}
        links = re.findall(rb"\x1b\]8;[^;]*;([^\x07\x1b]+)\x1b\\(.*?)\x1b\]8;;\x1b\\", at.written, re.DOTALL)
        shown = {(target, re.sub(rb"\x1b\[[\d;]*m", b"", text)) for target, text in links}
        assert shown == {(b"http://evil/", b"http://evil/")}, "a link leads only where it says"
        assert len(links) == len([each for each in sequences if each.startswith(b"8;") and each != b"8;;"])
        assert not [each for each in sequences if b"ZXZpbA" in each]
        assert "⟨ESC⟩]52;c;ZXZpbA" in at.text, "the card shows what the command has in it"
        assert not re.search("[\x80-\x9f]", at.written.decode("utf-8"))


async def test_a_bug_ends_it_with_the_code_of_a_bug() -> None:
    async with python("-c", CRASHES) as at:
        assert await at.ended() == 70
        _, _, after = at.written.rpartition(b"\x1b[?1049l")
        assert b"a bug in ccb" in after and b"Please report it" in after
        assert b"Traceback" not in at.written and b"locals" not in at.written


@pytest.mark.parametrize("hears", ["hears", "deaf"])  # of SIGHUP
@pytest.mark.quick_rows(1)
async def test_a_window_that_closes_while_much_is_shown_leaves_nothing_running(hears: str) -> None:
    async with python("-c", BUSY, hears) as at:
        await at.shows("word word")
        at.hang_up()
        assert await at.ended(20) == 129


async def _stop_and_go_on(at: Terminal) -> None:
    before = len(at.written)
    at.process.send_signal(signal.SIGSTOP)
    at.process.send_signal(signal.SIGCONT)
    await at.until(lambda: "F1 or /help shows the keys." in at.text_from(before))


async def test_a_program_that_was_stopped_draws_its_screen_anew_and_leaves_the_terminal_as_it_was() -> None:
    async with python("-m", "tests.support.repl.scripted_session") as at:
        await at.shows("F1 or /help shows the keys.")
        await _stop_and_go_on(at)
        await _stop_and_go_on(at)
        assert not at.echoes
        assert await at.ended_by("\x04") == 0 and at.echoes


async def _stop_and_continue(at: Terminal, stop: Callable[[], None]) -> None:
    """Stop the program, continue it in the background, where it may not draw, and then in the foreground."""
    seen = len(at.written)
    job = psutil.Process(os.tcgetpgrp(at.descriptor))
    stop()
    await at.until(lambda: "Stopped" in at.text_from(seen) and at.text_from(seen).endswith("$ ") and at.echoes)
    assert b"\x1b[?1049l" in at.written[seen:]
    before_bg = len(at.written)
    await at.types("bg\r", lambda: "&" in at.text_from(before_bg) and at.text_from(before_bg).endswith("$ "))
    assert at.echoes
    await until(lambda: job.status() == psutil.STATUS_STOPPED)  # it has tried to draw; no person is faster than that
    before_fg = len(at.written)
    await at.types("fg\r", lambda: "F1 or /help shows the keys." in at.text_from(before_fg) and not at.echoes)


async def test_ctrl_z_and_sigtstp_give_the_shell_its_terminal_and_fg_draws_the_screen_anew() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLORTERM": "truecolor", "PS1": "$ "}
    async with terminal(["bash", "--norc", "--noprofile", "--noediting", "-i"], env, os.getcwd()) as at:
        await at.until(lambda: at.text.endswith("$ "))
        at.type(f"{sys.executable} -m tests.support.repl.scripted_session\r")
        await at.until(lambda: "F1 or /help shows the keys." in at.text and not at.echoes)
        await _stop_and_continue(at, lambda: at.type("\x1a"))
        await _stop_and_continue(at, lambda: os.kill(os.tcgetpgrp(at.descriptor), signal.SIGTSTP))
        await at.types("\x04", lambda: at.text.endswith("$ ") and at.echoes)
        assert await at.ended_by("exit\r") == 0


@pytest.mark.parametrize(
    "number", [signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1, signal.SIGALRM, signal.SIGVTALRM], ids=lambda n: n.name
)
async def test_a_signal_that_ends_it_at_once_leaves_a_terminal_that_can_be_used(number: signal.Signals) -> None:
    async with python("-m", "tests.support.repl.scripted_session") as at:
        await at.shows("F1 or /help")
        at.process.send_signal(number)
        assert await at.ended() == -number and at.echoes
        _, _, after = at.written.rpartition(b"\x1b[?1003h")
        assert b"\x1b[?1003l" in after and b"\x1b[?2004l" in after and b"\x1b[?1049l" in after


async def _ended_in_a_shell(at: Terminal, end: Callable[[], None]) -> bytes:
    """Start the interface from a shell, end it, and run two commands of ccb. Return what they write."""
    seen = len(at.written)
    at.type(f"{sys.executable} -m tests.support.repl.scripted_session\r")
    await at.until(lambda: "F1 or /help shows the keys." in at.text_from(seen) and not at.echoes)
    end()
    await at.until(lambda: at.text.endswith("$ "))
    ended = len(at.written)
    at.type(f"{sys.executable} -m ccb config show; {sys.executable} -m ccb config show; echo both''done\r")
    await at.until(lambda: "bothdone" in at.text_from(ended) and at.text.endswith("$ "))
    return bytes(at.written[ended:])


async def test_the_next_ccb_restores_the_terminal_of_one_that_was_killed(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PS1": "$ ", "XDG_STATE_HOME": str(tmp_path)}
    async with terminal(["bash", "--norc", "--noprofile", "--noediting", "-i"], env, os.getcwd()) as at:
        await at.until(lambda: at.text.endswith("$ "))
        wrote = await _ended_in_a_shell(at, lambda: os.killpg(os.tcgetpgrp(at.descriptor), signal.SIGKILL))
        assert wrote.count(b"is restored now") == wrote.count(b"\x1b[?1049l") == 1
        assert at.echoes
        wrote = await _ended_in_a_shell(at, lambda: at.type("\x04"))
        assert b"is restored now" not in wrote and b"\x1b[?1049l" not in wrote
        assert not list((tmp_path / "ccb" / "screens").iterdir())


STILL_S = 1.2


async def test_nothing_is_drawn_while_nothing_happens() -> None:
    async with python("-m", "tests.support.repl.scripted_session") as at:
        await at.shows("F1 or /help shows the keys.")
        seen, since = 0, time.monotonic()
        async with asyncio.timeout(60):
            while time.monotonic() - since < STILL_S:
                if len(at.written) > seen:
                    seen, since = len(at.written), time.monotonic()
                await asyncio.sleep(0.02)


async def test_a_spinner_draws_little_more_than_itself() -> None:
    async with python("-c", WAITS) as at:
        await at.shows("Bash make")
        await at.shows("working 2 s")
        before = len(at.written)
        await at.until(lambda: "4 s" in at.text_from(before))
        assert len(set(SPINNER) & set(at.text_from(before))) > 2
        assert len(at.written) - before < 10_000  # it was 100 KB a second
