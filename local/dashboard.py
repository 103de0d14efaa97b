"""`ccb dash`: the screen of all hosts, and the sessions that are opened from it, in one process."""

from __future__ import annotations

from collections.abc import Mapping

from .command_line.arguments import Arguments
from .command_line.exit_codes import ExitCode
from .dash.dash_hosts import dash_hosts
from .dash.dash_lines import follow, print_once
from .dash.dash_model import watching
from .terminal.terminal_prompts import prompts_for


async def run_dash(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Raises CcbError."""
    hosts = dash_hosts(arguments, environ)
    prompts = prompts_for(headless=arguments.host_command.json)
    async with watching(hosts, prompts, environ) as dash:
        if arguments.host_command.json:
            return await (follow(dash) if arguments.host_command.follow else print_once(dash))
        raise NotImplementedError
