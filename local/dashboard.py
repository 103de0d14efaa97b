"""`ccb dash`: the screen of all hosts, and the sessions that are opened from it, in one process; or lines of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.heavy_imports import collection_paused
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.tasks import cancelled

from .command_line.arguments import Arguments
from .command_line.exit_codes import ExitCode
from .command_line.target import remote_path
from .command_line.transport_choice import needs_host
from .config.policy import own_hooks
from .config.settings import settings_choice
from .config.settings_loading import load_screen_settings, load_settings
from .connect.host_connection import HostConnection
from .connect.startup import loaded_once
from .dash.dash_hosts import dash_hosts
from .dash.dash_model import Dash, HostWatch, as_json, watching
from .fleet.fleet_hosts import inventory_places
from .session.own_hooks import NotificationHooks
from .terminal.console import print_line, say
from .terminal.signals import Interrupts
from .terminal.terminal_prompts import TerminalPrompts, prompts_for

_ANSWER_S = 15.0  # seconds in which a host has to answer --json


async def run_dash(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Raises CcbError."""
    lines = arguments.host_command.json
    if not lines and not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("the screen of ccb dash needs a terminal", do="Without one: --json.")
    if not needs_host(arguments.connection):
        raise UsageError("a --transport command leads to one host", do="Name hosts of ssh_config instead.")
    prompts, load = prompts_for(headless=True) if lines else TerminalPrompts(), loaded_once()
    listed = await inventory_places(arguments.fleet.inventories, arguments.fleet.limit, environ)
    hosts = dash_hosts(arguments, environ, {each.host: (each.place, *each.options) for each in listed})
    connections = {name: HostConnection(each, prompts, environ, shared=load) for name, each in hosts.items()}
    async with watching(connections, environ) as dash:
        if lines:
            return await print_rows(dash, follow=arguments.host_command.follow)
        return await _show(dash, arguments, environ)


async def print_rows(dash: Dash, *, follow: bool = False) -> ExitCode:
    """Print a row for each session, and one with `error` for each host that does not answer: once all have answered or
    failed, or with `follow` as they come and change, and `gone` for those that go. Return AGENT_FAILED for one that did
    not answer."""
    told: dict[tuple[str, str], object] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(None if follow else _ANSWER_S):
            async for _ in dash.changes():
                if follow:
                    _print_changes(dash, told)
                elif all(each.up or each.problem for each in dash.hosts):
                    break
    silent = [each for each in dash.hosts if not each.up]
    for each in silent:
        each.problem = each.problem or "it has not answered yet"
    _print_changes(dash, told)
    return ExitCode.AGENT_FAILED if silent else ExitCode.OK


def _print_changes(dash: Dash, told: dict[tuple[str, str], object]) -> None:
    """`told` holds what was printed last, by host and session, or host and "" for its error."""
    costs, now = dash.costs, time.monotonic()
    rows = {row.key: as_json(row, costs.get(row.session.session, 0.0), now) for row in dash.rows()}
    lasting = {key: [each for each in row.items() if not each[0].endswith("_s")] for key, row in rows.items()}
    errors = {(each.name, ""): each.problem for each in dash.hosts}
    changed: list[object] = [row for key, row in rows.items() if told.get(key) != lasting[key]]
    gone = [key for key in told if key not in rows and key not in errors]
    changed += [{"host": host, "session": session, "gone": True} for host, session in gone]
    changed += [{"host": key[0], "error": error} for key, error in errors.items() if told.get(key, "") != error]
    print_line(*map(json.dumps, changed))
    told.clear()
    told.update({**lasting, **errors})


async def _show(dash: Dash, arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    with collection_paused():
        from .repl import show_session
        from .slash_commands.session_api import NextSession, arguments_for
        from .tui.attention import Notify
        from .tui.dash_app import DashApp

    settings = load_settings(environ, settings_choice(arguments))
    screen = load_screen_settings(environ, settings_choice(arguments), no_mouse=arguments.screen.no_mouse)
    hooks = NotificationHooks(own_hooks(settings), "ccb dash")

    try:
        while True:
            app = DashApp(dash, environ, screen)
            app.attention.how, app.attention.notify_person = Notify(settings.notify), hooks.notify
            choice = await app.shown()
            if isinstance(choice, int):
                return ExitCode(choice)
            code = int(ExitCode.OK)
            try:
                if choice.session or choice.directory:
                    over = choice.host.connection
                    local = over.arguments.connection.local
                    directory = choice.directory if local else remote_path(choice.directory)
                    following = arguments_for(NextSession(choice.session), over.arguments, directory)
                    code = await show_session(following, over)
                else:
                    code = await _log_in(choice.host)
            except CcbError as error:
                dash.said = f"{error.what}. {error.do}"
            if code in (ExitCode.HANGUP, ExitCode.TERMINATED):
                return ExitCode(code)
            choice.host.again.set()
    finally:
        await hooks.close()


async def _log_in(host: HostWatch) -> int:
    """Let the person log in; Ctrl+C gives it up. Return the exit code of a signal, 0 for none. Raises CcbError."""
    with Interrupts() as signals:
        say(f"ccb: logging in to {one_line(host.name)} (Ctrl+C goes back to the dash)")
        login = asyncio.create_task(host.connection.connected(), name="log in")
        try:
            await asyncio.wait((login, signals.first), return_when=asyncio.FIRST_COMPLETED)
            if login.done():
                await login
        finally:
            await cancelled(login)
        return signals.first.result() if signals.first.done() else ExitCode.OK
