"""`ccb doctor [HOST]`: everything that could be in the way, with evidence and one way out each."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import time
from collections.abc import AsyncIterator, Mapping

from ccb.deploy import bundle
from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import CcbError
from ccb.tunnel.login.prompter import Prompts
from ccb.tunnel.transports.command_line import words_of
from ccb.tunnel.transports.pipe import Transport

from ..command_line.exit_codes import ExitCode
from ..command_line.model import Arguments, private_texts
from ..command_line.transport_choice import TransportKind, host_label, ssh_target, transport_kind
from ..config.redaction import Striker
from ..config.settings import Settings
from ..connect.startup import Startup, StartupLoader, load_startup
from ..connect.transport import first_transport
from ..login.prompts import prompts_for
from ..terminal.saying import run_saying, say
from .connection import WHERE as CONNECTION
from .connection import login_failed, login_findings, ssh_findings
from .findings import Finding, State, finding_json, finding_lines, summary
from .host import host_findings
from .laptop import laptop_findings
from .title import entered_container


async def examine(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> ExitCode:
    """Say every finding as it comes, without secrets; AGENT_FAILED when one blocks."""
    counts = dict.fromkeys(State, 0)
    where = ""
    width = min(shutil.get_terminal_size((120, 24)).columns, 140)
    public = Striker(environ, private_texts(arguments.connection)).public
    entered = entered_container(arguments.connection)
    host = Striker(environ).public(entered) if entered else public(host_label(arguments.connection))
    titles = {"laptop": "This machine", "connection": f"Connection to {host}", "host": f"On {host}"}
    async for each in _findings(arguments, environ):
        finding = dataclasses.replace(each, found=public(each.found), fix=public(each.fix))
        counts[finding.state] += 1
        if arguments.host_command.json:
            say(finding_json(finding))
            continue
        if finding.where != where:
            title = titles.get(finding.where) or public(finding.where)
            say(("\n" if where else "") + title[:1].upper() + title[1:])
            where = finding.where
        for line in finding_lines(finding, width):
            say(line)
    if not arguments.host_command.json:
        say("\n" + summary(counts[State.BLOCK], counts[State.WARN]))
    return ExitCode.AGENT_FAILED if counts[State.BLOCK] else ExitCode.OK


async def _findings(arguments: Arguments, environ: Mapping[str, str]) -> AsyncIterator[Finding]:
    async for finding in laptop_findings(environ):
        yield finding
    connection = arguments.connection
    kind, known, by_hand = transport_kind(connection), False, ""
    if kind is TransportKind.LOCAL and not connection.local and connection.container is None:
        return
    if connection.target is not None and kind in (TransportKind.ASYNCSSH, TransportKind.OPENSSH):
        target = ssh_target(connection)
        words = words_of(connection.ssh_command or "ssh", "--ssh-command")
        by_hand = target.shell_command(words, "-v")
        async for finding in ssh_findings(target, openssh=kind is TransportKind.OPENSSH, words=words):
            known = known or (
                finding.where == CONNECTION and finding.name == "known_hosts" and finding.state is State.OK
            )
            yield finding
    prompts = prompts_for(headless=False)
    began = time.monotonic()
    try:
        transport, worker = await _connected(arguments, prompts, environ)
    except CcbError as error:
        yield login_failed(error)
        return
    try:
        took = time.monotonic() - began - getattr(prompts, "asked_s", 0.0)
        for finding in login_findings(transport, took, known=known, by_hand=by_hand):
            yield finding
        async for finding in host_findings(transport, worker):
            yield finding
    finally:
        await transport.close()


async def _connected(arguments: Arguments, prompts: Prompts, environ: Mapping[str, str]) -> tuple[Transport, Bundle]:
    """The way a session would go, whatever is wrong with settings and credential of this machine."""
    async with StartupLoader(lambda: asyncio.to_thread(_startup, environ)) as loader:
        transport = await first_transport(arguments, prompts, environ, loader)
        try:
            worker = (await loader.loaded()).bundle
        except BaseException:
            await transport.close()
            raise
    return transport, worker


def _startup(environ: Mapping[str, str]) -> Startup:
    try:
        return load_startup(environ)
    except CcbError:  # a finding of the laptop already
        return Startup(Settings(), (), bundle.load())


def run(arguments: Arguments) -> ExitCode:
    """`examine` in a loop of its own."""
    return run_saying(examine(arguments))
