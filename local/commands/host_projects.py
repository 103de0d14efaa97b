"""What a project on a host would switch on, read over a connection without a session."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import field
from pathlib import Path

from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.model import Arguments
from ..config.projects import HostIdentity
from ..connect.connect import connect_host
from ..connect.hosts.identity import host_identity
from ..connect.session_list import Count, HostWords, ReportRow, Text, reports, row_of
from ..login.prompts import prompts_for

_MAX_REPORTS = 2000
_MOST = 16_384  # characters: what the person trusts is shown whole
_RULES = ("allow", "ask", "deny")


class _ProjectRow(ReportRow):
    directory: HostWords = HostText("")
    fingerprint: Text = ""
    text: HostWords = HostText("")


class SwitchRow(ReportRow):
    """One thing that a project or the policy of a host switches on, as the host describes it. `at` is the line in its
    file, 0 if that is not known."""

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
        """Its file on the host and whose that is, as safe text."""
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
    """A project as its host describes it. `problems` are sentences about its files, `policy` is what the administrator
    of the host has set."""

    host: HostIdentity
    directory: HostText
    fingerprint: str
    switches: Sequence[SwitchRow] = field(default=())
    problems: Sequence[HostText] = field(default=())
    policy: Sequence[SwitchRow] = field(default=())


async def read_host_project(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> HostProject:
    """Connect, and return the project of the directory that the arguments name. Raises CcbError."""
    directory = arguments.directory or (str(Path.cwd()) if arguments.connection.local else "~")
    command = {"command": "project", "directory": directory}
    found, problems, switches, policy = _ProjectRow(), [], [], []
    async with connect_host(arguments, prompts_for(headless=False), environ) as (transport, bundle):
        async with aclosing(reports(transport, bundle, command, _MAX_REPORTS)) as answer:
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
