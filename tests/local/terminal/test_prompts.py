"""What a login asks, on a real terminal."""

from __future__ import annotations

import os
import signal
import sys
import termios
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.machine.waiting import until
from tests.support.person.terminal import Terminal, terminal

from ccb.local.terminal.terminal_prompts import prompts_for
from ccb.tunnel.transports.login_prompts import tell_once

SCRIPT = """
import asyncio, signal, sys
from pathlib import Path
from ccb.local.terminal.terminal_prompts import TerminalPrompts
from ccb.tunnel.transports.host_keys import HostKeyInfo

prompts = TerminalPrompts()
info = HostKeyInfo("dev\\x1b[2Jbox", 2222, "ssh-ed25519", "SHA256:abc", Path("known_hosts"))


async def nobody_waits():
    # a password that is no longer wanted, as when the server has hung up; then a line for somebody else
    asking = asyncio.create_task(prompts.password("alice@devbox", 2))
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, asking.cancel)
    await asyncio.wait({asking})
    print("next:", flush=True)
    return sys.stdin.readline()


ask = {
    "nobody waits": nobody_waits,
    "key": lambda: prompts.confirm_host_key(info),
    "password": lambda: prompts.password("alice@devbox", 2),
    "challenge": lambda: prompts.challenge("Login", "Second factor", [("Code: ", True), ("Pin: ", False)]),
}[sys.argv[1]]
try:
    print("answer:", asyncio.run(ask()))
    print("waited", prompts.asked_s, "seconds")
except KeyboardInterrupt:
    print("interrupted")
"""


@asynccontextmanager
async def asked(what: str, question: str = "(again): ", *, hidden: bool = True) -> AsyncIterator[Terminal]:
    """A terminal on which the question is, with or without echo."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    async with terminal(["env", sys.executable, "-c", SCRIPT, what], environ, os.getcwd()) as at:
        await at.shows(question)
        if hidden:
            await until(lambda: not at.echoes)
        yield at


@pytest.mark.parametrize(
    ("typed", "known"), [(["maybe\n", "SHA256:abc\n"], True), (["no\n"], False), (["\x04"], False)], ids=str
)
async def test_an_unknown_host_key_is_shown_and_needs_a_clear_answer(typed: list[str], known: bool) -> None:
    async with asked("key", "fingerprint) ", hidden=False) as at:
        assert "host key of [devbox]:2222 is" in at.text and b"\x1b[2J" not in at.written
        assert "SHA256:abc" in at.text and "known_hosts" in at.text
        for answer in typed[:-1]:
            at.type(answer)
            await at.shows("Please answer yes or no.")
        at.type(typed[-1])
        await at.shows(f"answer: {known}")


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (b"hunter2\n", "answer: hunter2\r\n"),
        (b"\x1b]11;rgb:ffff/ffff/ffff\x07hunt\x1b[?62;4cer2\x1b[I\n", "answer: hunter2\r\n"),
        (b"caf\xe9\n", "answer: caf\N{REPLACEMENT CHARACTER}"),
        (b"\x04", "(again): \r\nanswer: None"),
    ],
    ids=["a password", "a late answer of the terminal", "bytes that are no text", "nothing"],
)
async def test_a_password_is_what_was_typed_and_is_not_echoed(typed: bytes, shown: str) -> None:
    async with asked("password") as at:
        shown_at = time.monotonic()
        os.write(at.descriptor, typed)
        await at.shows(shown)
        assert at.text.count("hunter2") <= 1
        await at.shows("seconds")
        assert 0 < float(at.text.partition("waited ")[2].split()[0]) < time.monotonic() - shown_at + 20


async def test_ctrl_c_at_a_password_ends_at_once_and_leaves_the_terminal_with_echo() -> None:
    async with asked("password") as at:
        at.type("\x03")
        await at.shows("interrupted")
        await until(lambda: at.echoes)


async def test_a_challenge_echoes_what_the_server_allows() -> None:
    async with asked("challenge", "Code: ", hidden=False) as at:
        assert "Second factor" in at.text
        at.type("123456\n")
        await at.shows("Pin: ")
        await until(lambda: not at.echoes)
        at.type("999\n")
        await at.shows("answer: ['123456', '999']")


async def test_a_password_is_hidden_also_after_ctrl_z_and_fg() -> None:
    async with asked("password") as at:
        at.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, at.process.pid, os.WSTOPPED)
        modes = termios.tcgetattr(at.descriptor)
        modes[3] |= termios.ECHO  # as a shell sets them
        termios.tcsetattr(at.descriptor, termios.TCSANOW, modes)
        at.process.send_signal(signal.SIGCONT)
        await at.shows("Password for alice@devbox (again): Password for alice@devbox (again): ")
        await until(lambda: not at.echoes)
        at.type("hunter2\n")
        await at.shows("answer: hunter2")
        assert at.text.count("hunter2") == 1


async def test_a_question_that_nobody_waits_for_any_more_takes_no_line() -> None:
    async with asked("nobody waits") as at:
        at.process.send_signal(signal.SIGUSR1)
        await at.shows("next:")
        await until(lambda: at.echoes)
        at.type("mine\n")
        await at.shows("answer: mine")


def test_what_is_said_of_a_login_is_one_line_where_nobody_can_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    prompts = prompts_for(headless=True)
    for _ in range(2):
        tell_once(prompts, "Without effect on devbox: LocalForward.")
    prompts.banner("Only for friends.")
    assert capsys.readouterr() == ("", "ccb: Without effect on devbox: LocalForward.\n")
