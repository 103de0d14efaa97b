"""Restores a terminal whose interface ended without cleaning up: at once by a signal, or by SIGKILL.

While the interface has the terminal, a file under the name of the terminal is locked. The kernel unlocks it when the
process ends, whatever ended it, so an unlocked file tells the next ccb that the terminal has to be restored.
"""

from __future__ import annotations

import fcntl
import os
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

SCREENS = "screens"
"""The directory of these files below the state directory."""

_STDIN, _STDERR = 0, 2
_ENDING = (
    signal.SIGQUIT, signal.SIGABRT, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGVTALRM, signal.SIGPROF,
    signal.SIGXCPU,
)  # fmt: skip
"""Signals whose default is to end the process, beside those that ask for an orderly end."""

_MODES_OFF = (
    b"\x18"  # ends an escape sequence that was cut
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1015l\x1b[?1006l"  # mouse
    b"\x1b[?1004l\x1b[?2004l\x1b[?2048l"  # focus, bracketed paste, sizes as input
    b"\x1b[<u\x1b[>4;0m"  # keys of Kitty and of xterm
    b"\x1b[?2026l\x1b[0m\x1b[?1049l\x1b[?25h"  # synchronised output, colours, the other screen, the cursor
)


@contextmanager
def restored_at_the_end(directory: Path) -> Iterator[None]:
    """Run the interface: a signal that ends the process at once restores the terminal first, and the file that tells
    of SIGKILL is kept in `directory`. Call in the main thread."""
    attributes = termios.tcgetattr(_STDIN)

    def end(number: int, _frame: FrameType | None) -> None:
        _restore(attributes)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    with _marked(directory):
        try:
            for number, action in before.items():
                if action is not signal.SIG_IGN:
                    signal.signal(number, end)
            yield
        finally:
            for number, action in before.items():
                signal.signal(number, action)


@contextmanager
def _marked(directory: Path) -> Iterator[None]:
    """Hold the file of the terminal. It belongs to the ccb that was there first, and is not made where it cannot be."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark = _mark_of_terminal(directory)
        file = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mark.unlink()
        os.close(file)


def restore_after_kill(directory: Path) -> bool:
    """Restore the terminal if the interface of an earlier ccb was killed in it. Return whether it was."""
    try:
        file = os.open(_mark_of_terminal(directory), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a ccb that still has the terminal holds it
        _restore(_sane(termios.tcgetattr(_STDIN)))
        _mark_of_terminal(directory).unlink()
    except (OSError, termios.error):
        return False
    finally:
        os.close(file)
    return True


def _mark_of_terminal(directory: Path) -> Path:
    """Return the file of the terminal on stdin. Raise OSError if stdin is no terminal."""
    return directory / os.ttyname(_STDIN).strip("/").replace("/", "-")


def _restore(attributes: list[object]) -> None:
    with suppress(OSError, termios.error):  # the window may be closed
        os.write(_STDERR, _MODES_OFF)
        termios.tcsetattr(_STDIN, termios.TCSANOW, attributes)  # type: ignore[arg-type]


def _sane(attributes: list[object]) -> list[object]:
    """Return the attributes with those that a shell expects, as `stty sane` sets them."""
    inputs, outputs, control, local, *rest = attributes
    assert isinstance(inputs, int) and isinstance(outputs, int) and isinstance(local, int)
    inputs |= termios.ICRNL | termios.BRKINT | termios.IXON
    outputs |= termios.OPOST | termios.ONLCR
    local |= termios.ICANON | termios.ECHO | termios.ECHOE | termios.ECHOK | termios.ISIG | termios.IEXTEN
    return [inputs, outputs, control, local, *rest]
