"""What a login asks, on the plain terminal: unknown host keys, passphrases, passwords, challenges."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from ccb.tunnel.login.host_keys import HostKeyInfo, pattern_for
from ccb.tunnel.login.prompter import LoginMemory, NobodyToAsk, Prompts
from ccb.tunnel.plain_text import neutralise

from ..terminal.line_prompt import typed

_MOST_BANNERS = 4


class TerminalPrompts:
    """Asks on the controlling terminal; diagnostics go to stderr so that stdout stays clean. `pause` makes the terminal free
    for a question (a full-screen interface steps aside); None where nothing has to. That interface hears with `heard` what is
    said without a question: it may be where to log in."""

    def __init__(self) -> None:
        self.memory = LoginMemory()
        self.pause: Callable[[], AbstractContextManager[None]] | None = None
        self.heard: Callable[[str], None] | None = None
        self.asked_s = 0.0  # how long questions have waited for the person
        self._banners: deque[str] = deque(maxlen=_MOST_BANNERS)

    @contextlib.contextmanager
    def _free_terminal(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            with self.pause() if self.pause is not None else contextlib.nullcontext():
                while self._banners:
                    self._say(self._banners.popleft())
                yield
        finally:
            self.asked_s += time.monotonic() - began

    async def confirm_host_key(self, info: HostKeyInfo) -> bool:
        with self._free_terminal():
            return await self._confirm(info)

    async def _confirm(self, info: HostKeyInfo) -> bool:
        self._say(
            f"The host key of {neutralise(pattern_for(info.host, info.port))} is not known.\n"
            f"  {info.algorithm} {info.fingerprint}\n"
            f"It would be stored in {info.store}."
        )
        if info.others:
            self._say(f"Keys of other kinds are on file for this host: {', '.join(info.others)}.")
        while True:
            answer = await typed("Trust it and go on? (yes/no, or the fingerprint) ")
            if answer is None or answer.lower() in ("no", "n"):
                return False
            if answer.lower() in ("yes", "y") or answer == info.fingerprint:
                return True
            self._say("Please answer yes or no.")

    async def passphrase(self, path: str, attempt: int) -> str | None:
        again = " (again)" if attempt > 1 else ""
        with self._free_terminal():
            return await typed(f"Passphrase for {neutralise(path)}{again}: ", hidden=True)

    async def password(self, prompt: str, attempt: int) -> str | None:
        again = " (again)" if attempt > 1 else ""
        with self._free_terminal():
            return await typed(f"Password for {neutralise(prompt)}{again}: ", hidden=True)

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        with self._free_terminal():
            return await self._challenge((title, instructions), prompts)

    async def _challenge(self, texts: Sequence[str], prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        for text in texts:
            if text.strip():
                self._say(neutralise(text))
        answers = []
        for text, echo in prompts:
            answer = await typed(neutralise(text), hidden=not echo)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    def banner(self, text: str) -> None:
        if not text.strip():
            return
        if self.pause is None:
            self._say(text.rstrip())
        else:
            self._banners.append(text.rstrip())  # said again with the next question, if there is one
            if self.heard is not None:
                self.heard(text.rstrip())

    def _say(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def prompts_for(*, headless: bool) -> Prompts:
    """Who answers: the person at the terminal, or nobody in a headless run."""
    return NobodyToAsk(tell=_on_stderr) if headless or not sys.stdin.isatty() else TerminalPrompts()


def _on_stderr(sentence: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it: no reason to connect to nowhere
        sys.stderr.write(f"ccb: {sentence}\n")
        sys.stderr.flush()


async def ask_line(prompt: str) -> str:
    """One line typed on the terminal; "" at the end of input."""
    return await typed(prompt) or ""
