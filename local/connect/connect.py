"""From arguments to an attached session. What is slow and independent (network, imports, bundle) runs at the same time."""

from __future__ import annotations

import asyncio
import getpass
import importlib
import logging
import os
import posixpath
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ccb.tunnel.errors import Dropped, NoSuchSession, Unreachable, UsageError
from ccb.tunnel.link.backoff import waits
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire import SessionOptions

from ..command_line.arguments import Arguments
from ..command_line.resume_hint import resume_command
from ..command_line.transport_choice import Way, open_way, shown_host, way_of
from ..login.unattended_login import log_in_quietly
from ..session.connection import Terms
from ..session.session import FIRST_TRIES, Session
from ..terminal.stdio import in_thread
from .loading import Loading, T

if TYPE_CHECKING:
    from ccb.deploy.bundle import Bundle
    from ccb.tunnel.login.prompter import Prompts

    from ..config.settings import Settings
    from .basics import Basics
    from .dial import Dialer
    from .parts import Parts
    from .session_list import SessionRow

log = logging.getLogger(__name__)

HEADLESS_PATIENCE = 600.0
"""Seconds a headless run tries to reconnect when --reconnect-timeout does not say."""

SCREEN_TAIL = 256 * 1024
"""Bytes of events that a fresh terminal takes of a session that exists; it loads older ones on demand."""

LATER_TAIL = 4 * 1024 * 1024
"""Bytes of events that a terminal takes after a reconnect before it prefers a snapshot."""

NOTHING = 1
"""Tail of a headless run that resumes: what is open, and what comes."""

Choose = Callable[[Sequence["SessionRow"]], Awaitable[str | None]]
"""Asks the person for one of the sessions; None when they gave up."""


@dataclass(frozen=True)
class Connected:
    """An attached session and what its clients show of it. `host` is the name the person used, `resume` the command that
    comes back to it."""

    session: Session
    host: str
    options: SessionOptions
    warnings: tuple[str, ...]
    resume: str


@asynccontextmanager
async def connect_session(
    arguments: Arguments,
    *,
    session_id: str,
    prompts: Prompts,
    choose: Choose | None = None,
    environ: Mapping[str, str] = os.environ,
) -> AsyncIterator[Connected]:
    """Connect, deploy, attach, and stay attached over lost connections; on leaving, close the connection (the session on the
    host goes on unless it was stopped). `session_id` is that of a new session; `choose` picks one of those on the host.

    Without a credential nothing is connected. Raises CcbError.
    """

    async def log_in(ask: bool) -> Transport:
        def way(person: Prompts) -> Awaitable[Transport]:
            return open_transport(arguments, person, environ, loading)

        return await (way(prompts) if ask else log_in_quietly(way, prompts, host_name(arguments)))

    async with AsyncExitStack() as stack:
        loading = await stack.enter_async_context(_loading(arguments, lambda: _parts(environ)))
        if not _has_environ_credential(environ):
            loading.begin()
            await (await loading.loaded()).credential.get()
        transport = await first_transport(arguments, prompts, environ, loading)
        try:
            parts = await loading.loaded()
            dialer, proxy = parts.dialer(transport, log_in)
        except BaseException:
            await transport.close()
            raise
        stack.push_async_callback(dialer.aclose)
        await stack.enter_async_context(proxy)
        dialer.parameters = await session_parameters(
            arguments,
            session_id,
            parts.settings,
            lambda: _choose(arguments, dialer, parts.bundle, choose),
        )
        from ..config.credentials import api_key_source

        source = api_key_source((await parts.credential.get()).source)
        options = session_options(arguments, parts.settings, api_key_source=source)
        wanted = dialer.parameters
        terms = Terms(
            options=options.to_json() if wanted.get("create") else options_again(arguments, options),
            who=options.client,
            role="viewer" if arguments.view else "driver",
            tail=0 if wanted.get("create") else NOTHING if arguments.headless else SCREEN_TAIL,
            later_tail=0 if arguments.headless else LATER_TAIL,
            patience=_patience(arguments, parts.settings),
            resume=resume_command(arguments, str(wanted["session"])) if "session" in wanted else "",
            can_ask=not arguments.headless,
        )
        session = await stack.enter_async_context(Session(dialer.dial, terms))
        watching = asyncio.create_task(_watch_surroundings(session), name="surroundings")
        stack.push_async_callback(_finished, watching)
        hello = session.hello
        log.info("attached to session %s on %s, worker pid %d", hello.session, transport.name, hello.pid)
        resume = resume_command(arguments, hello.session, directory=hello.cwd)
        session.come_back_with(resume)
        warnings = (*parts.warnings, *_elsewhere(arguments, hello.cwd))
        yield Connected(session, host_name(arguments), options, warnings, resume)


def _elsewhere(arguments: Arguments, cwd: str) -> tuple[str, ...]:
    """What to say when the session that was named works in another directory than the one that was named."""
    asked = arguments.directory or ""
    if arguments.resume is None or not asked.startswith("/") or posixpath.normpath(asked) == cwd:
        return ()
    return (f"this session works in {neutralise(cwd)}, not in {asked}",)


async def _watch_surroundings(session: Session) -> None:
    from ccb.tunnel.link.wake import changes

    async for reason in changes():
        session.doubt(reason)


@asynccontextmanager
async def load_connection(
    arguments: Arguments, prompts: Prompts, environ: Mapping[str, str]
) -> AsyncIterator[tuple[Transport, Bundle]]:
    """A connection to the host for its commands, and the worker that does them. No credential is needed. Raises CcbError."""
    async with AsyncExitStack() as stack:
        loading = await stack.enter_async_context(_loading(arguments, lambda: _basics(environ)))
        transport = await first_transport(arguments, prompts, environ, loading)
        stack.push_async_callback(transport.close)
        yield transport, (await loading.loaded()).bundle


async def session_parameters(
    arguments: Arguments, session_id: str, settings: Settings, pick: Callable[[], Awaitable[str]]
) -> dict[str, object]:
    """What the worker is asked for: a new session, one that exists, or a copy of one. `pick` asks which."""
    life: dict[str, object] = {"cwd": arguments.directory or ""}
    if "graceHours" in settings.model_fields_set:
        life["grace_s"] = settings.graceHours * 3600
    if "idleMinutes" in settings.model_fields_set:
        life["idle_s"] = settings.idleMinutes * 60
    fork = {"session": session_id, "fresh": True} if arguments.fork_session else {}
    if arguments.continue_latest:
        return {**life, "continue": True, **({"fork": True, **fork} if fork else {})}
    if arguments.resume is not None:
        chosen = arguments.resume or await pick()
        return {**life, "fork_of": chosen, **fork} if fork else {**life, "session": chosen, "create": False}
    return {**life, "session": session_id, "create": True, "fresh": True}


async def _choose(arguments: Arguments, dialer: Dialer, bundle: Bundle, choose: Choose | None) -> str:
    """The session the person means; `attach` prefers those that run, and takes the only one unasked."""
    from .session_list import list_sessions

    rows = await list_sessions(await dialer.transport(ask=True), bundle)
    if not rows:
        host = host_name(arguments)
        raise NoSuchSession(f"{host}: there are no sessions on this host", do="`ccb ssh HOST:/path` starts one.")
    if arguments.command == "attach":
        rows = [row for row in rows if row.alive] or rows
        if len(rows) == 1:
            return rows[0].session
    chosen = await choose(rows) if choose is not None else None
    if chosen is None:
        raise UsageError("no session was chosen", do="Give its ID: --resume ID (`ccb ps HOST` lists them).")
    return chosen


def _patience(arguments: Arguments, settings: Settings) -> float:
    if arguments.reconnect_timeout is not None:
        return arguments.reconnect_timeout
    return HEADLESS_PATIENCE if arguments.headless else settings.graceHours * 3600


def host_name(arguments: Arguments) -> str:
    """How the person called the host."""
    return shown_host(arguments)


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


def options_again(arguments: Arguments, options: SessionOptions) -> dict[str, object]:
    """What a session that exists is told: the settings name model and mode of new sessions only, a flag always counts."""
    given: dict[str, object] = options.to_json()
    for name, flag in (
        ("model", arguments.model),
        (
            "permission_mode",
            "bypassPermissions" if arguments.dangerously_skip_permissions else arguments.permission_mode,
        ),
    ):
        given.pop(name, None)
        if flag is not None:
            given[name] = flag
    return given


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} pid {os.getpid()} {secrets.token_hex(3)}"


def _has_environ_credential(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("ANTHROPIC_API_KEY", "").strip() or environ.get("ANTHROPIC_AUTH_TOKEN", "").strip())


async def first_transport(
    arguments: Arguments, prompts: Prompts, environ: Mapping[str, str], loading: Loading[Basics]
) -> Transport:
    """`open_transport`, tried again when the connection broke off in the middle: a network, or a server that is just too busy
    (MaxStartups). What is refused is not tried again."""
    delays = waits()
    for number in range(2, FIRST_TRIES + 1):
        try:
            return await open_transport(arguments, prompts, environ, loading)
        except Dropped as error:
            log.info("the first connection: %s", error)
            prompts.banner(f"{error.what}; trying again ({number} of {FIRST_TRIES})")
            await asyncio.sleep(next(delays))
    return await open_transport(arguments, prompts, environ, loading)


async def open_transport(
    arguments: Arguments, prompts: Prompts, environ: Mapping[str, str], loading: Loading[Basics]
) -> Transport:
    """The way to the host. Raises CcbError."""
    if way_of(arguments) is Way.HERE:
        loading.begin()
        return await open_way(arguments, prompts, environ)
    began = asyncio.get_running_loop().time()
    connecting = asyncio.create_task(open_way(arguments, prompts, environ, loading.begin), name="connect")
    connecting.add_done_callback(lambda _: loading.begin())
    try:
        settings = (await loading.loaded()).settings
        limit = settings.connectTimeoutSeconds if "connectTimeoutSeconds" in settings.model_fields_set else None
        try:
            async with asyncio.timeout_at(began + limit if limit is not None and arguments.headless else None):
                return await connecting
        except TimeoutError:
            raise Unreachable(
                f"no connection to {host_name(arguments)} within {limit:g} s",
                do="Check the host, or raise connectTimeoutSeconds in the settings.",
            ) from None
    except BaseException:
        await _finished(connecting)
        if not connecting.cancelled() and connecting.exception() is None:
            await connecting.result().close()  # made, and nobody's
        raise


async def _finished(task: asyncio.Task[object]) -> None:
    if not task.done():
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _loading(arguments: Arguments, load: Callable[[], T]) -> Loading[T]:
    """`load` in a thread. Imports compete for one lock: what the handshake waits for goes first, the rest fills its round trips."""
    ssh = way_of(arguments) is Way.ASYNCSSH

    def work() -> T:
        if ssh:
            importlib.import_module("asyncssh")
        return load()

    return Loading(lambda: in_thread(work))


def _parts(environ: Mapping[str, str]) -> Parts:
    from .parts import load_parts

    return load_parts(environ)


def _basics(environ: Mapping[str, str]) -> Basics:
    from .basics import load_basics

    return load_basics(environ)
