"""Questions on the plain terminal, which is left as it was, with no thread reading from it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import signal
import sys
import termios
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from types import FrameType
from typing import Any

from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.transports.host_keys import HostKeyInfo, pattern_for
from ccb.tunnel.transports.login_prompts import LoginMemory, NobodyToAsk, Prompts

from .console import say
from .input_machine import typed_line
from .stdio import in_thread

_MAX_BANNERS = 4


class TerminalPrompts:
    """Asks on the terminal. A full-screen interface sets `pause`, which suspends it, and `heard` for banners."""

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
        return await self._secret(f"Passphrase for {path}", attempt)

    async def password(self, prompt: str, attempt: int) -> str | None:
        return await self._secret(f"Password for {prompt}", attempt)

    async def _secret(self, what: str, attempt: int) -> str | None:
        async with self._free_terminal():
            return await read_line(f"{what}{' (again)' if attempt > 1 else ''}: ", hidden=True)

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        answers = []
        async with self._free_terminal():
            for text in (title, instructions):
                if text.strip():
                    self._show(text)
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
    """Return the prompts for a run: on the terminal, or `NobodyToAsk` if nobody sits there."""
    return NobodyToAsk(tell=_on_stderr) if headless or not sys.stdin.isatty() else TerminalPrompts()


def _on_stderr(sentence: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads stderr, but that must not prevent the connection
        say(f"ccb: {sentence}")


_PIECE = 4096
_STDIN = 0


async def read_line(prompt: str, *, hidden: bool = False) -> str | None:
    """Show `prompt` and return the typed line, or None at the end of input. A thread reads."""
    stop, stopping = os.pipe()
    try:
        with _asking(prompt, hidden=hidden) as terminal:
            copy = os.dup(terminal)
            answer = await in_thread(lambda: _read_terminal(copy, stop))
    except EOFError:
        return None
    finally:
        os.close(stopping)  # end a thread that still reads, so that it takes no input from the next question
    return answer if hidden else answer.strip()


def ask(prompt: str, *, hidden: bool = False) -> str:
    """Show `prompt` and return the typed line. Blocks. Raises EOFError at the end of input."""
    answer = asyncio.run(read_line(prompt, hidden=hidden))
    if answer is None:
        raise EOFError
    return answer


def _read_terminal(terminal: int, stop: int) -> str:
    """Read a line and close both files. Raises EOFError at the end of input, and when `stop` is closed."""
    line = b""
    try:
        while not line.endswith(b"\n"):
            if stop in select.select([terminal, stop], [], [])[0]:
                raise EOFError
            piece = os.read(terminal, _PIECE)
            if not piece and not line:
                raise EOFError
            if not piece:
                break
            line += piece
    except OSError:  # the window is closed
        raise EOFError from None
    finally:
        os.close(terminal)
        os.close(stop)
    return typed_line(line.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n"))


@contextlib.contextmanager
def _asking(prompt: str, *, hidden: bool) -> Iterator[int]:
    """Show `prompt`, and yield the terminal's descriptor. After Ctrl+Z and `fg` it is shown, and hides, again."""
    with _terminal() as terminal:
        before = _modes(terminal)

        def show() -> None:
            if hidden and (modes := _modes(terminal)) is not None:
                modes[3] &= ~termios.ECHO
                _set(terminal, termios.TCSAFLUSH, modes)
            _write(terminal, neutralise(prompt))

        def resume(_number: int, _frame: FrameType | None) -> None:
            with contextlib.suppress(OSError):
                if os.tcgetpgrp(terminal) == os.getpgrp():  # otherwise reading would stop us again
                    show()

        with _handling(signal.SIGTSTP, signal.SIG_DFL), _handling(signal.SIGCONT, resume):
            answered = False
            try:
                show()
                yield terminal
                answered = True
            finally:
                if hidden or not answered:
                    _write(terminal, "\n")
                if before is not None:
                    _set(terminal, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _terminal() -> Iterator[int]:
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        yield _STDIN
        return
    try:
        yield terminal
    finally:
        os.close(terminal)


def _write(terminal: int, text: str) -> None:
    with contextlib.suppress(OSError):  # the window may be closed
        if terminal == _STDIN:
            sys.stderr.write(text)  # noqa: TID251 - a question ends without a newline
            sys.stderr.flush()
        else:
            os.write(terminal, text.encode("utf-8", "replace"))


def _modes(terminal: int) -> list[Any] | None:
    try:
        return termios.tcgetattr(terminal)
    except (OSError, termios.error):
        return None


def _set(terminal: int, when: int, modes: list[Any]) -> None:
    while True:
        try:
            termios.tcsetattr(terminal, when, modes)
        except termios.error as error:
            if error.args[0] == errno.EINTR:  # the process was stopped in the background and has been continued
                continue
        except OSError:
            return
        return


@contextlib.contextmanager
def _handling(number: signal.Signals, handler: Any) -> Iterator[None]:
    """Handle a signal, unless it is ignored or this is not the main thread."""
    before = signal.getsignal(number)
    try:
        if before is not signal.SIG_IGN:
            signal.signal(number, handler)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(number, before)
