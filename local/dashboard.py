"""`ccb dash`: the screen of all hosts, and the sessions that are opened from it, in one process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.heavy_imports import collection_paused

from .command_line.arguments import Arguments
from .command_line.exit_codes import ExitCode
from .command_line.target import remote_path
from .command_line.transport_choice import needs_host
from .config.log import state_dir
from .config.settings import settings_choice
from .config.settings_loading import load_screen_settings, load_settings
from .dash.dash_hosts import dash_hosts
from .dash.dash_lines import follow, print_once
from .dash.dash_model import Dash, watching
from .session.own_hooks import NotificationHooks
from .terminal.console import SCREENS, restored_at_the_end
from .terminal.signals import Interrupts
from .terminal.terminal_prompts import TerminalPrompts, prompts_for

if TYPE_CHECKING:
    from .tui.dash_app import DashChoice


async def run_dash(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Raises CcbError."""
    lines = arguments.host_command.json
    if not lines and not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("the screen of ccb dash needs a terminal", do="Without one: --json.")
    if not needs_host(arguments.connection):
        raise UsageError("a --transport command leads to one host", do="Name hosts of ssh_config instead.")
    hosts = dash_hosts(arguments, environ)
    if lines:
        async with watching(hosts, prompts_for(headless=True), environ) as dash:
            return await (follow(dash) if arguments.host_command.follow else print_once(dash))
    prompts = TerminalPrompts()
    async with watching(hosts, prompts, environ) as dash:
        return await _show(dash, prompts, arguments, environ)


async def _show(dash: Dash, prompts: TerminalPrompts, arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    with collection_paused():
        from .repl import show_session
        from .tui.attention import Attention, Notify
        from .tui.dash_app import DashApp

    settings = load_settings(environ, settings_choice(arguments))
    screen = load_screen_settings(environ, settings_choice(arguments))
    screen = replace(screen, mouse=screen.mouse and not arguments.screen.no_mouse)
    hooks = NotificationHooks({} if settings.disableAllHooks else settings.hooks, "ccb dash")

    def attend(attention: Attention) -> None:
        attention.how, attention.notify_person = Notify(settings.notify), hooks.notify

    async def chosen() -> DashChoice | ExitCode:
        app = DashApp(dash, environ, screen, attend)
        with restored_at_the_end(state_dir() / SCREENS), Interrupts() as signals:
            signals.first.add_done_callback(lambda _: app.exit(None))
            choice = await app.run_async(mouse=screen.mouse)
        if app.return_code:
            raise app.bug or RuntimeError("the interface ended")
        if choice is None:
            return signals.first.result() if signals.first.done() else ExitCode.OK
        return choice

    try:
        while not isinstance(choice := await chosen(), ExitCode):
            code, connection = int(ExitCode.OK), choice.host.connection
            try:
                if choice.session or choice.directory:
                    code = await show_session(_arguments_of(choice), connection, prompts)
                else:
                    await connection.connected()
            except CcbError as error:
                dash.said = f"{error.what}. {error.do}"
            if code in (ExitCode.HANGUP, ExitCode.TERMINATED):
                return ExitCode(code)
            choice.host.retry()
        return choice
    finally:
        await hooks.close()


def _arguments_of(choice: DashChoice) -> Arguments:
    from .slash_commands.session_api import NextSession, arguments_for

    arguments = choice.host.arguments
    directory = choice.directory if arguments.connection.local else remote_path(choice.directory)
    return arguments_for(NextSession(choice.session), arguments, directory)
