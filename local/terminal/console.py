"""stdout of a command that prints lines: each line is written at once, and each kind of failure has its exit code."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import sys
from collections.abc import Coroutine
from typing import Any

from ccb.tunnel.errors import NoStorage

from ..command_line.error_text import code_of, error_lines
from ..command_line.exit_codes import ExitCode
from .guarded_streams import print_line, say
from .signals import ended_by_signals

_NO_READER = (errno.EPIPE, errno.EBADF)


def run_command(work: Coroutine[Any, Any, ExitCode]) -> ExitCode:
    """Run a command that prints lines in a loop of its own; return its exit code.

    When nobody reads stdout any more (`| head`), the command ends with HANGUP.
    """
    try:
        return asyncio.run(ended_by_signals(work))
    except BrokenPipeError:
        _drop_stdout(sys.stdout.fileno())
        return ExitCode.HANGUP


def write_stdout(*lines: str) -> ExitCode:
    """Write lines to stdout; return OK, or the exit code of the failure.

    Nothing stays in the buffer after a failure.
    """
    try:
        print_line(*lines)
    except OSError as error:
        return _given_up(error)
    return ExitCode.OK


def flush_stdout() -> ExitCode | None:
    """Flush stdout; return None, or the exit code of the failure.

    Unwritten text stays in the buffer of `sys.stdout`, so this also reveals whether an OSError caught elsewhere came
    from stdout.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        return _given_up(error)
    return None


def reader_has_left() -> bool:
    """Return whether stdout is a pipe that nobody reads any more. Where Python does not buffer (PYTHONUNBUFFERED), no
    text is left that a flush would fail on."""
    try:
        polling = select.poll()
        polling.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in polling.poll(0))
    except (OSError, ValueError):
        return False


def stdout_failure(error: OSError) -> ExitCode:
    """Return the exit code for an error of writing to stdout. Show the error on stderr unless the reader of stdout has
    left."""
    if error.errno in _NO_READER:
        return ExitCode.HANGUP
    shown = NoStorage(
        f"stdout cannot be written: {error.strerror or type(error).__name__}",
        do="Make room where the output goes, or send it somewhere else.",
    )
    say(*error_lines(shown))
    return code_of(shown)


def _given_up(error: OSError) -> ExitCode:
    _drop_stdout(1)
    return stdout_failure(error)


def _drop_stdout(fd: int) -> None:
    """Send stdout nowhere: otherwise the interpreter complains when it flushes stdout at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
