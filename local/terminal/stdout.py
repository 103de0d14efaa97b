"""stdout that cannot be written, for every command: the same words and the same exit code."""

from __future__ import annotations

import errno
import os
import sys

from ccb.tunnel.errors import NoStorage

from ..command_line.error_text import code_of, error_text
from ..command_line.exit_codes import ExitCode

_NOBODY_READS = (errno.EPIPE, errno.EBADF)


def failure_code(error: OSError) -> ExitCode:
    """The exit code when `error` came from writing to stdout; what is no reader's leaving is told on stderr."""
    if error.errno in _NOBODY_READS:
        return ExitCode.HANGUP
    told = NoStorage(
        f"stdout cannot be written: {error.strerror or type(error).__name__}",
        do="Make room where the output goes, or send it somewhere else.",
    )
    sys.stderr.write(error_text(told))
    return code_of(told)


def flush_stdout() -> ExitCode | None:
    """Write what waits; the exit code when that is impossible. What could not be written stays in the buffer of `sys.stdout`,
    so this also tells whether an OSError that was caught elsewhere came from there."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return _given_up(error)
    return None


def write_stdout(text: str) -> ExitCode:
    """Write `text`, also one that is larger than the buffer, of which nothing stays there when it cannot be written."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        return _given_up(error)
    return ExitCode.OK


def _given_up(error: OSError) -> ExitCode:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains at its end
    return failure_code(error)
