"""Run a command of `ccb` in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ccb.local.command_line.exit_codes import error_lines
from ccb.local.command_line.parser import parse_arguments
from ccb.local.main import run_named
from ccb.local.terminal.console import say
from ccb.tunnel.errors import CcbError


def run_words(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run the command line `words` with the variables `environ`, and return the exit code."""
    try:
        return run_named(parse_arguments(words), environ)
    except CcbError as error:
        say(*error_lines(error))
        return error.exit_code
