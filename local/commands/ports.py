"""`ccb ports`: list the ports of a running session, or forward some of them without driving the session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack

from ccb.tunnel.errors import NoSuchSession
from ccb.tunnel.tasks import cancelled

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import host_label
from ..connect.connect_session import view_session
from ..connect.host_connection import HostConnection
from ..connect.session_rows import list_sessions
from ..ports.port_forwards import PortForwards
from ..session.remote_session import RemoteSession
from ..session.session_client import LaptopNotice, LinkChange, LinkState
from ..terminal.console import print_line, say
from ..terminal.terminal_prompts import prompts_for


async def run_ports(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """With forwards, returns when the session ends."""
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(HostConnection(arguments, prompts_for(headless=False), environ))
        transport, basics = await host.connected(), await host.loader.loaded()
        rows = await list_sessions(transport, basics.bundle, arguments.directory)
        running = [row.session for row in rows if row.may_run]
        if not running:
            where = ":".join(filter(None, (host_label(arguments.connection), arguments.directory)))
            do = "`ccb ps HOST` lists the sessions, `ccb ps --local` those of this machine."
            raise NoSuchSession(f"{where}: no session runs there", do=do)
        session = await stack.enter_async_context(view_session(host, running[0]))
        ports = await stack.enter_async_context(PortForwards(session, basics.settings.ports.labels))
        watching = asyncio.create_task(_watch(session), name="watch the session")
        try:
            await session.earlier(1, 1)  # the page comes behind the ports
            await ports.take(arguments.ports)
            _print(ports, as_json=arguments.host_command.json)
            if ports.forwards or ports.reverses:
                await watching
        finally:
            await cancelled(watching)
    return ExitCode.OK


def _print(ports: PortForwards, *, as_json: bool) -> None:
    lines = [json.dumps({"reverse": port}) for port in ports.reverses if as_json]
    for remote in sorted({*ports.listening, *ports.forwards}):
        url = ports.forwards[remote].url if remote in ports.forwards else ""
        if as_json:
            lines.append(json.dumps({"port": remote, "name": ports.name_of(remote), "url": url}))
        else:
            lines.append(f"{ports.shown(remote)}{f' is {url} on this machine' if url else ''}")
    if not (lines or as_json):
        lines = ["No program of this session listens on a port."]
    print_line(*lines)


async def _watch(session: RemoteSession) -> None:
    """Keep the session until it ends, and say what happens to its connection. Raises CcbError."""
    lost = False
    async for item in session.events():
        if isinstance(item, LinkChange) and not lost and item.state is LinkState.RECONNECTING:
            lost = True
            say("ccb: the connection is lost, trying again")
        elif isinstance(item, LinkChange) and lost and item.state is LinkState.FENCED:
            lost = False
            say("ccb: connected again")
        elif isinstance(item, LaptopNotice):
            say(f"ccb: {item.text}")
    say("ccb: the session has ended on the host")
