"""Start the REPL: the interface shows itself first, then everything else is loaded and the session is connected."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from ccb.tunnel.heavy_imports import collect_rarely, collection_paused
from ccb.tunnel.tasks import cancelled

from .command_line.arguments import Arguments
from .command_line.transport_choice import host_label
from .terminal.console import say
from .terminal.signals import ended_by_signals
from .terminal.stdio import in_thread

if TYPE_CHECKING:
    from .connect.host_connection import HostConnection
    from .connect.host_sessions import HostSessions
    from .connect.session_rows import SessionRow
    from .session.remote_session import RemoteSession
    from .tui.app import Repl


async def run_interactive(arguments: Arguments) -> int:
    """Connect, show the session until the person leaves, and return the exit code. Raises CcbError."""
    return await ended_by_signals(show_session(arguments))


async def show_session(arguments: Arguments, over: HostConnection | None = None) -> int:
    """Show a session until the person leaves; `over` a connection that stays, or else its own. Raises CcbError."""
    with ExitStack() as until_first_frame:
        until_first_frame.enter_context(collection_paused())
        collect_rarely()
        from .config.settings import settings_choice
        from .config.settings_loading import load_screen_settings
        from .tui.app import Repl
        from .tui.between_sessions import run_repl

        async def attend(app: Repl) -> None:
            until_first_frame.close()
            await _attend(app, arguments, over)

        host, viewer = host_label(arguments.connection), arguments.host_command.view
        screen = load_screen_settings(choice=settings_choice(arguments), no_mouse=arguments.screen.no_mouse)
        app = Repl(host, attend, first_prompt=arguments.prompt or "", watching=viewer, screen=screen)
        code = await run_repl(app)
    place = app.leaving.moves_to
    if not place or app.attached is None:
        return code
    from .commands.move import move_along

    session = app.attached.api.client.hello.session
    return await show_session(await move_along(arguments, session, place, os.environ))


async def _attend(app: Repl, arguments: Arguments, over: HostConnection | None) -> None:
    await in_thread(partial(_load, "connect.connect_session", "terminal.terminal_prompts"))
    from .connect.host_connection import HostConnection
    from .terminal.terminal_prompts import TerminalPrompts

    importing = asyncio.create_task(in_thread(partial(_load, "tui.session_view")), name="import view")
    try:
        async with HostConnection(arguments, TerminalPrompts()) if over is None else nullcontext(over) as host:
            following: Arguments | None = arguments
            while following is not None:
                following = await _one_session(app, following, host, importing)
    finally:
        await cancelled(importing)


async def _one_session(
    app: Repl, arguments: Arguments, host: HostConnection, importing: asyncio.Task[None]
) -> Arguments | None:
    """Connect and show a session. Return the arguments for the next one, None for none."""

    from .config.log import state_dir
    from .config.prompt_history import PromptStore
    from .connect.connect_session import connect_session
    from .files.copying import Transfers
    from .files.fetched_files import FetchedFiles, PrivateFolder
    from .slash_commands.session_api import arguments_for, info_of, laptop_of
    from .terminal.terminal_prompts import TerminalPrompts
    from .tui.attention import Notify
    from .tui.between_sessions import take_off

    assert isinstance(host.prompts, TerminalPrompts), "the REPL asks on the terminal"
    async with AsyncExitStack() as stack:
        with app.login_handover.serving(host.prompts):
            connecting = connect_session(host, arguments, choose=partial(_choose, app))
            connected = await stack.enter_async_context(connecting)
            await importing
            stack.push_async_callback(_close, connected.session)
            info = info_of(connected, arguments.prompt or "")
            store = PromptStore(state_dir(), info.place)
            app.composer.remember(store, *await in_thread(store.load))
            app.attention.how = Notify(connected.notify)
            app.attention.notify_person = connected.notifications.notify
            transfers = await stack.enter_async_context(Transfers(connected.files.lend))
            folder = PrivateFolder(state_dir() / "opened")
            fetched = await stack.enter_async_context(FetchedFiles(transfers, folder, connected.open_with))
            laptop = laptop_of(connected, transfers, fetched)
            await app.attach(connected.session, info, connected.warnings, laptop)
            following = await app.switching.wait()
            if following is None:
                return None
            await take_off(app)
    return arguments_for(following, connected.arguments, connected.session.hello.cwd.raw)


async def _close(session: RemoteSession) -> None:
    try:
        if session.reading and not session.driving:
            say(
                "ccb: another client drives the session; this ccb ends when it has read the answer "
                "that it asked for (Ctrl+C ends it now; the other client then asks the model again)"
            )
            await session.read_out()
    finally:  # also after Ctrl+C, so that the host learns of it
        await session.close(done=True)
    if session.unsent:
        say(f"ccb: {session.unsent} input(s) were not confirmed by the host and may be lost.")


def _load(*modules: str) -> None:
    with collection_paused():
        for each in modules:
            importlib.import_module(f"ccb.local.{each}")


async def _choose(app: Repl, sessions: HostSessions, rows: Sequence[SessionRow]) -> str | None:
    from .tui.between_sessions import choose_first

    app.login_handover.come_back()  # the list is there, so the login is over
    return await choose_first(app, sessions, rows)
