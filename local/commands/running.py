"""How a command with a parser of its own runs: from its arguments to its exit code."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from ccb.tunnel.errors import CcbError, UsageError

from ..command_line.error_text import code_of, error_lines
from ..terminal.guarded_streams import say


class CommandParser(argparse.ArgumentParser):
    """Reads the arguments of one command. It raises UsageError where argparse would end the program."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("ccb ")
        raise UsageError(f"ccb {command}: {message}", do=f"See `ccb {command} --help`.")


def exit_code(run: Callable[[], int]) -> int:
    """Run a command and return its exit code. Write what went wrong to stderr."""
    try:
        return run()
    except CcbError as error:
        say(*error_lines(error))
        return code_of(error)
    except SystemExit as end:  # argparse after --help
        return int(end.code or 0)
