"""Connect to a host and attach to a session, as the arguments say."""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CredentialError, NoCredential, NoSuchSession, UsageError
from ccb.tunnel.link.link import Greeting
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.control_protocol import TRUST_PROJECT, new_uuid
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.model_facts import may_be_model
from ccb.tunnel.wire.outside_messages import GROUP_SERVER
from ccb.tunnel.wire.session_options import SessionOptions

from ..command_line.arguments import Arguments
from ..command_line.transport_choice import host_key, host_label, public_host, resume_command
from ..config import policy as policies
from ..config.settings import settings_choice
from ..session.dialing import AttachOptions
from . import session_request as requests
from . import startup as starting
from .host_connection import HostConnection

if TYPE_CHECKING:
    from ..ledger.proxy_control import ProxyControl
    from ..mcp.mcp_config import ServerConfig
    from ..mcp.mcp_service import LaptopServers
    from ..ports.port_forwards import PortForwards
    from ..providers.known_models import OfferedModels
    from ..session.own_hooks import NotificationHooks
    from ..session.remote_session import RemoteSession
    from ..terminal.shell_relay import PersonShells
    from .dialer import Dialer, FileConnection
    from .host_sessions import HostSessions
    from .project_trust import ProjectDesk
    from .session_rows import SessionRow


log = logging.getLogger(__name__)

SCREEN_TAIL = 256 * 1024
"""Bytes of events that a new terminal asks for when the session exists; it loads older ones on demand."""

RECONNECT_TAIL = 4 * 1024 * 1024
"""Bytes of events that a terminal takes after a reconnect; if it missed more, it asks for a snapshot."""

HEADLESS_TAIL = 1
"""Bytes of events for a headless run that resumes a session: it needs only open questions and new events."""

_ASKED = """\
ccb: {}
  The key stays on this machine: no host ever gets it.
  `ccb help credentials` has other ways to give one, `ccb help models` other providers."""

Choose = Callable[["HostSessions", Sequence["SessionRow"]], Awaitable[str | None]]
"""Asks the person to choose one of the sessions of a host and returns its ID, or None if they gave up."""


@dataclass(frozen=True)
class OpenSession:
    """`resume` is the command that returns to it, `files` lends its connection, `revoke` ends its model calls. `log_in`
    asks for the key of a provider, or of that of a model; it returns what to tell the person, "" without a key.
    `arguments` lead into the container of its folder, if they asked for that."""

    session: RemoteSession
    host: str
    options: SessionOptions
    warnings: tuple[str, ...]
    resume: str
    projects: ProjectDesk
    sessions: HostSessions
    files: FileConnection
    notifications: NotificationHooks
    notify: str = "auto"
    open_with: str = ""
    mcp: LaptopServers | None = None
    revoke: Callable[[], None] = lambda: None
    models: OfferedModels | None = None
    ports: PortForwards | None = None
    arguments: Arguments = Arguments()
    log_in: Callable[[str, str], Awaitable[str]] | None = None
    shells: PersonShells | None = None


@asynccontextmanager
async def connect_session(
    host: HostConnection, arguments: Arguments, *, choose: Choose | None = None, tail: int | None = None
) -> AsyncIterator[OpenSession]:
    """Deploy, attach, and stay attached over lost connections. Leaving keeps the connection of `host`. `choose` picks
    an existing session. `tail`: a program reads so many bytes of earlier events (0: all), and all later ones; nobody
    can be asked to log in again. Raises CcbError."""
    environ, session_id = host.environ, arguments.session.session_id or new_uuid()
    async with AsyncExitStack() as stack:
        given = arguments
        arguments, not_taken = await host.placed(given)
        key = host_key(arguments.connection)
        models = (arguments.agent.model, arguments.sdk.fallback_model)
        loader = starting.SessionLoader(
            host.loader.start,
            host.startup(arguments),
            lambda basics: starting.load_session_startup(
                environ, basics, models, host.prompts, key, requests.chosen_agent(arguments, basics.settings)
            ),
        )
        await stack.enter_async_context(loader)
        if _is_checked_first(models, environ):
            await _credential_name(arguments, await loader.all(), environ)
        dialer, basics = await dialer_to(host, stack, loader.loaded)
        parameters = await requests.session_parameters(
            arguments, session_id, basics.settings, lambda: _choose(arguments, dialer, basics, choose)
        )
        dialer.begin(parameters)
        new = bool(parameters.get("create"))
        startup = await loader.all()
        settings = startup.settings
        proxy, proxy_desk = await starting.open_proxy(arguments, startup, environ, stack, host.ledger)
        from ..config.project_records import Projects
        from ..ledger.call_ledger import CallPlace
        from ..ledger.proxy_control import control_server
        from ..ports.port_forwards import PortForwards, asks_reader
        from ..providers.known_models import OfferedModels, refresh_lists
        from ..session.own_hooks import NotificationHooks
        from ..session.remote_session import RemoteSession
        from ..terminal.shell_relay import PersonShells
        from .dialer import FileConnection
        from .host_sessions import HostSessions
        from .laptop_services import open_services
        from .project_trust import ProjectDesk

        asked = await _asked(arguments, startup, environ, proxy_desk, key, new=new)
        known = str(parameters.get("session") or session_id)
        first = new and not arguments.session.begun
        proxy_desk.serves(CallPlace(known, key, arguments.directory or ""), new=first)
        desk = ProjectDesk(arguments, settings, Projects(environ))
        attach = _attach_options(given, arguments, startup, asked.options, parameters, desk, tail)
        session = await stack.enter_async_context(RemoteSession(partial(dialer.dial, proxy), attach))
        session.register(TRUST_PROJECT, partial(desk.answer, session))
        public = public_host(arguments.connection)
        proxy_desk.tell(session, public)
        hooks = policies.own_hooks(settings)
        group = None
        if arguments.agent.group is not None:
            from ..mcp.session_group import GroupMember

            group = GroupMember(
                arguments.agent.group, public, session, environ, lambda: proxy_desk.state().revoked, host.members
            )
            await stack.enter_async_context(group.reachable())
        mcp = await open_services(
            arguments, startup, asked.options, desk, session, asked.servers, group, hooks, new=new, stack=stack
        )
        asking = refresh_lists(asked.models or ["default"], environ, settings, startup.stored, after_s=5.0)
        for name, work in (("network watch", _watch_network(session)), ("lists of models", asking)):
            stack.push_async_callback(cancelled, asyncio.create_task(work, name=name))
        hello = session.hello
        proxy_desk.serves(CallPlace(requests.counted_session(parameters, hello.session), key, hello.cwd.raw))
        await stack.enter_async_context(control_server(environ, proxy_desk.state, proxy_desk.revoke))
        sessions = HostSessions(lambda: dialer.transport(ask=False), startup)
        if settings.policy.retentionDays is not None:
            stack.push_async_callback(sessions.remove_old, settings.policy.retentionDays * starting.DAY_S)
        shown = host_label(arguments.connection)
        log.info("attached to session %s on %s, worker pid %d", hello.session, shown, hello.pid)
        offers = settings.ports.offer and not arguments.headless
        asks = None if arguments.headless or tail is not None else asks_reader(session, shown)
        forwards = PortForwards(
            session, settings.ports.labels, lambda port: offers and port not in desk.ignored_ports, asks
        )
        ports = await stack.enter_async_context(forwards)
        await ports.take(arguments.ports)
        if asked.options.foreign_agent or not new:  # that of an existing session is known on its host
            from ..ports.agent_relay import agent_relay

            await stack.enter_async_context(agent_relay(session, proxy))
        notifications = NotificationHooks(hooks, f"ccb {shown}")
        stack.push_async_callback(notifications.close)
        yield OpenSession(
            session,
            shown,
            asked.options,
            (*settings.warnings, *not_taken, *asked.warnings, *_other_directory(arguments, hello.cwd)),
            _resume(given, hello),
            desk,
            sessions,
            FileConnection(lambda: session.state, lambda: dialer.current, lambda: host.log_in(ask=False)),
            notifications,
            settings.notify,
            settings.openWith,
            mcp,
            proxy_desk.revoke,
            models=OfferedModels(environ, settings, asked.models, startup.stored, startup.models),
            ports=ports,
            arguments=arguments,
            log_in=partial(_log_in, startup),
            shells=PersonShells(session),
        )


@dataclass(frozen=True)
class _Asked:
    """What a session is asked to be: its options, the models that were named, the MCP servers of the laptop."""

    options: SessionOptions
    models: list[str]
    servers: Mapping[str, ServerConfig]
    warnings: Sequence[str]


async def _asked(
    arguments: Arguments,
    startup: starting.SessionStartup,
    environ: Mapping[str, str],
    proxy_desk: ProxyControl,
    key: str,
    *,
    new: bool,
) -> _Asked:
    """Raises CcbError for what the laptop does not allow or cannot do."""
    from ..config.claude_settings import claude_folder
    from ..credentials.credential_sources import api_key_source
    from ..ledger.proxy_control import check_allowed
    from ..providers import known_models
    from .laptop_services import laptop_servers

    settings, choice = startup.settings, settings_choice(arguments)
    servers, mcp_warnings = await laptop_servers(arguments, settings, environ, startup.stored.secrets)
    folder = claude_folder(environ) if choice.user and settings.importClaudeSettings != "off" else None
    files, left = requests.own_files(folder)
    model = starting.chosen_model(settings, arguments.agent.model) or ""
    named = model if new else starting.without_alias(settings, arguments.agent.model)
    other = starting.without_alias(settings, arguments.sdk.fallback_model)
    chosen = [each for each in (named, other, starting.without_alias(settings, settings.smallModel)) if each]
    not_found = await known_models.check_models(chosen, environ, settings, startup.stored)
    group = arguments.agent.group
    if group is not None:
        policies.check_group(settings.policy, group, servers)
    options = requests.session_options(
        arguments,
        settings,
        api_key_source=api_key_source(await _credential_name(arguments, startup, environ)),
        laptop_mcp=list(servers),
        files=files,
        agents=requests.own_agents(folder),
        models=known_models.model_options(model, [other] if other else [], environ, settings, startup.models),
    )
    if group is not None and not options.foreign_agent:  # nobody is asked about each message: the group was asked for
        allowed = [*options.allowed_tools, f"mcp__{GROUP_SERVER}"]
        options = replace(options, laptop_mcp=[*servers, GROUP_SERVER], allowed_tools=allowed)
    said = known_models.said_at_start(options.model or "", environ, settings, options.effort or "")
    proxy_desk.accounts.check_model(options.model)
    if options.model in chosen:
        check_allowed(known_models.short_names(environ).get(options.model, options.model), settings, key)
    return _Asked(options, chosen, servers, (*said, *not_found, *mcp_warnings, *left))


@asynccontextmanager
async def view_session(
    host: HostConnection, session: str, *, answers: bool = False, ask: bool = True
) -> AsyncIterator[RemoteSession]:
    """Attach to a running session as a viewer; with `answers` as one that may answer what it asks about tools, which
    the audit notes. Without `ask` a login asks nobody. Raises CcbError."""
    from ..ledger.audit import SessionAudit
    from ..ledger.call_ledger import CallPlace
    from ..session.remote_session import RemoteSession

    async with AsyncExitStack() as stack:
        dialer, basics = await dialer_to(host, stack, ask=ask)
        dialer.begin({"session": session, "create": False, "again": True})
        who, patience = requests.client_name(), requests.reconnect_seconds(host.arguments, basics.settings)
        options = AttachOptions({"client": who}, who, "viewer", 1, 1, patience, answers=answers)
        viewed = RemoteSession(lambda known, may_ask: dialer.dial(None, known, may_ask and ask), options)
        if answers:
            audit = SessionAudit(policies.ledger_folder(host.environ), shared=host.ledger)
            audit.place = CallPlace(session, host_key(host.arguments.connection))
            await stack.enter_async_context(audit)
            viewed.watched_by(audit)
        await stack.enter_async_context(viewed)
        if answers:
            policies.check_directory(basics.settings.policy, viewed.hello.cwd.raw)
        yield viewed


async def dialer_to(
    host: HostConnection,
    stack: AsyncExitStack,
    loaded: Callable[[], Awaitable[starting.LoadedBasics]] | None = None,
    *,
    ask: bool = True,
) -> tuple[Dialer, starting.LoadedBasics]:
    """Connect to the host. Return what dials a session there, which `stack` closes, and what was `loaded`."""
    await (host.connected() if ask else host.transport(ask=False))
    basics = await (loaded or host.loader.loaded)()
    from .dialer import Dialer

    dialer = Dialer(host, basics.bundle)
    stack.push_async_callback(dialer.aclose)
    await dialer.transport(ask=ask)
    return dialer, basics


async def _credential_name(arguments: Arguments, startup: starting.SessionStartup, environ: Mapping[str, str]) -> str:
    """Return where the credential comes from. The model of an existing session may be of another provider. Without one,
    the person is asked, if somebody can be."""
    from ..providers.session_provider import has_others, providers_of_agent

    session = arguments.session
    exists = session.continue_latest or session.resume is not None or arguments.command == "attach"
    try:
        return await startup.provider.main.credential_name()
    except CredentialError as error:
        if not arguments.agent.model and exists and has_others(environ, startup.settings):
            return "none"
        if providers_of_agent(requests.chosen_agent(arguments, startup.settings)):
            return "none"  # the agent asks no models of Anthropic
        prompts = startup.stored.prompts
        if not isinstance(error, NoCredential) or not (said := await _log_in(startup, why=_ASKED.format(error.what))):
            raise
        prompts.banner(said)
        return await startup.provider.main.credential_name()


async def _log_in(startup: starting.SessionStartup, provider: str = "", model: str = "", *, why: str = "") -> str:
    from ..credentials.credential_sources import ANTHROPIC
    from ..providers.key_login import log_in

    router = startup.provider
    own = router.name_of(model) if model else router.main.given_name
    return await log_in(provider or own or ANTHROPIC, router, startup.stored, why)


def _attach_options(
    given: Arguments,
    arguments: Arguments,
    startup: starting.SessionStartup,
    options: SessionOptions,
    parameters: Mapping[str, object],
    desk: ProjectDesk,
    tail: int | None,
) -> AttachOptions:
    new, attended = bool(parameters.get("create")), not arguments.headless and tail is None
    if tail is None:
        tail = HEADLESS_TAIL if arguments.headless else SCREEN_TAIL

    async def for_host(hello: Greeting) -> Mapping[str, object]:
        policies.check_directory(startup.settings.policy, hello.cwd.raw)
        option = (await desk.option(hello)).to_json()
        return {"settings": option} if option else {}

    return AttachOptions(
        options=options.to_json() if new else requests.options_for_existing(arguments, startup.settings, options),
        who=options.client,
        role="viewer" if arguments.host_command.view else "driver",
        tail=0 if new else tail,
        later_tail=RECONNECT_TAIL if attended else 0,
        patience=requests.reconnect_seconds(arguments, startup.settings),
        resume=partial(_resume, given),
        can_ask=attended,
        for_host=for_host,
    )


def _resume(given: Arguments, hello: Greeting) -> str:
    """Return the command that returns to a session. In a dev container it finds that again, with its variables."""
    directory = None if given.connection.devcontainer else hello.cwd.raw
    return resume_command(given, hello.session, directory=directory)


def _other_directory(arguments: Arguments, cwd: HostText) -> tuple[str, ...]:
    asked = arguments.directory or ""
    if arguments.session.resume is None or not asked.startswith("/") or posixpath.normpath(asked) == cwd.raw:
        return ()
    return (f"this session works in {cwd.path}, not in {asked}",)


async def _watch_network(session: RemoteSession) -> None:
    from ccb.tunnel.reconnecting import changes

    async for reason in changes():
        session.doubt(reason)


async def _choose(arguments: Arguments, dialer: Dialer, basics: starting.LoadedBasics, choose: Choose | None) -> str:
    """Return the ID of the session that the person means. `attach` offers running ones, and takes a single one."""
    from .host_sessions import HostSessions
    from .session_rows import with_prompts

    sessions = HostSessions(lambda: dialer.transport(ask=True), basics)
    listed = await sessions.listed()
    rows = listed if arguments.command == "attach" else with_prompts(listed)
    if not rows:
        host = host_label(arguments.connection)
        raise NoSuchSession(f"{host}: there are no sessions on this host", do="`ccb ssh HOST:/path` starts one.")
    if arguments.session.newest:
        return rows[0].session
    if arguments.command == "attach":
        rows = [row for row in rows if row.may_run] or rows
        if len(rows) == 1:
            return rows[0].session
    chosen = await choose(sessions, rows) if choose is not None else None
    if chosen is None:
        raise UsageError("no session was chosen", do="Give its ID: --resume ID (`ccb ps HOST` lists them).")
    return chosen


def _is_checked_first(models: Sequence[str | None], environ: Mapping[str, str]) -> bool:
    """Return whether models and credential are to be checked before connecting, which takes time."""
    unclear = any(each and not may_be_model(each) for each in models)
    keys = (environ.get(name, "").strip() for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"))
    return unclear or not any(keys) or "/" in (models[0] or "")
