"""One line typed on the terminal, hidden or not. Ctrl+Z, a cancelled question and the end of the window leave the terminal as it
was, and nobody reading from it."""

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

from .stdio import in_thread

_PIECE = 4096
_STDIN = 0


async def typed(prompt: str, *, hidden: bool = False) -> str | None:
    """What is typed at `prompt`; None at the end of input. Read in a thread, so that connections stay alive."""
    leave, left = os.pipe()
    try:
        with _asking(prompt, hidden=hidden, loop=asyncio.get_running_loop()) as terminal:
            mine = os.dup(terminal)
            said = await in_thread(lambda: _line(mine, leave))
    except EOFError:
        return None
    finally:
        os.close(left)  # a thread that still reads leaves the terminal to whoever comes next
    return said if hidden else said.strip()


def typed_secret(prompt: str) -> str:
    """The same, blocking and hidden. Raises EOFError."""
    with _asking(prompt, hidden=True) as terminal:
        return _line(os.dup(terminal))


def _line(terminal: int, leave: int | None = None) -> str:
    """A line as the terminal gives it; both files are closed. Raises EOFError, also when the other end of `leave` is closed."""
    said = b""
    try:
        while not said.endswith(b"\n"):
            if leave is not None and leave in select.select([terminal, leave], [], [])[0]:
                raise EOFError
            piece = os.read(terminal, _PIECE)
            if not piece and not said:
                raise EOFError
            if not piece:
                break
            said += piece
    except OSError:  # the window is closed
        raise EOFError from None
    finally:
        for file in (terminal, leave):
            if file is not None:
                os.close(file)
    return said.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n")


@contextlib.contextmanager
def _asking(prompt: str, *, hidden: bool, loop: asyncio.AbstractEventLoop | None = None) -> Iterator[int]:
    """The terminal, with `prompt` on it. Ctrl+Z stops here as in any program, also where a full-screen interface that stands
    aside has its own idea of it. A shell that goes on with us has set the terminal to echo, so what is typed is hidden
    again, and asked for again. The modes are put back at the end."""
    with _terminal() as terminal:
        before = _modes(terminal)

        def ask() -> None:
            if hidden and (modes := _modes(terminal)) is not None:
                modes[3] &= ~termios.ECHO
                _set(terminal, termios.TCSAFLUSH, modes)
            _write(terminal, prompt)

        def go_on(_number: int, _frame: FrameType | None) -> None:
            with contextlib.suppress(OSError):
                if os.tcgetpgrp(terminal) == os.getpgrp():  # else reading stops us again
                    ask()

        with _handling(signal.SIGTSTP, signal.SIG_DFL), _handling(signal.SIGCONT, go_on, loop):
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
            sys.stderr.write(text)
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
            if error.args[0] == errno.EINTR:  # stopped in the background, and goes on
                continue
        except OSError:
            return
        return


@contextlib.contextmanager
def _handling(number: signal.Signals, handler: Any, loop: asyncio.AbstractEventLoop | None = None) -> Iterator[None]:
    """`handler` for a signal, unless that is ignored or another thread's. A `loop` that waits is woken to run it, whichever thread
    the signal comes to."""
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
