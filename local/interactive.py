"""The REPL's way in: what a login asks is asked on the plain terminal, then the interface takes it over."""

from __future__ import annotations

import asyncio
import importlib
import sys
import uuid
from contextlib import suppress

from ccb import __version__
from ccb.tunnel.errors import CcbError

from .arguments import Arguments
from .connect import connect_session, host_name
from .prompts import prompts_for
from .session import Session
from .stdio import in_thread

_LAST_WORD = 5.0


async def run_interactive(arguments: Arguments) -> int:
    """Connect and show the session until the person leaves; it ends on the host with it. The exit code; raises CcbError."""
    sys.stderr.write(f"Connecting to {host_name(arguments)} …\n")
    session_id = arguments.session_id or str(uuid.uuid4())
    importing = asyncio.create_task(in_thread(_import_interface), name="import interface")
    try:
        async with connect_session(arguments, session_id=session_id, prompts=prompts_for(headless=False)) as connected:
            for warning in connected.warnings:
                sys.stderr.write(f"ccb: {warning}\n")
            await importing
            from .tui.app import run_repl
            from .tui.info import ReplInfo

            options, hello = connected.options, connected.session.hello
            info = ReplInfo(connected.host, hello.cwd, options.model or "", options.permission_mode, __version__)
            try:
                return await run_repl(connected.session, info, arguments.prompt or None)
            finally:
                await _end(connected.session)
    finally:
        importing.cancel()
        await asyncio.gather(importing, return_exceptions=True)


def _import_interface() -> None:
    importlib.import_module("ccb.local.tui.app")


async def _end(session: Session) -> None:
    """Stop the session on the host; what it still says is read and dropped, so that its goodbye comes through."""
    with suppress(TimeoutError, CcbError):
        async with asyncio.timeout(_LAST_WORD):
            await session.stop()
            async for _ in session.events():
                pass
