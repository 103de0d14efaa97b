"""Ask for one line on the terminal, hidden or not.

Ctrl+Z, a cancelled question and a closed window leave the terminal as it was, with no thread reading from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import signal
import sys
import termios
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ccb.tunnel.plain_text import neutralise

from .input_machine import typed_line
from .stdio import in_thread

_PIECE = 4096
_STDIN = 0


async def read_line(prompt: str, *, hidden: bool = False) -> str | None:
    """Show `prompt` and return the typed line, or None at the end of input. A thread reads, so connections stay
    alive."""
    stop, stopping = os.pipe()
    try:
        with _asking(prompt, hidden=hidden, loop=asyncio.get_running_loop()) as terminal:
            copy = os.dup(terminal)
            answer = await in_thread(lambda: _read_terminal(copy, stop))
    except EOFError:
        return None
    finally:
        os.close(stopping)  # end a thread that still reads, so that it takes no input from the next question
    return answer if hidden else answer.strip()


def read_secret(prompt: str) -> str:
    """Show `prompt` and return the typed line without echo. Blocks. Raises EOFError at the end of input."""
    with _asking(prompt, hidden=True) as terminal:
        return _read_terminal(os.dup(terminal))


def _read_terminal(terminal: int, stop: int | None = None) -> str:
    """Read a line and close both files.

    Raises EOFError at the end of input, and when the other end of `stop` is closed.
    """
    line = b""
    try:
        while not line.endswith(b"\n"):
            if stop in select.select([terminal, *([] if stop is None else [stop])], [], [])[0]:
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
        for file in (terminal, stop):
            if file is not None:
                os.close(file)
    return typed_line(line.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n"))


@contextlib.contextmanager
def _asking(prompt: str, *, hidden: bool, loop: asyncio.AbstractEventLoop | None = None) -> Iterator[int]:
    """Show `prompt` and yield the terminal's file descriptor; restore the terminal's modes at the end.

    Ctrl+Z stops the program here as it does anywhere, even if a suspended full-screen interface handles that signal
    itself. A shell that resumes us has set the terminal to echo, so the input is hidden again and the prompt shown
    again.
    """
    with _terminal() as terminal:
        before = _modes(terminal)

        def ask() -> None:
            if hidden and (modes := _modes(terminal)) is not None:
                modes[3] &= ~termios.ECHO
                _set(terminal, termios.TCSAFLUSH, modes)
            _write(terminal, neutralise(prompt))

        def resume(_number: int, _frame: FrameType | None) -> None:
            with contextlib.suppress(OSError):
                if os.tcgetpgrp(terminal) == os.getpgrp():  # otherwise reading would stop us again
                    ask()

        with _handling(signal.SIGTSTP, signal.SIG_DFL), _handling(signal.SIGCONT, resume, loop):
            try:
                ask()
                yield terminal
            except BaseException:
                _write(terminal, "\n")
                raise
            else:
                if hidden:
                    _write(terminal, "\n")
            finally:
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
def _handling(number: signal.Signals, handler: Any, loop: asyncio.AbstractEventLoop | None = None) -> Iterator[None]:
    """Install `handler` for a signal, unless the signal is ignored or this is not the main thread.

    With `loop`, the waiting loop is woken to run it, whichever thread receives the signal.
    """
    before = signal.getsignal(number)
    try:
        if before is not signal.SIG_IGN and loop is not None:
            loop.add_signal_handler(number, handler, number, None)
        elif before is not signal.SIG_IGN:
            signal.signal(number, handler)
    except (ValueError, RuntimeError):
        yield
        return
    try:
        yield
    finally:
        if loop is not None:
            loop.remove_signal_handler(number)
        signal.signal(number, before)
