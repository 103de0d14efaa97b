"""Load what a connection needs while the network is busy; nothing slow is imported at the top."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from ccb.tunnel.errors import ConnectionLost, UsageError
from ccb.tunnel.heavy_imports import collection_paused
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.model_facts import ALIASES, ModelTable, may_be_model

from ..command_line.option_values import nearest
from ..command_line.transport_choice import host_key
from ..config.log import state_dir
from ..config.policy import ledger_folder
from ..terminal.stdio import in_thread

if TYPE_CHECKING:
    from ccb.deploy.bundle import Bundle
    from ccb.tunnel.providers.model_router import ModelRouter
    from ccb.tunnel.proxy.auth_proxy import AuthProxy
    from ccb.tunnel.transports.login_prompts import Prompts

    from ..command_line.arguments import Arguments
    from ..config.settings import Settings, SettingsChoice
    from ..credentials.credential_sources import StoredCredentials
    from ..ledger.budgets import LedgerThread
    from ..ledger.proxy_control import ProxyControl


T = TypeVar("T")
DAY_S = 24 * 3600.0
_EXPORT = "ccb.local.telemetry.otlp_export"
_QUICK_LOGIN_S = 0.25  # longer than it takes to load asyncssh and to log in to a host nearby
_NEEDED_NEXT = (
    *("ccb.local.connect.laptop_services", "ccb.tunnel.proxy.auth_proxy"),
    *("ccb.local.ledger.audit", "ccb.local.ledger.proxy_control", "ccb.local.providers.known_models"),
    *("ccb.local.session.remote_session", "ccb.local.connect.project_trust", "ccb.local.session.own_hooks"),
    "ccb.local.connect.session_request",
)
"""What a session imports once it is connected. It is loaded earlier, while the network is busy."""


@dataclass(frozen=True)
class LoadedBasics:
    settings: Settings
    bundle: Bundle


@dataclass(frozen=True)
class SessionStartup(LoadedBasics):
    """What a session needs in addition: the model provider, the stored accounts, and what is known of models."""

    provider: ModelRouter
    stored: StoredCredentials
    models: ModelTable


def load_startup(environ: Mapping[str, str], choice: SettingsChoice) -> LoadedBasics:
    """Read the settings that `choice` names, build the bundle or read it from the cache, and import what starts a
    worker. Raises ConfigError."""
    from ccb.deploy import bundle

    from ..config.settings_loading import load_settings

    importlib.import_module("ccb.local.connect.dialer")
    return LoadedBasics(load_settings(environ, choice), bundle.load())


def loaded_once() -> Callable[[Mapping[str, str], SettingsChoice], LoadedBasics]:
    """Return a loader that reads the bundle once for all hosts, and the settings once for each choice of them."""
    kept: dict[SettingsChoice, LoadedBasics] = {}
    lock = Lock()

    def load(environ: Mapping[str, str], choice: SettingsChoice) -> LoadedBasics:
        with lock:
            if choice not in kept:
                basics, first = load_startup(environ, choice), next(iter(kept.values()), None)
                kept[choice] = replace(basics, bundle=first.bundle) if first is not None else basics
            return kept[choice]

    return load


def load_session_startup(
    environ: Mapping[str, str],
    basics: LoadedBasics,
    models: Sequence[str | None] = (),
    prompts: Prompts | None = None,
    host: str = "",
    agent: str = "",
) -> SessionStartup:
    """Load the providers of `models` and `agent` (of the command line), and import what a session needs later."""
    from ..credentials.credential_sources import StoredCredentials
    from ..providers.session_provider import session_provider

    for module in _NEEDED_NEXT:
        importlib.import_module(module)
    settings = basics.settings
    if settings.telemetry_receiver(environ) is not None:
        with suppress(ImportError, ValueError):  # said by `open_proxy`
            importlib.import_module(_EXPORT)
    others = (*(without_alias(settings, each) for each in models[1:]), settings.smallModel)
    stored = StoredCredentials(environ, settings=settings, prompts=prompts, host=host)
    model = chosen_model(settings, next(iter(models), None))
    table = ModelTable()
    provider = session_provider(environ, settings, model, *others, stored=stored, table=table, agent=agent)
    return SessionStartup(settings, basics.bundle, provider, stored, table)


async def open_proxy(
    arguments: Arguments,
    startup: SessionStartup,
    environ: Mapping[str, str],
    stack: AsyncExitStack,
    ledger: LedgerThread | None = None,
) -> tuple[AuthProxy, ProxyControl]:
    """Return an auth proxy, and what controls it. `stack` closes it, its accounts and its audit. `ledger`: of many
    sessions."""
    from ccb.tunnel.proxy.auth_proxy import AuthProxy

    from ..ledger.audit import SessionAudit
    from ..ledger.budgets import SessionAccounts, budgets
    from ..ledger.proxy_control import ProxyControl, Warnings, call_policy

    warnings = Warnings()
    host = host_key(arguments.connection)
    policy = startup.settings.policy
    state = ledger_folder(environ)
    spending = budgets(arguments.sdk.max_budget_usd, startup.settings, host, arguments.fleet)
    if policy.ledgerCommand:
        from ..ledger.forwarding import forwarding

        await stack.enter_async_context(forwarding(state, policy.ledgerCommand, warnings))
    telemetry = None
    if startup.settings.telemetry_receiver(environ) is not None:
        try:
            from ..telemetry.otlp_export import exporting

            telemetry = await stack.enter_async_context(exporting(startup.settings, environ, warnings))
        except ImportError:
            if startup.settings.otel.endpoint:  # variables may be meant for other programs
                warnings("No telemetry is sent: it needs more packages (pip install 'ccb[otel]').")
        except ValueError as error:  # of the SDK, which reads variables
            why = one_line(str(error)).rstrip(".")
            warnings(f"No telemetry is sent: {why}. Correct the variables OTEL_….")
    measured = telemetry.call_ended if telemetry is not None else lambda _: None
    decided = telemetry.decided if telemetry is not None else lambda _: None
    accounts = SessionAccounts(state, spending, startup.models, warnings, ledger, measured)
    asked = arguments.agent.record and not startup.settings.is_managed("recordModelCalls")
    record = asked or startup.settings.recordModelCalls
    audit = SessionAudit(state, warnings, record=record, shared=ledger, decided=decided)
    if policy.retentionDays is not None:
        audit.forget(policy.retentionDays * DAY_S, state_dir(environ))
    limits = call_policy(startup.settings, host)
    proxy = AuthProxy(startup.provider, limits, accounts=accounts, auditor=audit, models=startup.models, warn=warnings)
    await stack.enter_async_context(accounts)
    await stack.enter_async_context(audit)
    await stack.enter_async_context(proxy)
    return proxy, ProxyControl(proxy, accounts, audit, warnings, telemetry)


def chosen_model(settings: Settings, flag: str | None) -> str | None:
    """Return the model of a new session: the flag outranks the settings, unless a policy sets it."""
    return without_alias(settings, settings.model if settings.is_managed("model") else flag or settings.model)


def without_alias(settings: Settings, model: str | None) -> str | None:
    """Return what one of the person's short names stands for. Raise UsageError for a word that is no model."""
    if not model:
        return model
    found = settings.modelAliases.get(model, model)
    if not may_be_model(found):
        names = [*settings.modelAliases, *ALIASES]
        near = nearest(found.lower(), names)
        do = f"Did you mean {near[0]}?" if near else f"It is {', '.join(names)}, or the full id of a model."
        raise UsageError(f"{found[:100]!r} is no model", do=do)
    return found


class StartupLoader:
    """Loads the basics, with which the worker can be started, once `start` is called. Close it."""

    def __init__(self, basics: Callable[[], LoadedBasics]) -> None:
        self._started = asyncio.Event()
        self._basics = asyncio.create_task(self._load(basics), name="load")

    async def aclose(self) -> None:
        await cancelled(self._basics)

    def start(self) -> None:
        self._started.set()

    async def loaded(self) -> LoadedBasics:
        """Wait until `start` was called and the load has ended; return its result or raise its error."""
        await asyncio.wait((self._basics,))
        if self._basics.cancelled():
            raise ConnectionLost("the connection to the host was closed during the login")
        return self._basics.result()

    async def _load(self, load: Callable[[], LoadedBasics]) -> LoadedBasics:
        await self._started.wait()
        return await load_in_thread(load)


class SessionLoader(AbstractAsyncContextManager["SessionLoader"]):
    """Loads the `rest` of what a session needs. It competes with the login for one interpreter: it is loaded when
    somebody asks for it, or when the login takes long. Use as a context manager."""

    def __init__(
        self,
        start: Callable[[], None],
        basics: Coroutine[Any, Any, LoadedBasics],
        rest: Callable[[LoadedBasics], SessionStartup],
    ) -> None:
        self._start = start
        self._asked = asyncio.Event()
        self._basics = asyncio.create_task(basics, name="load")
        self._rest = asyncio.create_task(self._load_rest(rest), name="load the rest")

    async def __aexit__(self, *_: object) -> None:
        await cancelled(self._basics, self._rest)

    async def loaded(self) -> LoadedBasics:
        await asyncio.wait((self._basics,))
        return self._basics.result()

    async def all(self) -> SessionStartup:
        """Return what a session needs. Raise what prevents it: ConfigError, CredentialError."""
        self._start()
        self._asked.set()
        await asyncio.wait((self._rest,))
        return self._rest.result()

    async def _load_rest(self, load: Callable[[LoadedBasics], SessionStartup]) -> SessionStartup:
        await self.loaded()
        with suppress(TimeoutError):
            async with asyncio.timeout(_QUICK_LOGIN_S):
                await self._asked.wait()
        basics = await self.loaded()  # in these turns of the loop, what starts the worker is sent: it goes first
        return await load_in_thread(lambda: load(basics))


async def load_in_thread(load: Callable[[], T]) -> T:
    def paused() -> T:
        with collection_paused():
            return load()

    return await in_thread(paused)
