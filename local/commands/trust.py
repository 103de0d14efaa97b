"""`ccb trust`: list what is trusted, show what a project on a host would switch on, trust it, or take that back."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import HostText

from ..command_line.exit_codes import ExitCode
from ..command_line.model import Arguments
from ..command_line.transport_choice import host_label
from ..config.projects import ProjectRecord, Projects
from ..login.prompts import ask_line
from ..terminal.console import run_command
from ..terminal.guarded_streams import print_line, say
from .host_projects import HostProject, read_host_project


async def run_trust(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> ExitCode:
    """Run the command. Returns AGENT_FAILED if nothing was found to take back, or nobody could be asked. Raises
    CcbError."""
    projects = Projects(environ)
    if arguments.connection.target is None and not arguments.connection.local:
        if arguments.host_command.revoke or arguments.host_command.yes:
            raise UsageError("ccb trust needs a host for this", do="Write `ccb trust HOST:/PATH …`.")
        records = await asyncio.to_thread(projects.all)
        for line in [line for each in records for line in lines_of(each)] or ["No project is trusted."]:
            print_line(line)
        return ExitCode.OK
    if arguments.host_command.revoke:
        return await asyncio.to_thread(_revoke, arguments, projects)
    found = await read_host_project(arguments, environ)
    where = f"{found.host.name}:{found.directory.path}"
    for problem in found.problems:
        say(f"ccb: on the host: {problem}")
    if not found.switches:
        print_line(f"{where} switches nothing on.")
        return ExitCode.OK
    trusted = (await asyncio.to_thread(projects.find, found.host, found.directory.raw)).trusted
    print_line(f"{where} {'is trusted' if trusted == found.fingerprint else 'would switch on'}:")
    for switch in found.switches:
        print_line(f"  {switch.line}  ({switch.file})")
    if trusted == found.fingerprint:
        return ExitCode.OK
    return await _ask(arguments, projects, found, where)


def lines_of(record: ProjectRecord) -> list[str]:
    """Return what is kept of a project, as lines."""
    where = f"{record.host.name}:{HostText(record.directory).path}"
    lines = [f"{where} is trusted"] if record.trusted else []
    for kind, rules in record.permissions.items():
        lines += [f"{where} permissions.{kind} = {rule}" for rule in rules]
    return lines


async def _ask(arguments: Arguments, projects: Projects, found: HostProject, where: str) -> ExitCode:
    if not arguments.host_command.yes:
        if not sys.stdin.isatty():
            print_line("It is not trusted. Nobody can be asked here; --yes trusts it.")
            return ExitCode.AGENT_FAILED
        if (await ask_line(f"Trust all of this in {where}? (yes/no) ")).lower() not in ("y", "yes"):
            print_line("It is not trusted.")
            return ExitCode.OK
    await asyncio.to_thread(projects.trust, found.host, found.directory.raw, found.fingerprint)
    print_line(f"{where} is trusted until any of this changes.")
    return ExitCode.OK


def _revoke(arguments: Arguments, projects: Projects) -> ExitCode:
    """Forget projects of a host by the name that they are listed under: no connection is needed."""
    name, directory = host_label(arguments.connection), arguments.directory
    gone = projects.forget(lambda each: each.host.name == name and directory in (None, each.directory))
    for each in gone:
        print_line(f"{each.host.name}:{HostText(each.directory).path} is not trusted any more; its rules are gone")
    if not gone:
        where = ":".join(filter(None, (name, directory)))
        say(f"ccb: nothing is kept of {where}; `ccb trust` lists what is")
    return ExitCode.OK if gone else ExitCode.AGENT_FAILED


def run(arguments: Arguments) -> ExitCode:
    """Run the command in an event loop of its own."""
    return run_command(run_trust(arguments))
