"""`ccb doctor [HOST]`: print the findings as they come, without secrets, for people or as JSON."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections import Counter
from collections.abc import Mapping

from ..command_line.exit_codes import ExitCode
from ..command_line.model import Arguments, private_texts
from ..command_line.transport_choice import host_label
from ..config.reports.redaction import Redactor
from ..terminal.console import run_command
from ..terminal.guarded_streams import print_line
from .examination import findings
from .findings import CONNECTION, HOST, LAPTOP, State, finding_json, finding_lines, summary
from .title import entered_container

_MAX_WIDTH = 140


async def print_report(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> ExitCode:
    """Print every finding; return AGENT_FAILED if one of them would stop a session."""
    counts: Counter[State] = Counter()
    where = ""
    as_json = arguments.host_command.json
    width = min(shutil.get_terminal_size((120, 24)).columns, _MAX_WIDTH)
    public = Redactor(environ, private_texts(arguments.connection)).public
    titles = _titles(arguments, environ)
    async for each in findings(arguments, environ):
        finding = dataclasses.replace(each, found=public(each.found), fix=public(each.fix))
        counts[finding.state] += 1
        if as_json:
            print_line(finding_json(finding))
            continue
        if finding.where != where:
            title = titles.get(finding.where) or public(finding.where)
            print_line(*([""] if where else []), title[:1].upper() + title[1:])
            where = finding.where
        print_line(*finding_lines(finding, width))
    if not as_json:
        print_line("", summary(counts[State.BLOCK], counts[State.WARN]))
    return ExitCode.AGENT_FAILED if counts[State.BLOCK] else ExitCode.OK


def _titles(arguments: Arguments, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headings of the report. The host may be reached by a command, of which only public parts are shown."""
    entered = entered_container(arguments.connection)
    if entered:
        host = Redactor(environ).public(entered)
    else:
        host = Redactor(environ, private_texts(arguments.connection)).public(host_label(arguments.connection))
    return {LAPTOP: "This machine", CONNECTION: f"Connection to {host}", HOST: f"On {host}"}


def run(arguments: Arguments) -> ExitCode:
    """Run `ccb doctor` in an event loop of its own."""
    return run_command(print_report(arguments))
