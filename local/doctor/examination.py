"""All checks of the doctor in order: this machine, the ssh options, the login, the host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping

from ccb.deploy import bundle
from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import CcbError
from ccb.tunnel.login.prompter import Prompts
from ccb.tunnel.openssh.sharing import NOTHING_SHARED
from ccb.tunnel.transports.command_line import words_of
from ccb.tunnel.transports.pipe import LogsInLater, Transport

from ..command_line.model import Arguments
from ..command_line.transport_choice import TransportKind, ssh_target, transport_kind
from ..config.settings import Settings
from ..config.settings_loading import load_sharing
from ..connect.hosts.sessions_over_link import SessionsOverLink
from ..connect.session_list import HostSessions
from ..connect.startup import Startup, StartupLoader, load_startup
from ..connect.transport import first_transport
from ..login.prompts import TerminalPrompts, prompts_for
from .connection import login_failed, login_findings, ssh_findings
from .findings import CONNECTION, Finding, State
from .host import host_findings
from .laptop import laptop_findings


async def findings(arguments: Arguments, environ: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Yield every finding as soon as it is known.

    Without a host, examine only this machine. Every CcbError becomes a finding.
    """
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
            key_known = key_known or _is_known_key(finding)
            yield finding
    began = time.monotonic()
    try:
        transport, worker = await _connected(arguments, prompts, environ)
    except CcbError as error:
        yield login_failed(error)
        return
    try:
        asked_s = prompts.asked_s if isinstance(prompts, TerminalPrompts) else 0.0
        took_s = time.monotonic() - began - asked_s
        for finding in login_findings(transport, took_s, key_known=key_known, verbose_login=verbose_login):
            yield finding
        async for finding in host_findings(transport, worker):
            yield finding
    finally:
        await transport.close()


async def attached_findings(sessions: HostSessions | None, environ: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Yield the findings about this machine and, over the connection of a session, about its host. Nobody is asked for
    anything. Raises CcbError."""
    async for finding in laptop_findings(environ):
        yield finding
    if isinstance(sessions, SessionsOverLink):
        transport, worker = await sessions.reached()
        async for finding in host_findings(transport, worker):
            yield finding


def _is_known_key(finding: Finding) -> bool:
    """Whether the finding says that the host's key is in a known_hosts file."""
    return finding.where == CONNECTION and finding.name == "known_hosts" and finding.state is State.OK


async def _connected(arguments: Arguments, prompts: Prompts, environ: Mapping[str, str]) -> tuple[Transport, Bundle]:
    """Connect as a session would that has to log in, even if the settings or the credential of this machine are
    wrong."""
    async with StartupLoader(lambda: asyncio.to_thread(_startup, environ)) as loader:
        transport = await first_transport(arguments, prompts, environ, loader, NOTHING_SHARED)
        try:
            worker = (await loader.loaded()).bundle
            if isinstance(transport, LogsInLater):
                await transport.logged_in()
        except BaseException:
            await transport.close()
            raise
    return transport, worker


def _startup(environ: Mapping[str, str]) -> Startup:
    try:
        return load_startup(environ)
    except CcbError:  # the checks of this machine have reported the error
        return Startup(Settings(), (), bundle.load())
