"""`ccb ports`: list the ports of a running session, or forward some of them without driving the session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from ccb.tunnel.errors import NoSuchSession
from ccb.tunnel.tasks import cancelled

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import host_label
from ..connect.connect_session import watch_session
from ..connect.session_rows import SessionRow
from ..ports.port_forwards import LOOPBACK, PortForwards
from ..session.remote_session import RemoteSession
from ..session.session_client import LaptopNotice, LinkChange, LinkState
from ..terminal.console import print_line, say
from ..terminal.terminal_prompts import prompts_for


async def run_ports(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """With forwards, returns when the session ends."""
    host, directory = host_label(arguments.connection), arguments.directory or ""

    def choose(rows: Sequence[SessionRow]) -> str:
        running = [row for row in rows if row.alive]
        if not running:
            where = f"{host}:{directory}" if directory else host
            do = "`ccb ps HOST` lists the sessions, `ccb ps --local` those of this machine."
            raise NoSuchSession(f"{where}: no session runs there", do=do)
        return running[0].session

    async with (
        watch_session(arguments, prompts_for(headless=False), environ, choose) as (session, settings),
        PortForwards(session, settings.ports.labels) as ports,
    ):
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
    lines = []
    for remote in sorted({*ports.listening, *ports.forwards}):
        forward = ports.forwards.get(remote)
        url = forward.url if forward is not None else ""
        if as_json:
            lines.append(json.dumps({"port": remote, "name": ports.name_of(remote), "url": url}))
        else:
            lines.append(f"{ports.shown(remote)}{f' is {url} on this machine' if url else ''}")
    for port in ports.reverses:
        words = f"{LOOPBACK}:{port} of the host leads to port {port} of this machine"
        lines.append(json.dumps({"reverse": port}) if as_json else words)
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
