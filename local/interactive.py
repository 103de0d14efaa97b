"""The REPL's way in: what a login asks is asked on the plain terminal, then the interface takes it over."""

from __future__ import annotations

import asyncio
import sys
import uuid
from contextlib import suppress

from ccb.tunnel.errors import CcbError

from .arguments import Arguments
from .connect import connect_session, host_name
from .exit_codes import ExitCode
from .prompts import prompts_for

_LAST_WORD = 5.0


async def run_interactive(arguments: Arguments) -> ExitCode:
    """Connect and show the session until the person leaves; it ends on the host with it. Raises CcbError."""
    sys.stderr.write(f"Connecting to {host_name(arguments)} …\n")
    session_id = arguments.session_id or str(uuid.uuid4())
    async with connect_session(arguments, session_id=session_id, prompts=prompts_for(headless=False)) as connected:
        from ccb import __version__

        from .tui.app import run_repl
        from .tui.info import ReplInfo

        options, hello = connected.options, connected.session.hello
        info = ReplInfo(connected.host, hello.cwd, options.model or "", options.permission_mode, __version__)
        await run_repl(connected.session, info, arguments.prompt or None)
        with suppress(TimeoutError, CcbError):
            async with asyncio.timeout(_LAST_WORD):
                await connected.session.stop()
                await connected.session.ended()
    return ExitCode.OK
