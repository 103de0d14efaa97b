"""What a login asks, on a real terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

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


class Terminal:
    def __init__(self, what: str) -> None:
        self.fd, slave = pty.openpty()
        self.child = subprocess.Popen(
            ["setsid", "--ctty", sys.executable, "-c", SCRIPT, what],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        os.close(slave)
        self.seen = ""

    def until(self, text: str) -> None:
        self._wait(lambda: text in self.seen, text)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, f"no {what!r} in {self.seen!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                self.seen += os.read(self.fd, 4096).decode()

    def echo_is(self, on: bool) -> None:
        def now() -> bool:
            return bool(termios.tcgetattr(self.fd)[3] & termios.ECHO) is on

        self._wait(now, f"echo {on}")

    def type(self, text: str | bytes) -> None:
        os.write(self.fd, text if isinstance(text, bytes) else text.encode())

    def stop_and_go_on(self) -> None:
        """Ctrl+Z and `fg` as a shell does it: its own modes are set, with echo."""
        self.child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED)
        modes = termios.tcgetattr(self.fd)
        modes[3] |= termios.ECHO
        termios.tcsetattr(self.fd, termios.TCSANOW, modes)
        self.child.send_signal(signal.SIGCONT)

    def end(self) -> None:
        os.close(self.fd)
        self.child.kill()
        self.child.wait()


@contextmanager
def asked(what: str, question: str = "(again): ", *, hidden: bool = True) -> Iterator[Terminal]:
    """A terminal on which the question is, with or without echo."""
    terminal = Terminal(what)
    try:
        terminal.until(question)
        if hidden:
            terminal.echo_is(False)
        yield terminal
    finally:
        terminal.end()


@pytest.mark.parametrize(
    ("typed", "known"), [(["maybe\n", "SHA256:abc\n"], True), (["no\n"], False), (["\x04"], False)], ids=str
)
def test_an_unknown_host_key_is_shown_and_needs_a_clear_answer(typed: list[str], known: bool) -> None:
    with asked("key", "fingerprint) ", hidden=False) as terminal:
        assert "host key of [devbox]:2222 is" in terminal.seen and "\x1b[2J" not in terminal.seen
        assert "SHA256:abc" in terminal.seen and "known_hosts" in terminal.seen
        for answer in typed[:-1]:
            terminal.type(answer)
            terminal.until("Please answer yes or no.")
        terminal.type(typed[-1])
        terminal.until(f"answer: {known}")


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("hunter2\n", "answer: hunter2\r\n"),
        ("\x1b]11;rgb:ffff/ffff/ffff\x07hunt\x1b[?62;4cer2\x1b[I\n", "answer: hunter2\r\n"),
        (b"caf\xe9\n", "answer: caf\N{REPLACEMENT CHARACTER}"),
        ("\x04", "(again): \r\nanswer: None"),
    ],
    ids=["a password", "a late answer of the terminal", "bytes that are no text", "nothing"],
)
def test_a_password_is_what_was_typed_and_is_not_echoed(typed: str | bytes, shown: str) -> None:
    with asked("password") as terminal:
        shown_at = time.monotonic()
        terminal.type(typed)
        terminal.until(shown)
        assert terminal.seen.count("hunter2") <= 1
        terminal.until("seconds")
        assert 0 < float(terminal.seen.partition("waited ")[2].split()[0]) < time.monotonic() - shown_at + 20


def test_ctrl_c_at_a_password_ends_at_once_and_leaves_the_terminal_with_echo() -> None:
    with asked("password") as terminal:
        terminal.type("\x03")
        terminal.until("interrupted")
        terminal.echo_is(True)


def test_a_challenge_echoes_what_the_server_allows() -> None:
    with asked("challenge", "Code: ", hidden=False) as terminal:
        assert "Second factor" in terminal.seen
        terminal.type("123456\n")
        terminal.until("Pin: ")
        terminal.echo_is(False)
        terminal.type("999\n")
        terminal.until("answer: ['123456', '999']")


def test_a_password_is_hidden_also_after_ctrl_z_and_fg() -> None:
    with asked("password") as terminal:
        terminal.stop_and_go_on()
        terminal.until("Password for alice@devbox (again): Password for alice@devbox (again): ")
        terminal.echo_is(False)
        terminal.type("hunter2\n")
        terminal.until("answer: hunter2")
        assert terminal.seen.count("hunter2") == 1


def test_a_question_that_nobody_waits_for_any_more_takes_no_line() -> None:
    with asked("nobody waits") as terminal:
        terminal.child.send_signal(signal.SIGUSR1)
        terminal.until("next:")
        terminal.echo_is(True)
        terminal.type("mine\n")
        terminal.until("answer: mine")


def test_what_is_to_be_said_of_a_login_is_one_line_on_stderr_where_nobody_can_be_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    prompts = prompts_for(headless=True)
    for _ in range(2):
        tell_once(prompts, "Without effect on devbox: LocalForward.")
    prompts.banner("Only for friends.")
    assert capsys.readouterr() == ("", "ccb: Without effect on devbox: LocalForward.\n")
