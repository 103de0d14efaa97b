"""`ccb ps`, `logs`, `stop`, `gc`, `clean`: one connection, one command of the host's worker, its reports as lines."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping

from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import UsageError
from ccb.tunnel.pipe import Transport

from .arguments import Arguments
from .connect import host_name, load_connection
from .exit_codes import ExitCode
from .prompts import ask_line, prompts_for
from .session_list import ReportRow, list_sessions, reports, row_of
from .session_table import one_line, session_table, size_text

_DAY_S = 86400.0
_LINES = 200


class LogRow(ReportRow):
    """A line of a session's log: `source` is session or worker, `when` the host's time as text."""

    source: str = ""
    when: str = ""
    text: str = ""


class ChangeRow(ReportRow):
    """Something that was (or would be) removed or kept, or a session that was stopped."""

    path: str = ""
    what: str = ""
    bytes: int = 0
    why: str = ""
    session: str = ""
    pid: int = 0
    how: str = ""


async def run_host_command(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> ExitCode:
    """Do it; the exit code. Raises CcbError."""
    if arguments.command == "clean" and not arguments.dry_run and not arguments.yes:
        await _confirm(arguments)
    async with load_connection(arguments, prompts_for(headless=False), environ) as (transport, bundle):
        match arguments.command:
            case "ps":
                await _ps(arguments, transport, bundle)
            case "logs":
                await _logs(arguments, transport, bundle)
            case "stop":
                await _stop(arguments, transport, bundle)
            case _:
                await _remove(arguments, transport, bundle)
    return ExitCode.OK


async def _confirm(arguments: Arguments) -> None:
    where = host_name(arguments)
    if not sys.stdin.isatty():
        raise UsageError(f"ccb clean {where} removes every session there", do="Add --yes where nobody can be asked.")
    answer = await ask_line(
        f"Stop all sessions on {where} and remove them with everything else of ccb there? (yes/no) "
    )
    if answer.lower() not in ("y", "yes"):
        raise UsageError("nothing was removed", do="Answer yes, or look first with --dry-run.")


async def _ps(arguments: Arguments, transport: Transport, bundle: Bundle) -> None:
    rows = await list_sessions(transport, bundle)
    if arguments.json:
        for row in rows:
            _say(json.dumps(row.model_dump()))
    elif rows:
        for line in session_table(rows, shutil.get_terminal_size((120, 24)).columns):
            _say(line)
    else:
        _say(f"No sessions on {host_name(arguments)}.")


async def _logs(arguments: Arguments, transport: Transport, bundle: Bundle) -> None:
    command = {"command": "logs", "session": arguments.resume, "lines": arguments.lines or _LINES}
    async for report in reports(transport, bundle, command):
        if report.kind == "log":
            row = row_of(LogRow, report.body, transport.name)
            mark = " worker:" if row.source == "worker" else ""
            _say(f"{one_line(row.when)}{mark} {one_line(row.text)}")


async def _stop(arguments: Arguments, transport: Transport, bundle: Bundle) -> None:
    command: dict[str, object] = {"command": "stop"}
    command |= {"all": True} if arguments.all else {"session": arguments.resume}
    count = 0
    async for report in reports(transport, bundle, command):
        if report.kind == "stopped":
            row = row_of(ChangeRow, report.body, transport.name)
            count += 1
            _say(f"stopped {one_line(row.session)}" + (f" ({one_line(row.how)})" if row.how else ""))
    if not count:
        _say("No session was running.")


async def _remove(arguments: Arguments, transport: Transport, bundle: Bundle) -> None:
    command: dict[str, object] = {"command": arguments.command, "dry_run": arguments.dry_run}
    if arguments.older_than is not None:
        command["older_than_s"] = arguments.older_than * _DAY_S
    verb = "would remove" if arguments.dry_run else "removed"
    count = size = 0
    async for report in reports(transport, bundle, command):
        row = row_of(ChangeRow, report.body, transport.name)
        match report.kind:
            case "removed":
                count, size = count + 1, size + row.bytes
                _say(
                    f"{verb} {one_line(row.what)} {one_line(row.path)}" + (f": {one_line(row.why)}" if row.why else "")
                )
            case "stopped":
                _say(f"stopped {one_line(row.session)}" + (f" ({one_line(row.how)})" if row.how else ""))
            case "kept":
                _say(f"kept {one_line(row.path)}: {one_line(row.why)}")
            case _:
                pass
    _say(f"{verb} {count} {'thing' if count == 1 else 'things'}{', ' + size_text(size) if size else ''}.")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def run(arguments: Arguments) -> ExitCode:
    """`run_host_command` in a loop of its own."""
    return asyncio.run(run_host_command(arguments))
