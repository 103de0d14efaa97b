"""`ccb doctor`: run all checks and print what they find."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

from ccb.deploy import bundle
from ccb.tunnel.errors import CcbError
from ccb.tunnel.transports.command_transport import words_of
from ccb.tunnel.transports.pipe import NOTHING_SHARED

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import TransportKind, host_label, private_texts, ssh_target, transport_kind
from ..config.log import Redactor
from ..config.settings import Settings, SettingsChoice
from ..config.settings_loading import load_sharing
from ..connect.host_connection import connect_host
from ..connect.host_sessions import HostSessions
from ..connect.startup import LoadedBasics, load_startup
from ..terminal.console import print_line
from ..terminal.terminal_prompts import TerminalPrompts, prompts_for
from .doctor_findings import CONNECTION, HOST, LAPTOP, Finding, FindingState, finding_lines, summary
from .host_checks import host_findings
from .laptop_checks import laptop_findings
from .ssh_checks import login_failed, login_findings, ssh_findings

_MAX_WIDTH = 140


async def findings(arguments: Arguments, environ: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Yield every finding once it is known; without a host, those about this machine."""
    prompts = prompts_for(headless=False)
    async for finding in laptop_findings(environ, prompts):
        yield finding
    connection = arguments.connection
    kind = transport_kind(connection)
    if kind is TransportKind.LOCAL and not connection.local and connection.container is None:
        return
    key_known, verbose_login = False, ""
    if connection.target is not None and kind in (TransportKind.ASYNCSSH, TransportKind.OPENSSH):
        target = ssh_target(connection)
        words = words_of(connection.ssh_command or "ssh", "--ssh-command")
        verbose_login = target.shell_command(words, "-v")
        async for finding in ssh_findings(
            target, openssh=kind is TransportKind.OPENSSH, words=words, sharing=load_sharing(environ)
        ):
            key_known |= (finding.where, finding.name, finding.state) == (CONNECTION, "known_hosts", FindingState.OK)
            yield finding
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        connecting = connect_host(arguments, prompts, environ, _startup, NOTHING_SHARED)
        try:
            transport, basics = await stack.enter_async_context(connecting)
            await transport.logged_in()
        except CcbError as error:
            yield login_failed(error)
            return
        asked_s = prompts.asked_s if isinstance(prompts, TerminalPrompts) else 0.0
        took_s = time.monotonic() - began - asked_s
        for finding in login_findings(transport, took_s, key_known=key_known, verbose_login=verbose_login):
            yield finding
        async for finding in host_findings(transport, basics.bundle):
            yield finding


async def attached_findings(sessions: HostSessions | None, environ: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Yield the findings about this machine and the host of a session. Nobody is asked for anything."""
    async for finding in laptop_findings(environ):
        yield finding
    if isinstance(sessions, HostSessions):
        transport, worker = await sessions.reached()
        async for finding in host_findings(transport, worker):
            yield finding


def _startup(environ: Mapping[str, str], choice: SettingsChoice) -> LoadedBasics:
    """Let the doctor log in as a session would, even if the settings or the credential of this machine are wrong."""
    try:
        return load_startup(environ, choice)
    except CcbError:  # the checks of this machine have reported the error
        return LoadedBasics(Settings(), bundle.load())


async def print_report(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Print every finding; return AGENT_FAILED if one of them would stop a session."""
    counts: Counter[FindingState] = Counter()
    where = ""
    as_json = arguments.host_command.json
    width = min(shutil.get_terminal_size((120, 24)).columns, _MAX_WIDTH)
    public = Redactor(environ, private_texts(arguments.connection)).public
    titles = headings(arguments, environ)
    async for each in findings(arguments, environ):
        finding = dataclasses.replace(each, found=public(each.found), fix=public(each.fix))
        counts[finding.state] += 1
        if as_json:
            print_line(json.dumps({**dataclasses.asdict(finding), "state": finding.state.value}))
            continue
        if finding.where != where:
            title = titles.get(finding.where) or public(finding.where)
            print_line(*([""] if where else []), title[:1].upper() + title[1:])
            where = finding.where
        print_line(*finding_lines(finding, width))
    if not as_json:
        print_line("", summary(counts[FindingState.BLOCK], counts[FindingState.WARN]))
    return ExitCode.AGENT_FAILED if counts[FindingState.BLOCK] else ExitCode.OK


def headings(arguments: Arguments, environ: Mapping[str, str]) -> dict[str, str]:
    host = Redactor(environ, private_texts(arguments.connection)).public(host_label(arguments.connection))
    return {LAPTOP: "This machine", CONNECTION: f"Connection to {host}", HOST: f"On {host}"}
