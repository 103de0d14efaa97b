"""Open the transport to the host while this machine loads what the connection needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ccb.tunnel.errors import Dropped, Unreachable
from ccb.tunnel.link.backoff import waits
from ccb.tunnel.loading import collection_paused
from ccb.tunnel.transports.pipe import Transport

from ..command_line.model import Arguments
from ..command_line.transport_choice import TransportKind, host_label, open_chosen_transport, transport_kind
from ..config.settings_loading import load_sharing
from ..session.connection import FIRST_TRIES
from ..terminal.stdio import in_thread
from .startup import SessionStartup, Startup, StartupLoader, T

if TYPE_CHECKING:
    from ccb.tunnel.login.prompter import Prompts
    from ccb.tunnel.openssh.sharing import Sharing

log = logging.getLogger(__name__)

_QUICK_LOGIN_S = 0.25
"""Longer than it takes to load asyncssh and to log in to a host nearby."""


def startup_loader(load: Callable[[], T]) -> StartupLoader[T]:
    """Return a loader that runs `load` in a thread."""
    return StartupLoader(lambda: _in_paused_thread(load))


class SessionLoading:
    """Loads what a session needs in two steps: `basics`, with which the worker can be started, and the rest, which
    nobody waits for before the worker is on its way.

    Loading competes with the login for one interpreter, so the rest begins only when somebody asks for it, or when the
    login takes so long that it must wait for the network. Use as a context manager.
    """

    def __init__(self, basics: Callable[[], Startup], rest: Callable[[Startup], SessionStartup]) -> None:
        self._load_basics = basics
        self._load_rest = rest
        self.basics = StartupLoader(self._basics)
        self._rest = StartupLoader(self._session)

    async def __aenter__(self) -> SessionLoading:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._rest.close()
        await self.basics.close()

    async def all(self) -> SessionStartup:
        """Return what a session needs. Raise what prevents it: ConfigError, CredentialError."""
        self.basics.start()
        self._rest.start()
        return await self._rest.loaded()

    async def _basics(self) -> Startup:
        basics = await _in_paused_thread(self._load_basics)
        asyncio.get_running_loop().call_later(_QUICK_LOGIN_S, self._rest.start)
        return basics

    async def _session(self) -> SessionStartup:
        basics = await self.basics.loaded()
        return await _in_paused_thread(lambda: self._load_rest(basics))


async def _in_paused_thread(load: Callable[[], T]) -> T:
    def work() -> T:
        with collection_paused():
            return load()

    return await in_thread(work)


async def first_transport(
    arguments: Arguments,
    prompts: Prompts,
    environ: Mapping[str, str],
    startup: StartupLoader[Startup],
    sharing: Sharing | None = None,
) -> Transport:
    """Return what `open_transport` returns. Try again if the connection breaks off in the middle.

    The network may do that, and so does a busy server (MaxStartups). A refusal is final. Raises CcbError.
    """
    delays = waits()
    for number in range(2, FIRST_TRIES + 1):
        try:
            return await open_transport(arguments, prompts, environ, startup, sharing)
        except Dropped as error:
            log.info("the first connection: %s", error)
            prompts.banner(f"{error.what}; trying again ({number} of {FIRST_TRIES})")
            await asyncio.sleep(next(delays))
    return await open_transport(arguments, prompts, environ, startup, sharing)


async def open_transport(
    arguments: Arguments,
    prompts: Prompts,
    environ: Mapping[str, str],
    startup: StartupLoader[Startup],
    sharing: Sharing | None = None,
) -> Transport:
    """Connect to the host and return the transport. Start the loader as soon as the network is busy.

    `sharing` says which connections may be shared (None: those that the settings allow).
    The settings may limit how long a headless run takes to connect. Raises CcbError, including that of the loader.
    """
    connection = arguments.connection
    if transport_kind(connection) is TransportKind.LOCAL:
        startup.start()
        return await open_chosen_transport(connection, prompts, environ)
    began = asyncio.get_running_loop().time()
    from .hosts.past_logins import past_logins

    past = past_logins(connection, environ)
    sharing = sharing or load_sharing(environ)
    opening = open_chosen_transport(connection, prompts, environ, startup.start, past, sharing)
    connecting = asyncio.create_task(opening, name="connect")
    connecting.add_done_callback(lambda _: startup.start())
    try:
        settings = (await startup.loaded()).settings
        limit = settings.connectTimeoutSeconds if "connectTimeoutSeconds" in settings.given else None
        try:
            async with asyncio.timeout_at(began + limit if limit is not None and arguments.headless else None):
                return await connecting
        except TimeoutError:
            raise Unreachable(
                f"no connection to {host_label(connection)} within {limit:g} s",
                do="Check the host, or raise connectTimeoutSeconds in the settings.",
            ) from None
    except BaseException:
        await cancelled(connecting)
        if not connecting.cancelled() and connecting.exception() is None:
            await connecting.result().close()  # the transport was made, but nobody will use it
        raise


async def cancelled(task: asyncio.Task[object]) -> None:
    """Cancel a task on leaving, and wait for its end. Its error is not raised."""
    if not task.done():
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
