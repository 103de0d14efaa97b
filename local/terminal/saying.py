"""Commands that answer in lines on stdout: each line at once, and an end when nobody reads them any more."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any

from ..command_line.exit_codes import ExitCode
from .signals import ended_by_signals


def say(line: str) -> None:
    """One line of the answer, at once: what comes next may take a while."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run_saying(work: Coroutine[Any, Any, int]) -> ExitCode:
    """The exit code of `work`, run in a loop of its own. When nobody reads stdout any more (`| head`), the rest is not said."""
    try:
        return ExitCode(asyncio.run(ended_by_signals(work)))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end
        return ExitCode.HANGUP
