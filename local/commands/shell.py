"""`ccb shell`: a shell on a host, in this terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from ccb.tunnel.errors import UsageError

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import host_label
from ..connect.shell_session import connect_for_shells
from ..terminal.console import say
from ..terminal.shell_relay import PersonShells
from ..terminal.terminal_prompts import prompts_for


async def run_shell(arguments: Arguments, environ: Mapping[str, str]) -> int:
    """Show the shell until it ends or the person leaves it. Return its exit code. Raises CcbError."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout)):
        raise UsageError("ccb shell needs a terminal on stdin and stdout", do="For one command: `ssh HOST COMMAND`.")
    host = host_label(arguments.connection)
    say(f"Connecting to {host} …")
    async with connect_for_shells(arguments, prompts_for(headless=False), environ) as session:
        left = await PersonShells(session).show(int(arguments.rest[0]) if arguments.rest else 0)
        if left.error:
            say(f"ccb: the shell: {left.error}")
            return ExitCode.AGENT_FAILED
        if left.code is None:
            say(f"ccb: the shell stays on {host}; the same command returns to it, and exit ends it")
        return left.code or 0
