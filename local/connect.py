"""From arguments to an attached session. What is slow and independent (network, imports, bundle) runs at the same time."""

from __future__ import annotations

import asyncio
import getpass
import importlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ccb.tunnel.errors import Unreachable
from ccb.tunnel.link import Link, new_nonce
from ccb.tunnel.local import LocalTransport
from ccb.tunnel.pipe import Transport
from ccb.tunnel.wire import SessionOptions

from .arguments import Arguments
from .session import Session
from .stdio import in_thread

if TYPE_CHECKING:
    from ccb.tunnel.login import Prompts

    from .parts import Parts
    from .settings import Settings

log = logging.getLogger(__name__)

SECRET_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS")
"""Variables that a worker on this machine must not inherit: its tools would see them."""


@dataclass(frozen=True)
class Connected:
    """An attached session and what its clients show of it. `host` is the name the person used."""

    session: Session
    host: str
    options: SessionOptions
    warnings: tuple[str, ...]


@asynccontextmanager
async def connect_session(
    arguments: Arguments, *, session_id: str, prompts: Prompts, environ: Mapping[str, str] = os.environ
) -> AsyncIterator[Connected]:
    """Connect, deploy, attach; on leaving, close the connection (the session on the host goes on unless it was stopped).

    Without a credential nothing is connected. Raises CcbError.
    """
    async with AsyncExitStack() as stack:
        loading = asyncio.create_task(in_thread(lambda: _load(environ, ssh=_over_ssh(arguments))), name="load")
        stack.push_async_callback(_finished, loading)
        if not _has_environ_credential(environ):
            await (await loading).credential.get()
        transport = await _open_transport(arguments, prompts, environ, loading)
        stack.push_async_callback(transport.close)
        parts = await loading
        from ccb.deploy.bootstrap import launch

        from .credentials import api_key_source

        source = api_key_source((await parts.credential.get()).source)
        options = session_options(arguments, parts.settings, api_key_source=source)
        parameters = {"session": session_id, "cwd": arguments.directory or "", "create": True, "fresh": True}
        launched = await launch(transport, parameters, parts.bundle)
        link = await stack.enter_async_context(Link(launched.pipe, launched.rest, host=transport.name))
        hello = await link.hello()
        log.info("hello from worker pid %d, bundle %s", hello.pid, "uploaded" if launched.uploaded else "cached")
        nonce = new_nonce()
        calls = await stack.enter_async_context(parts.model_calls(link, nonce))
        await link.attach(nonce=nonce, options=options.to_json(), streams=calls)
        session = await stack.enter_async_context(Session(link, hello))
        log.info("attached to session %s on %s, worker pid %d", session_id, transport.name, hello.pid)
        yield Connected(session, host_name(arguments), options, parts.warnings)


def host_name(arguments: Arguments) -> str:
    """How the person called the host."""
    return arguments.target.login if arguments.target else "local"


def session_options(arguments: Arguments, settings: Settings, *, api_key_source: str = "none") -> SessionOptions:
    """What the session is started with: flags first, then the settings."""
    mode = arguments.permission_mode or settings.permissionMode or "default"
    if arguments.dangerously_skip_permissions:
        mode = "bypassPermissions"
    asks = arguments.permission_prompt_tool == "stdio" or not arguments.headless
    return SessionOptions(
        model=arguments.model or settings.model,
        permission_mode=mode,
        permission_prompts="stdio" if asks else "none",
        allow_bypass=mode == "bypassPermissions",
        allowed_tools=[*settings.permissions.allow, *arguments.allowed_tools],
        disallowed_tools=[*settings.permissions.deny, *arguments.disallowed_tools],
        system_prompt=arguments.system_prompt,
        append_system_prompt=arguments.append_system_prompt,
        max_turns=arguments.max_turns,
        add_dirs=list(arguments.add_dirs),
        partial_messages=arguments.include_partial_messages or not arguments.headless,
        replay_user_messages=arguments.replay_user_messages,
        api_key_source=api_key_source,
        client=_who(),
        host=host_name(arguments),
    )


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} pid {os.getpid()}"


def _has_environ_credential(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("ANTHROPIC_API_KEY", "").strip() or environ.get("ANTHROPIC_AUTH_TOKEN", "").strip())


async def _open_transport(
    arguments: Arguments, prompts: Prompts, environ: Mapping[str, str], loading: asyncio.Task[Parts]
) -> Transport:
    if arguments.target is None or not _over_ssh(arguments):
        return LocalTransport({name: value for name, value in environ.items() if name not in SECRET_VARIABLES})
    from ccb.tunnel import ssh
    from ccb.tunnel.ssh_config import SshTarget

    target = SshTarget(
        arguments.target.host,
        arguments.target.user,
        arguments.port,
        tuple(arguments.identities),
        tuple(arguments.ssh_options),
    )
    connecting = asyncio.create_task(ssh.connect(target, prompts), name="connect")
    try:
        settings = (await loading).settings
        limit = settings.connectTimeoutSeconds if "connectTimeoutSeconds" in settings.model_fields_set else None
        async with asyncio.timeout(limit if arguments.headless else None):
            return await connecting
    except TimeoutError:
        raise Unreachable(
            f"no connection to {arguments.target.login} within {limit:g} s",
            do="Check the host, or raise connectTimeoutSeconds in the settings.",
        ) from None
    finally:
        await _finished(connecting)


async def _finished(task: asyncio.Task[object]) -> None:
    if not task.done():
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _over_ssh(arguments: Arguments) -> bool:
    return arguments.target is not None and not arguments.local


def _load(environ: Mapping[str, str], *, ssh: bool) -> Parts:
    """Imports compete for one lock: what the handshake waits for goes first, the rest fills its round trips."""
    if ssh:
        importlib.import_module("asyncssh")
    from .parts import load_parts

    return load_parts(environ)
