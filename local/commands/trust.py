"""`ccb trust`: show, give or take back the trust in a project on a host."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import host_key, shown_host
from ..config.project_records import HostIdentity, Projects
from ..connect.host_connection import connect_host
from ..connect.project_trust import host_identity
from ..connect.session_rows import Count, HostWords, ReportRow, Text, reports, row_of
from ..terminal.console import print_line, say
from ..terminal.terminal_prompts import prompts_for, read_line

_MAX_REPORTS = 2000
_MOST = 16_384  # characters: what the person trusts is shown whole
_RULES = ("allow", "ask", "deny")


class _ProjectRow(ReportRow):
    directory: HostWords = HostText("")
    fingerprint: Text = ""
    text: HostWords = HostText("")


class SwitchRow(ReportRow):
    """What a project or the policy of a host switches on. `at` is the line in its file, 0 if it is not known."""

    kind: HostWords = HostText("")
    name: HostWords = HostText("")
    detail: HostWords = HostText("")
    path: HostWords = HostText("")
    owner: HostWords = HostText("")
    source: HostWords = HostText("project")
    at: Count = 0

    @property
    def origin(self) -> str:
        """Where it stands, as safe text: the source, the file on the host, and the line where that is known."""
        return f"{self.source.cell}: {self.path.path}" + (f", line {self.at}" if self.at else "")

    @property
    def file(self) -> str:
        return self.path.path + (f", of {self.owner.cell}" if self.owner.raw else "")

    @property
    def line(self) -> str:
        """It as one line of safe text, like a value of `ccb config show`."""
        name, detail = self.name.line(_MOST), self.detail.line(_MOST)
        match self.kind.raw:
            case kind if kind in _RULES:
                return f"permissions.{kind} = {json.dumps(name, ensure_ascii=False)}"
            case "setting":
                return f"{name} = {detail}"
            case "hook" | "mcp":
                return f"{'hooks' if self.kind.raw == 'hook' else 'mcpServers'}.{name} = {detail}"
            case _:
                return f"{self.kind.cell} {name}" + (f": {detail}" if detail else "")


@dataclass(frozen=True)
class HostProject:
    """A project as its host describes it. `problems` are about its files, `policy` is the administrator's."""

    host: HostIdentity
    directory: HostText
    fingerprint: str
    switches: Sequence[SwitchRow] = ()
    problems: Sequence[HostText] = ()
    policy: Sequence[SwitchRow] = ()


async def read_host_project(arguments: Arguments, environ: Mapping[str, str]) -> HostProject:
    """Connect, and return the project of the directory that the arguments name. Raises CcbError."""
    directory = arguments.directory or (str(Path.cwd()) if arguments.connection.local else "~")
    command = {"command": "project", "directory": directory}
    found, problems, switches, policy = _ProjectRow(), [], [], []
    async with connect_host(arguments, prompts_for(headless=False), environ) as (transport, basics):
        async with aclosing(reports(transport, basics.bundle, command, _MAX_REPORTS)) as answer:
            async for report in answer:
                match report.kind:
                    case "project":
                        found = row_of(_ProjectRow, report.body, transport.name)
                    case "problem":
                        problems.append(row_of(_ProjectRow, report.body, transport.name).text)
                    case "switch":
                        switches.append(row_of(SwitchRow, report.body, transport.name))
                    case "policy":
                        policy.append(row_of(SwitchRow, report.body, transport.name))
        identity = await host_identity(arguments.connection)
    return HostProject(identity, found.directory, found.fingerprint, switches, problems, policy)


async def run_trust(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Return AGENT_FAILED if nothing was found to take back, or nobody could be asked. Raises CcbError."""
    projects = Projects(environ)
    if arguments.connection.target is None and not arguments.connection.local:
        if arguments.host_command.revoke or arguments.host_command.yes:
            raise UsageError("ccb trust needs a host for this", do="Write `ccb trust HOST:/PATH …`.")
        records = await asyncio.to_thread(projects.all)
        print_line(*[line for each in records for line in each.lines] or ["No project is trusted."])
        return ExitCode.OK
    if arguments.host_command.revoke:
        return await asyncio.to_thread(_revoke, arguments, projects)
    found = await read_host_project(arguments, environ)
    where = f"{shown_host(found.host.name)}:{found.directory.path}"
    say(*(f"ccb: on the host: {problem}" for problem in found.problems))
    if not found.switches:
        print_line(f"{where} switches nothing on.")
        return ExitCode.OK
    trusted = (await asyncio.to_thread(projects.find, found.host, found.directory.raw)).trusted
    print_line(f"{where} {'is trusted' if trusted == found.fingerprint else 'would switch on'}:")
    print_line(*(f"  {switch.line}  ({switch.file})" for switch in found.switches))
    if trusted == found.fingerprint:
        return ExitCode.OK
    return await _ask(arguments, projects, found, where)


async def _ask(arguments: Arguments, projects: Projects, found: HostProject, where: str) -> ExitCode:
    if not arguments.host_command.yes:
        if not sys.stdin.isatty():
            print_line("It is not trusted. Nobody can be asked here; --yes trusts it.")
            return ExitCode.AGENT_FAILED
        answer = await read_line(f"Trust all of this in {where}? (yes/no) ")
        if (answer or "").lower() not in ("y", "yes"):
            print_line("It is not trusted.")
            return ExitCode.OK
    await asyncio.to_thread(projects.trust, found.host, found.directory.raw, found.fingerprint)
    print_line(f"{where} is trusted until any of this changes.")
    return ExitCode.OK


def _revoke(arguments: Arguments, projects: Projects) -> ExitCode:
    """Forget projects of a host by the name that they are listed under: no connection is needed."""
    name, directory = host_key(arguments.connection), arguments.directory
    gone = projects.forget(lambda each: each.host.name == name and directory in (None, each.directory))
    for each in gone:
        print_line(
            f"{shown_host(each.host.name)}:{HostText(each.directory).path} is not trusted any more; its rules are gone"
        )
    if not gone:
        where = ":".join(filter(None, (shown_host(name), directory)))
        say(f"ccb: nothing is kept of {where}; `ccb trust` lists what is")
    return ExitCode.OK if gone else ExitCode.AGENT_FAILED
