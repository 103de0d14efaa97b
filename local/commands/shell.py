"""`ccb shell`: a shell on a host, in this terminal. It needs no model credential, and takes a session from nobody."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from ccb.tunnel.errors import NoSuchSession, UsageError
from ccb.tunnel.wire.control_protocol import new_uuid

from ..command_line.arguments import Arguments, SessionChoice
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import host_label
from ..connect import session_request as requests
from ..connect.connect_session import HEADLESS_TAIL, dialer_to
from ..connect.host_connection import HostConnection
from ..session.dialing import AttachOptions
from ..session.remote_session import RemoteSession
from ..terminal.console import say
from ..terminal.shell_relay import PersonShells
from ..terminal.terminal_prompts import prompts_for


async def run_shell(arguments: Arguments, environ: Mapping[str, str]) -> int:
    """Show the shell until it ends or the person leaves it. Return its exit code. Raises CcbError."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout)):
        raise UsageError("ccb shell needs a terminal on stdin and stdout", do="For one command: `ssh HOST COMMAND`.")
    host = host_label(arguments.connection)
    say(f"Connecting to {host} …")
    async with _connected(arguments, environ) as session:
        left = await PersonShells(session).show(int(arguments.rest[0]) if arguments.rest else 0)
    if left.error:
        say(f"ccb: the shell: {left.error}")
        return ExitCode.AGENT_FAILED
    if left.code is None:
        say(f"ccb: the shell stays on {host}; the same command returns to it, and exit ends it")
    return left.code or 0


@asynccontextmanager
async def _connected(arguments: Arguments, environ: Mapping[str, str]) -> AsyncIterator[RemoteSession]:
    """Yield the latest session of the directory, which is only watched, or else a new one. Raises CcbError."""
    async with AsyncExitStack() as stack:
        connecting = HostConnection(arguments, prompts_for(headless=False), environ)
        dialer, basics = await dialer_to(await stack.enter_async_context(connecting), stack)
        options = requests.session_options(arguments, basics.settings)

        async def entered(*, new: bool) -> RemoteSession:
            chosen = replace(arguments, session=SessionChoice(continue_latest=not new))
            dialer.begin(await requests.session_parameters(chosen, new_uuid(), basics.settings, _nobody_chooses))
            attach = AttachOptions(
                options=options.to_json() if new else {"client": options.client},
                who=options.client,
                role="driver" if new else "viewer",
                tail=HEADLESS_TAIL,
                later_tail=HEADLESS_TAIL,
                patience=requests.reconnect_seconds(arguments, basics.settings),
            )
            return await stack.enter_async_context(RemoteSession(partial(dialer.dial, None), attach))

        try:
            session = await entered(new=False)
        except NoSuchSession:
            session = await entered(new=True)
        stack.push_async_callback(session.close, done=True)
        await session.read_out()  # drops all events: nobody reads them
        yield session


async def _nobody_chooses() -> str:
    raise AssertionError("the session is the latest one, or new")
