"""Lines on stdout and stderr, made safe: `print_line` and `say` are the ways to them (the linter refuses others)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import sys
import termios
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

from ccb.tunnel.errors import NoStorage
from ccb.tunnel.plain_text import as_line, neutralise

from ..command_line.exit_codes import ExitCode, error_lines


class StdoutFailed(OSError):
    """Stdout cannot be written."""


_NO_READER = (errno.EPIPE, errno.EBADF)


def flush_stdout() -> ExitCode | None:
    """Flush stdout; return None, or the exit code of the failure, also of one that was caught elsewhere."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return give_up_stdout(error)
    return None


def give_up_stdout(error: OSError) -> ExitCode:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return stdout_failure(error)


def stdout_failure(error: OSError) -> ExitCode:
    """Return the exit code for an error of writing to stdout. Show the error unless the reader of stdout has left."""
    if error.errno in _NO_READER:
        return ExitCode.HANGUP
    shown = NoStorage(
        f"stdout cannot be written: {error.strerror or type(error).__name__}",
        do="Make room where the output goes, or send it somewhere else.",
    )
    say(*error_lines(shown))
    return shown.exit_code


_LINE_START = "\r\x1b[K"


class _GuardedStream:
    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(neutralise(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def guarded_streams() -> Iterator[None]:
    """While the context is open, text on stdout and stderr cannot drive a terminal."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_guarded, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def print_line(*lines: str) -> None:
    """Write lines to stdout at once: the next one may take a while. Each stays one line, whatever is in it. Raise
    StdoutFailed."""
    try:
        _write(sys.stdout, lines)
    except OSError as error:
        raise StdoutFailed(*error.args) from None


def say(*lines: str) -> None:
    _write(sys.stderr, lines)


def _write(stream: TextIO, lines: Iterable[str]) -> None:
    stream.write("".join(f"{as_line(line)}\n" for line in lines))
    stream.flush()


def write_over(text: str) -> None:
    """Write a text on stderr, which is a terminal, in place of what is on its line."""
    stream = sys.stderr.stream if isinstance(sys.stderr, _GuardedStream) else sys.stderr
    stream.write(_LINE_START + as_line(text))
    stream.flush()


def write_block(lines: Sequence[str], over: int) -> None:
    """Write lines on stderr, which is a terminal, in place of the `over` lines above the cursor."""
    stream = sys.stderr.stream if isinstance(sys.stderr, _GuardedStream) else sys.stderr
    stream.write((f"\x1b[{over}A" if over else "") + "\r\x1b[J" + "".join(f"{as_line(line)}\n" for line in lines))
    stream.flush()


def _guarded(stream: TextIO) -> TextIO:
    # A process without a stdout has None here.
    return cast("TextIO", _GuardedStream(stream)) if stream is not None and stream.isatty() else stream


SCREENS = "screens"  # the directory of these files below the state directory
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
    """Run the interface: a signal that ends the process, also SIGKILL, lets the terminal be restored."""
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
    return directory / os.ttyname(_STDIN).strip("/").replace("/", "-")


def _restore(attributes: list[object]) -> None:
    with suppress(OSError, termios.error):  # the window may be closed
        os.write(_STDERR, _MODES_OFF)
        termios.tcsetattr(_STDIN, termios.TCSANOW, attributes)  # type: ignore[arg-type]


def _sane(attributes: list[object]) -> list[object]:
    inputs, outputs, control, local, *rest = attributes
    assert isinstance(inputs, int) and isinstance(outputs, int) and isinstance(local, int)
    inputs |= termios.ICRNL | termios.BRKINT | termios.IXON
    outputs |= termios.OPOST | termios.ONLCR
    local |= termios.ICANON | termios.ECHO | termios.ECHOE | termios.ECHOK | termios.ISIG | termios.IEXTEN
    return [inputs, outputs, control, local, *rest]
