"""One login to a host, and the one transport that its sessions, copies and host commands share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ccb.tunnel.errors import CcbError, ConnectionLost
from ccb.tunnel.transports.pipe import Transport

from ..command_line.arguments import Arguments
from ..command_line.transport_choice import host_label
from ..config.settings import settings_choice
from . import open_transport as opening
from . import startup as starting

if TYPE_CHECKING:
    from ccb.tunnel.link.link import Link
    from ccb.tunnel.transports.login_prompts import Prompts
    from ccb.tunnel.transports.pipe import Sharing

    from ..config.settings import SettingsChoice
    from ..ledger.budgets import LedgerThread
    from ..mcp.session_group import GroupMember
    from .host_sessions import HostSessions


class HostConnection:
    """Logs in when the transport is first asked for, and once more, whoever asks, when that one is lost. `arguments`
    lead to the host, and into its container once `placed` has found one. `shared` loads for logins what many hosts
    share; sessions never get that, because it may be old. `ledger` is that of the sessions of many hosts, and `members`
    are those of them in groups. `reach` logs in where the arguments alone do not lead. Use with `async with`; the
    sessions end before it does."""

    def __init__(
        self,
        arguments: Arguments,
        prompts: Prompts,
        environ: Mapping[str, str] = os.environ,
        load: Callable[[Mapping[str, str], SettingsChoice], starting.LoadedBasics] = starting.load_startup,
        sharing: Sharing | None = None,
        shared: Callable[[Mapping[str, str], SettingsChoice], starting.LoadedBasics] | None = None,
        ledger: LedgerThread | None = None,
        members: dict[Path, GroupMember] | None = None,
        reach: Callable[[], Awaitable[Transport]] | None = None,
    ) -> None:
        self.arguments = arguments
        self.prompts = prompts
        self.environ = environ
        self.ledger = ledger
        self.members = {} if members is None else members
        self._load, self._load_for_login = partial(load, environ), partial(shared or load, environ)
        self._sharing, self._reach = sharing, reach
        self._loader: starting.StartupLoader | None = None
        self._loaded_for_session = shared is not None
        self._transport: Transport | None = None
        self._links: set[Link] = set()  # those over the transport
        self._opening = asyncio.Lock()
        self._failure: CcbError | None = None  # of the last login
        self._closed = False

    async def __aenter__(self) -> Self:
        self._loader = starting.StartupLoader(partial(self._load_for_login, settings_choice(self.arguments)))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        await self.loader.aclose()
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    @property
    def loader(self) -> starting.StartupLoader:
        """Loads the settings and the bundle beside the login."""
        assert self._loader is not None, "enter the connection first"
        return self._loader

    async def startup(self, arguments: Arguments) -> starting.LoadedBasics:
        """Return settings and bundle for a session that begins now. The first one gets what was loaded for the login.
        Raises ConfigError."""
        if not self._loaded_for_session:
            self._loaded_for_session = True
            return await self.loader.loaded()
        return await starting.load_in_thread(partial(self._load, settings_choice(arguments)))

    @property
    def current(self) -> Transport | None:
        """The transport now. None between two connections."""
        return self._transport if self._transport is not None and self._transport.alive else None

    async def connected(self) -> Transport:
        """Return the transport. A login may ask the person, and tries again if the connection breaks off. Raises
        CcbError."""
        return await self._opened(lambda: opening.first_transport(self._log_in, self.prompts), ask=True)

    async def transport(self, *, ask: bool) -> Transport:
        """Return the transport, a new one if it is not alive. Raises CcbError: without `ask`, also the one of a login
        that failed while this call waited for it."""
        return await self._opened(lambda: self.log_in(ask=ask), ask=ask)

    async def log_in(self, *, ask: bool) -> Transport:
        """Return a transport that the caller closes. Raises CcbError."""
        if ask:
            return await self._log_in(self.prompts)
        return await opening.log_in_unattended(self._log_in, self.prompts, host_label(self.arguments.connection))

    def take(self, transport: Transport) -> Transport:
        """Return a transport that from now on the caller owns alone, and closes."""
        if transport is self._transport:
            self._transport = None
        return transport

    @asynccontextmanager
    async def carrying(self, transport: Transport, link: Link) -> AsyncIterator[None]:
        """Know of a link that stands over the transport. If the link dies of silence, so does the transport."""
        if transport is self._transport:
            self._links.add(link)
        try:
            yield
        finally:
            self._links.discard(link)
            if link.silent:
                await self.give_up(transport)

    async def give_up(self, transport: Transport) -> bool:
        """End a transport that does not answer, for all that use it, unless a link hears the host over it. Return
        whether it has ended."""
        if transport is self._transport:
            if transport.alive and any(not each.liveness.unanswered_s for each in self._links if not each.silent):
                return False
            self._transport = None
        transport.abort()
        await transport.close()
        return True

    async def placed(self, arguments: Arguments) -> tuple[Arguments, tuple[str, ...]]:
        """Find or start the container of the folder, if the session works in one. Return the arguments that lead into
        it, and sentences about what is left out. Raises CcbError."""
        if not arguments.connection.devcontainer:
            return arguments, ()
        from ccb.tunnel.transports.container import ContainerTransport

        from . import devcontainer

        host = await self.connected()
        arguments, left = await devcontainer.entered(arguments, self.prompts, host)
        self.arguments = replace(self.arguments, connection=arguments.connection)
        inside = arguments.connection
        self._transport = ContainerTransport(host, inside.container or "", inside.container_env)
        return arguments, left

    async def sessions(self, *, ask: bool = True) -> HostSessions:
        """Return the sessions of the host, which need no session. Without `ask` a login asks nobody. Raises
        CcbError."""
        from .host_sessions import HostSessions

        await (self.connected() if ask else self.transport(ask=False))
        return HostSessions(lambda: self.transport(ask=False), await self.loader.loaded())

    async def _log_in(self, prompts: Prompts) -> Transport:
        if self._reach is not None:
            self.loader.start()
            return await self._reach()
        return await opening.open_transport(self.arguments, self.environ, self.loader, prompts, self._sharing)

    async def _opened(self, log_in: Callable[[], Awaitable[Transport]], *, ask: bool) -> Transport:
        known = self._failure
        async with self._opening:
            if self._transport is not None and not self._transport.alive:
                await self.give_up(self._transport)
            if self._transport is None:
                if self._failure is not None and self._failure is not known and not ask:
                    raise self._failure
                try:
                    transport = await log_in()
                except CcbError as error:
                    self._failure = error
                    raise
                if self._closed:  # meanwhile
                    await transport.close()
                    raise ConnectionLost("the connection to the host was closed during the login")
                self._transport = transport
            return self._transport


@asynccontextmanager
async def connect_host(
    arguments: Arguments,
    prompts: Prompts,
    environ: Mapping[str, str],
    load: Callable[[Mapping[str, str], SettingsChoice], starting.LoadedBasics] = starting.load_startup,
    sharing: Sharing | None = None,
) -> AsyncIterator[tuple[Transport, starting.LoadedBasics]]:
    """Yield a connection for host commands, and the settings and the worker bundle that run them. Raises CcbError."""
    async with HostConnection(arguments, prompts, environ, load, sharing) as host:
        yield await host.connected(), await host.loader.loaded()
