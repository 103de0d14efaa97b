"""Ask the questions of a login on the plain terminal: unknown host keys, passphrases, passwords, challenges."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from ccb.tunnel.login.host_keys import HostKeyInfo, pattern_for
from ccb.tunnel.login.prompter import LoginMemory, NobodyToAsk, Prompts

from ..terminal.guarded_streams import say
from ..terminal.line_prompt import read_line

_MAX_BANNERS = 4


class TerminalPrompts:
    """Asks on the controlling terminal. Other texts go to stderr, so that stdout stays clean.

    A full-screen interface sets `pause`, which suspends it for a question, and `heard`, which receives banners that
    come without a question (they may say where to log in). `heard` returns whether the plain terminal is there for
    them. `asked_s` is the number of seconds that questions have waited for the person.
    """

    def __init__(self) -> None:
        self.memory = LoginMemory()
        self.pause: Callable[[], AbstractAsyncContextManager[None]] | None = None
        self.heard: Callable[[str], bool] | None = None
        self.asked_s = 0.0
        self._banners: deque[str] = deque(maxlen=_MAX_BANNERS)

    @contextlib.asynccontextmanager
    async def _free_terminal(self) -> AsyncIterator[None]:
        began = time.monotonic()
        try:
            async with self.pause() if self.pause is not None else contextlib.nullcontext():
                while self._banners:
                    self._show(self._banners.popleft())
                yield
        finally:
            self.asked_s += time.monotonic() - began

    async def confirm_host_key(self, info: HostKeyInfo) -> bool:
        async with self._free_terminal():
            return await self._confirm(info)

    async def _confirm(self, info: HostKeyInfo) -> bool:
        self._show(
            f"The host key of {pattern_for(info.host, info.port)} is not known.\n"
            f"  {info.algorithm} {info.fingerprint}\n"
            f"It would be stored in {info.store}."
        )
        if info.others:
            self._show(f"Keys of other types are stored for this host: {', '.join(info.others)}.")
        while True:
            answer = await read_line("Trust it and go on? (yes/no, or the fingerprint) ")
            if answer is None or answer.lower() in ("no", "n"):
                return False
            if answer.lower() in ("yes", "y") or answer == info.fingerprint:
                return True
            self._show("Please answer yes or no.")

    async def passphrase(self, path: str, attempt: int) -> str | None:
        again = " (again)" if attempt > 1 else ""
        async with self._free_terminal():
            return await read_line(f"Passphrase for {path}{again}: ", hidden=True)

    async def password(self, prompt: str, attempt: int) -> str | None:
        again = " (again)" if attempt > 1 else ""
        async with self._free_terminal():
            return await read_line(f"Password for {prompt}{again}: ", hidden=True)

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        async with self._free_terminal():
            return await self._challenge((title, instructions), prompts)

    async def _challenge(self, texts: Sequence[str], prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        for text in texts:
            if text.strip():
                self._show(text)
        answers = []
        for text, echo in prompts:
            answer = await read_line(text, hidden=not echo)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    def banner(self, text: str) -> None:
        if not text.strip():
            return
        if self.pause is None or (self.heard is not None and self.heard(text.rstrip())):
            self._show(text.rstrip())
        else:
            self._banners.append(text.rstrip())  # the next question shows it again

    def _show(self, text: str) -> None:
        say(*text.split("\n"))


def prompts_for(*, headless: bool) -> Prompts:
    """Return the prompts for a run: on the terminal, or `NobodyToAsk` in a headless run or if stdin is not a
    terminal."""
    return NobodyToAsk(tell=_on_stderr) if headless or not sys.stdin.isatty() else TerminalPrompts()


def _on_stderr(sentence: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads stderr, but that must not prevent the connection
        say(f"ccb: {sentence}")


async def ask_line(prompt: str) -> str:
    """Ask for one line on the terminal; "" at the end of input."""
    return await read_line(prompt) or ""
