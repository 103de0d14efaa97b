"""`ccb ps`, `logs`, `stop`, `gc`, `clean`, `disconnect`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence

from ccb.tunnel.errors import CcbError, Node, NoSuchSession, UsageError
from ccb.tunnel.openssh.kept_connections import all_kept
from ccb.tunnel.plain_text import HostText, age_text
from ccb.tunnel.transports.pipe import Transport

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import host_label
from ..connect.host_connection import connect_host
from ..connect.nodes import through
from ..connect.session_rows import Count, HostWords, ReportRow, SessionRow, list_sessions, reports, row_of, with_prompts
from ..connect.startup import LoadedBasics
from ..terminal.console import print_line, say
from ..terminal.terminal_prompts import prompts_for, read_line
from .session_table import MAX_LISTED, session_table, size_text

_DAY_S = 86400.0
_LINES = 200
_LOG_LINE = 16_384  # characters
_SLOW_S = 2.0
_MAX_NODES = 32  # that are asked for a list
_LIST_S = 15.0  # for a node to list its sessions


def run_disconnect(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """End the kept connections to the host, or all of them. Return AGENT_FAILED if one could not be ended."""
    target = arguments.connection.target
    found = all_kept(environ, target.login if target is not None else None)
    code = ExitCode.OK
    for kept in found:
        if kept.end():
            print_line(f"disconnected {kept.host}")
        else:
            code = ExitCode.AGENT_FAILED
            say(f"ccb: not disconnected: {kept.host}: its process {kept.pid} does not end")
    if not found:
        print_line(f"No connection to {target.login} is kept." if target is not None else "No connection is kept.")
    return code


class LogRow(ReportRow):
    source: HostWords = HostText("")
    when: HostWords = HostText("")
    text: HostWords = HostText("")


class ChangeRow(ReportRow):
    """Something that was removed or kept, a process that was ended, or a session that was stopped (or would be)."""

    path: HostWords = HostText("")
    what: HostWords = HostText("")
    bytes: Count = 0
    why: HostWords = HostText("")
    session: HostWords = HostText("")
    pid: Count = 0
    how: HostWords = HostText("")


async def run_host_command(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    if arguments.command == "clean" and not arguments.host_command.dry_run and not arguments.host_command.yes:
        await _confirm(arguments)
    host = host_label(arguments.connection)
    _hint(f"Connecting to {host} …")
    async with connect_host(arguments, prompts_for(headless=False), environ) as (transport, basics):
        slow = asyncio.get_running_loop().call_later(_SLOW_S, _hint, f"Waiting for {host} …")
        try:
            run_there = {"ps": _ps, "logs": _logs, "stop": _stop}.get(arguments.command, _remove)
            return await run_there(arguments, transport, basics)
        finally:
            slow.cancel()


def _hint(text: str) -> None:
    if sys.stderr.isatty():
        say(text)


async def _confirm(arguments: Arguments) -> None:
    where = host_label(arguments.connection)
    if not sys.stdin.isatty():
        raise UsageError(f"ccb clean {where} removes every session there", do="Add --yes: nobody can be asked here.")
    answer = await read_line(f"Stop all sessions on {where}, and remove them and all else of ccb there? (yes/no) ")
    if (answer or "").lower() not in ("y", "yes"):
        raise UsageError("nothing was removed", do="Answer yes, or see first what would be removed: --dry-run.")


async def _ps(arguments: Arguments, transport: Transport, basics: LoadedBasics) -> ExitCode:
    rows = await list_sessions(transport, basics.bundle)
    if any(row.host for row in rows):
        rows, silent = await with_their_nodes(rows, transport, basics)
        say(*(f"ccb: {each}" for each in silent))
    if arguments.host_command.json:
        print_line(*(json.dumps(row.model_dump()) for row in rows))
        return ExitCode.OK
    asked = with_prompts(rows)
    rows = [row for row in rows if row.may_run or row in asked]
    none = [f"No sessions on {host_label(arguments.connection)}."]
    print_line(*(session_table(rows, shutil.get_terminal_size((120, 24)).columns) if rows else none))
    target = arguments.connection.target
    for kept in all_kept(os.environ, target.login if target is not None else None):
        ends = f"`ccb disconnect {kept.host}` ends it"
        print_line(f"SSH connection to {kept.host} kept for {age_text(kept.left_s)} more; {ends}")
    return ExitCode.OK


async def session_meant(arguments: Arguments, transport: Transport, basics: LoadedBasics) -> str:
    """Return the session that is named, the latest one of a directory that is named, the only one that runs, or but for
    `stop` the only one. Raise UsageError, which lists them, if there are several. Return "" for `stop` where none
    runs."""
    if arguments.session.resume:
        return arguments.session.resume
    rows = await list_sessions(transport, basics.bundle, arguments.directory)
    if arguments.directory is not None:
        where = f"{host_label(arguments.connection)}:{arguments.directory}"
        rows = [row for row in rows if row.state != "moved" or arguments.command == "move"]  # it ends that move
        if not rows:
            raise NoSuchSession(f"{where}: there are no sessions of this directory", do="`ccb ps HOST` lists all.")
        return (with_prompts(rows) or rows)[0].session
    running = [row for row in rows if row.may_run]
    rows = running if running or arguments.command == "stop" else rows
    host = host_label(arguments.connection)
    if not rows and arguments.command != "stop":
        raise NoSuchSession(f"{host}: there are no sessions on this host", do="`ccb ssh HOST:/path` starts one.")
    if len(rows) > 1:
        also = ", or --all" if arguments.command == "stop" else ""
        raise UsageError(
            f"there are {len(rows)} sessions on {host}: name the one you mean",
            evidence="\n".join(session_table(rows[:MAX_LISTED], shutil.get_terminal_size((100, 24)).columns - 2)),
            do=f"Give its ID{also}.",
        )
    return rows[0].session if rows else ""


async def _logs(arguments: Arguments, transport: Transport, basics: LoadedBasics) -> ExitCode:
    session = await session_meant(arguments, transport, basics)
    command = {"command": "logs", "session": session, "lines": arguments.host_command.lines or _LINES}
    async with contextlib.aclosing(reports(transport, basics.bundle, command)) as answer:
        async for report in answer:
            if report.kind == "log":
                row = row_of(LogRow, report.body, transport.name)
                mark = " worker:" if row.source.raw == "worker" else ""
                print_line(f"{row.when.cell}{mark} {row.text.line(_LOG_LINE)}")
    return ExitCode.OK


async def _stop(arguments: Arguments, transport: Transport, basics: LoadedBasics) -> ExitCode:
    """Returns AGENT_FAILED if a session could not be stopped."""
    command: dict[str, object] = {"command": "stop"}
    if arguments.host_command.all:
        command["all"] = True
    elif session := await session_meant(arguments, transport, basics):
        command["session"] = session
    else:
        print_line(f"No session runs on {host_label(arguments.connection)}.")
        return ExitCode.OK
    count = 0
    code = ExitCode.OK
    async with contextlib.aclosing(reports(transport, basics.bundle, command, settings=basics.settings)) as answer:
        async for report in answer:
            row = row_of(ChangeRow, report.body, transport.name)
            if report.kind in ("stopped", "ended"):
                count += 1
                print_line(change_line(report.kind, row, dry_run=False))
            elif report.kind == "kept":
                code = ExitCode.AGENT_FAILED
                say(f"ccb: not stopped: {row.path}: {row.why}")
    if not count and code is ExitCode.OK:
        print_line(f"No session runs on {host_label(arguments.connection)}.")
    return code


async def _remove(arguments: Arguments, transport: Transport, basics: LoadedBasics) -> ExitCode:
    """Run `gc` or `clean`. Returns AGENT_FAILED if `clean` had to leave something on the host."""
    dry_run = arguments.host_command.dry_run
    command: dict[str, object] = {"command": arguments.command, "dry_run": dry_run}
    if arguments.host_command.older_than is not None:
        command["older_than_s"] = arguments.host_command.older_than * _DAY_S
    removed: list[ChangeRow] = []
    kept = 0
    async with contextlib.aclosing(reports(transport, basics.bundle, command)) as answer:
        async for report in answer:
            row = row_of(ChangeRow, report.body, transport.name)
            if line := change_line(report.kind, row, dry_run=dry_run):
                print_line(line)
            removed += [row] if report.kind == "removed" else []
            kept += report.kind == "kept"
    size = size_text(sum(row.bytes for row in removed))
    things = f"{len(removed)} {'thing' if len(removed) == 1 else 'things'}{f', {size}' if size else ''}"
    print_line(f"{'would remove' if dry_run else 'removed'} {things}{f'; kept {kept}' if kept else ''}.")
    return ExitCode.AGENT_FAILED if kept and arguments.command == "clean" and not dry_run else ExitCode.OK


def change_line(kind: str, row: ChangeRow, *, dry_run: bool) -> str:
    """Return a report of `gc` or `clean` as a line; "" for a kind that only a newer worker knows."""
    because = f": {row.why.cell}" if row.why else ""
    match kind:
        case "removed":
            return f"{'would remove' if dry_run else 'removed'} {row.what.cell} {row.path.cell}{because}"
        case "stopped" if dry_run:
            return f"would stop {row.session.cell}{f': {row.how.cell}' if row.how else ''}"
        case "stopped":
            how = row.how.cell or "ended"
            return f"stopped {row.session.cell} ({how})" if row.pid else f"{row.session.cell} was not running"
        case "ended":
            return f"{'would end' if dry_run else 'ended'} process {row.pid} ({row.what.cell or '?'}){because}"
        case "kept":
            return f"kept {row.path.cell}{because}"
        case _:
            return ""


async def with_their_nodes(
    rows: Sequence[SessionRow], transport: Transport, basics: LoadedBasics
) -> tuple[list[SessionRow], list[str]]:
    """Ask the nodes that own some of these sessions about them. Return the rows, and what did not answer."""

    async def ask(node: Node) -> None:
        try:
            async with asyncio.timeout(_LIST_S):
                listed = await list_sessions(through(transport, node, basics.settings), basics.bundle)
        except (TimeoutError, CcbError) as error:
            why = error.what if isinstance(error, CcbError) else "it does not answer"
            silent.append(f"the node {HostText(node.name)} lists no sessions: {why}")
        else:
            host = HostText(node.name)
            known.update({(node.name, each.session): each.model_copy(update={"host": host}) for each in listed})

    known: dict[tuple[str, str], SessionRow] = {}
    silent: list[str] = []
    nodes = {row.host.raw: Node(row.host.raw, "", row.job) for row in rows if row.host}
    await asyncio.gather(*map(ask, list(nodes.values())[:_MAX_NODES]))
    return [known.get((row.host.raw, row.session), row) for row in rows], silent
