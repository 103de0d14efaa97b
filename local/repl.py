"""Start the REPL: the login asks its questions on the plain terminal, then the interface takes the terminal over."""

from __future__ import annotations

import asyncio
import importlib
import sys
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccb import __version__
from ccb.tunnel.loading import collection_paused
from ccb.tunnel.wire import Hello
from ccb.tunnel.wire.options import CAGES

from .command_line.model import Arguments
from .command_line.transport_choice import host_label
from .connect.connect import connect_session
from .login.prompts import prompts_for
from .terminal.signals import ended_by_signals
from .terminal.stdio import in_thread

if TYPE_CHECKING:
    from .connect.session_list import SessionRow


async def run_interactive(arguments: Arguments) -> int:
    """Connect, show the session until the person leaves, and return the exit code. The session stays on the host.

    Raises CcbError.
    """
    return await ended_by_signals(_connected(arguments))


async def _connected(arguments: Arguments) -> int:
    sys.stderr.write(f"Connecting to {host_label(arguments.connection)} …\n")
    session_id = arguments.session.session_id or str(uuid.uuid4())
    prompts = prompts_for(headless=False)
    importing = asyncio.create_task(in_thread(_import_interface), name="import interface")
    try:
        async with connect_session(arguments, session_id=session_id, prompts=prompts, choose=_choose) as connected:
            for warning in connected.warnings:
                sys.stderr.write(f"ccb: {warning}\n")
            await importing
            from .tui.app import run_repl
            from .tui.widgets.info import ReplInfo

            session, options = connected.session, connected.options
            info = ReplInfo(
                connected.host,
                session.hello.cwd,
                options.model or "",
                options.permission_mode,
                __version__,
                connected.resume,
                options.client,
                arguments.prompt or "",
                session.hello.sandbox or _wanted_cage(session.hello, options.sandbox),
            )
            try:
                return (await run_repl(session, info, prompts=prompts)).code
            finally:
                if session.reading and not session.driving:
                    sys.stderr.write(
                        "ccb: another client drives the session; this ccb ends when it has read the answer "
                        "that it asked for (Ctrl+C ends it now; the other client then asks the model again)\n"
                    )
                    try:
                        await session.read_out()
                    finally:  # also after Ctrl+C, so that the host learns of it
                        await session.close(done=True)
                else:
                    await session.close(done=True)
                if session.unsent:
                    sys.stderr.write(
                        f"ccb: {session.unsent} input(s) were not confirmed by the host and may be lost.\n"
                    )
    finally:
        importing.cancel()
        await asyncio.gather(importing, return_exceptions=True)


def _wanted_cage(hello: Hello, mode: str) -> str:
    """Return in words the cage of a sandbox mode, as long as the worker has not said which one is in force; "" for a
    worker that knows none."""
    return CAGES.get(mode, "") if "sandbox" in hello.capabilities else ""


def _import_interface() -> None:
    with collection_paused():
        importlib.import_module("ccb.local.tui.app")


async def _choose(rows: Sequence[SessionRow]) -> str | None:
    from .commands.session_picker import choose_session

    return await choose_session(rows)
