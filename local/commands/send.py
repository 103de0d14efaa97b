"""`ccb send`: put a message into a session, marked with its sender. No model credential is needed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ccb.tunnel.errors import NoSuchSession, UsageError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.control_protocol import Request, RequestFailed
from ccb.tunnel.wire.outside_messages import MAX_TEXT, TELL_SESSION, OutsideMessage

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.option_values import is_session_id
from ..command_line.target import parse_target
from ..command_line.transport_choice import LOCAL_HOST, host_command, host_label, needs_host
from ..config.policy import ledger_folder
from ..connect.connect_session import view_session
from ..connect.host_connection import HostConnection
from ..connect.session_request import client_name
from ..connect.session_rows import SessionRow, list_sessions
from ..ledger.call_ledger import read_ledger
from ..terminal.console import print_line, say
from ..terminal.stdio import in_thread
from ..terminal.terminal_prompts import prompts_for

_MAX_BYTES = 4 * MAX_TEXT + 1


async def run_send(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Send the message once, also over lost connections. Returns AGENT_FAILED if the session refuses it."""
    text = (arguments.prompt if arguments.prompt is not None else await _piped()).strip()
    if not 0 < len(text) <= MAX_TEXT:
        raise UsageError(f"the message has {len(text)} characters", do=f"Write 1 to {MAX_TEXT} of them.")
    sender = arguments.host_command.sender or client_name().partition(" ")[0]
    arguments = at_the_host(arguments, environ)
    async with HostConnection(arguments, prompts_for(headless=False), environ) as host:
        transport, basics = await host.connected(), await host.loader.loaded()
        found = the_one(arguments, await list_sessions(transport, basics.bundle))
        async with view_session(host, found.session, answers=True) as session:
            if not session.hello.seq:
                what, do = "the session has not begun", "Attach to it once, then send the message."
                raise UsageError(what, do=do)
            await session.read_out()  # drops all events: nobody reads them
            try:
                answer = await session.request(Request(TELL_SESSION, OutsideMessage(text, sender)))
            except RequestFailed as failed:
                say(f"ccb: not sent: {one_line(str(failed))}")
                return ExitCode.AGENT_FAILED
            await session.close()
    where = f"{found.session[:8]} on {host_label(arguments.connection)}"
    if answer.get("driven") is not True:
        attach = host_command(arguments, "attach", found.session[:8])
        print_line(f"sent to {where}: nobody drives it, so it waits there; `{attach}` lets the agent read it")
    else:
        print_line(f"sent to {where}")
    return ExitCode.OK


async def _piped() -> str:
    if sys.stdin.isatty():
        raise UsageError("there is no message", do="Write it behind the session, or pipe it in.")
    return (await in_thread(lambda: sys.stdin.buffer.read(_MAX_BYTES))).decode("utf-8", "replace")


def at_the_host(arguments: Arguments, environ: Mapping[str, str]) -> Arguments:
    """Without a host, take the one on which this machine has driven the session."""
    connection, wanted = arguments.connection, arguments.rest[0]
    if connection.target is not None or connection.local or not (needs_host(connection) and is_session_id(wanted)):
        return arguments
    hosts = read_ledger(ledger_folder(environ), lambda ledger: ledger.hosts_of(wanted.lower()), list[str]())
    if hosts in ([], [LOCAL_HOST]):
        return arguments
    try:
        (host,) = hosts
        target = parse_target(host)
    except (ValueError, UsageError):  # several, a container, or a command that leads to the host
        do = "Write HOST:SESSION, with the options that lead there."
        raise UsageError(f"session {wanted} is on {one_line(', '.join(hosts))}", do=do) from None
    return replace(arguments, connection=replace(connection, target=target, port=target.port or connection.port))


def the_one(arguments: Arguments, rows: Sequence[SessionRow]) -> SessionRow:
    """Return the session of this ID or title. Raises NoSuchSession, UsageError."""
    wanted, host = arguments.rest[0], host_label(arguments.connection)
    found = [row for row in rows if is_session_id(wanted) and row.session.startswith(wanted.lower())]
    found = found or [row for row in rows if row.prompt.raw.casefold() == wanted.casefold()]
    if not found:
        raise NoSuchSession(f"{host}: no session has the ID or title {wanted!r}", do="`ccb ps HOST` lists them.")
    if len(found) > 1:
        raise UsageError(f"{len(found)} sessions on {host} are called so", do="Give an ID: `ccb ps HOST` lists them.")
    return found[0]
