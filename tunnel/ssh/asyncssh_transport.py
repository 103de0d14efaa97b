"""Transport on asyncssh: one connection, authenticated as ssh would do it, on which commands run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from ..errors import CcbError, Unreachable
from ..heavy_imports import collection_paused, load_asyncssh
from ..openssh.shared_master import MasterTrial, usable_master
from ..ssh_config.ssh_target import SshTarget, of_consequence, only_openssh
from ..transports.login_prompts import NobodyToAsk, Prompts, tell_once
from ..transports.pipe import NOTHING_SHARED, Sharing, Transport
from .carrier import Carrier, Hop, route
from .exec_channel import SshPipe, lost
from .past_logins import PastLogins
from .pipelined_login import Pipelining

if TYPE_CHECKING:
    import asyncssh


log = logging.getLogger(__name__)
OnWait = Callable[[], None]

_CLOSE_S = 5.0
_OPEN_S = 30.0
_LATER_WINDOW = 16 << 20  # bytes that a later command, such as a copy, may send ahead. With fewer, packets are small
_STARTED_S = 0.005  # longer than it takes to start `ssh -G`. This machine has time for other work while that runs.


async def connect(
    target: SshTarget,
    prompts: Prompts,
    on_wait: OnWait = lambda: None,
    past: PastLogins | None = None,
    sharing: Sharing = NOTHING_SHARED,
) -> Transport:
    """Return a transport over a connection that `sharing` allows to share, or else log in to `target` with the options
    that `ssh -G` prints for it.

    `on_wait` is called when `ssh -G`, or the network, leaves time for other work. With `past`, logins are
    pipelined where the last one allows it; the transport may then be returned before the end of the login (see
    `logged_in`). Raise Unreachable, AuthFailed, HostKeyError, ConfigError.
    """
    hops = await _route(target, on_wait, sharing)
    config = hops[-1].config
    master = usable_master(config, target, prompts) if sharing.own_master else None

    def log_in() -> Awaitable[SshTransport]:
        return _log_in_over(hops, prompts, on_wait, past, sharing)

    if master is None and not sharing.keep_s:
        return await log_in()
    on_wait()
    if master is not None:
        return MasterTrial(master, target, config, prompts, log_in)
    from ..openssh.kept_connections import KeptRoute, share_kept

    return await share_kept(KeptRoute([hop.config for hop in hops], target, sharing.keep_s, log_in), prompts)


async def _log_in_over(
    hops: Sequence[Hop],
    prompts: Prompts,
    on_wait: OnWait,
    past: PastLogins | None,
    sharing: Sharing,
    failed: Pipelining | None = None,
) -> SshTransport:
    """Log in to the last of `hops`, each through the one before it.

    asyncssh is imported first, because the handshake waits for it, then `on_wait` is called. `failed` is a pipelined
    login to the same host that this one takes the place of.
    """
    target = hops[-1].target
    pipelining = failed or Pipelining(hops[-1].config, past)
    stream = carrier = Carrier(hops[0].config, prompts)
    connections: list[asyncssh.SSHClientConnection] = []
    hop = hops[0]
    turn = AsyncExitStack()
    try:
        loading = asyncio.create_task(asyncio.to_thread(_load))
        loading.add_done_callback(lambda _: on_wait())
        try:
            for each in hops:
                _warn_of_options_without_effect(each, prompts, last=each.target is target)
            await turn.enter_async_context(prompts.memory.turn(hop.config.hostname, hop.config.port))
            await carrier.open()
        finally:
            await loading
        from .ssh_login import log_in

        for hop in hops:
            last = hop.target is target
            its = pipelining if last else Pipelining(hop.config, past)
            connections.append(await log_in(hop, prompts, carrier, its, ahead=last))
            await turn.aclose()
            carrier = Carrier(hop.config, prompts, tunnel=connections[-1], through=hop.target)
    except BaseException as error:
        if isinstance(error, CcbError) and hop.target is not target:  # named as the person wrote it
            address = f" ({hop.config.hostname})" if hop.config.hostname != hop.target.host else ""
            error.what = f"jump host {hop.target.shown}{address}: {error.what}"
        carrier.abandon()
        try:
            await close_all(connections[::-1])
        finally:
            await stream.close()
        raise
    finally:
        await turn.aclose()

    async def again(failed: Pipelining | None, ask: bool) -> SshTransport:
        fresh, asked = await _route(target, lambda: None, sharing), prompts if ask else NobodyToAsk(prompts.memory)
        return await _log_in_over(fresh, asked, lambda: None, past if failed else None, sharing, failed)

    return SshTransport(target.shown, connections, stream, pipelining, again)


async def _route(target: SshTarget, on_wait: OnWait, sharing: Sharing) -> list[Hop]:
    waiting = asyncio.get_running_loop().call_later(_STARTED_S, on_wait)
    try:
        hops = await route(target)
    finally:
        waiting.cancel()
    sharing.admit([(hop.config.hostname, hop.config.route.proxy_command or "") for hop in hops])
    return hops


def _warn_of_options_without_effect(hop: Hop, prompts: Prompts, *, last: bool) -> None:
    """Tell the person which of their ssh options have no effect; of a jump host only what ssh would honour there."""
    options = hop.config.no_effect if last else only_openssh(hop.config.no_effect)
    if options:
        log.info("without effect on %s: %s", hop.target.shown, ", ".join(options))
    options = of_consequence(options)
    if not options:
        return
    honoured = only_openssh(options)
    instead = f" (`--transport ssh` honours {', '.join(honoured)})" if honoured else ""
    tell_once(prompts, f"Without effect on {hop.target.shown}: {', '.join(options)}{instead}.")


def _load() -> None:
    load_asyncssh()
    with collection_paused():
        from . import ssh_login

    assert ssh_login


class SshTransport(Transport):
    """Opens another connection when the server runs no more commands on this one (MaxSessions), and closes it, too."""

    def __init__(
        self,
        name: str,
        connections: list[asyncssh.SSHClientConnection],
        stream: Carrier,
        pipelining: Pipelining,
        again: Callable[[Pipelining | None, bool], Awaitable[SshTransport]],
    ) -> None:
        self.name = name
        self._stream = stream
        self.connection = connections[-1]
        self._hops = connections[:-1]
        self._again = again
        self._first = True
        self._next: SshTransport | None = None
        self._opening_next = asyncio.Lock()
        self._again_logged_in = False
        self.pipelining = pipelining
        """How the login to the host itself was pipelined."""

    async def execute(self, command: str) -> SshPipe:
        import asyncssh

        first = self._first
        try:
            async with asyncio.timeout(_OPEN_S):
                process = await self._start(command)
        except asyncssh.ChannelOpenError as error:
            from .pipelined_connection import ChannelRefusedError

            if not self.alive and not isinstance(error, ChannelRefusedError):
                raise lost(self.name, error) from error
            said = error.reason
            if not first:
                try:
                    return await (await self._another()).execute(command)
                except CcbError as failure:
                    said = f"{said}; another connection: {failure.what}"
            raise Unreachable(
                f"{self.name} refused to run a command",
                evidence=said,
                do="Raise MaxSessions in its sshd_config: it allows no session, or all of them are in use.",
            ) from error
        except (asyncssh.Error, OSError) as error:
            raise lost(self.name, error) from error
        return SshPipe(self.name, process)

    async def logged_in(self) -> None:
        """Wait for a login that ends behind the first command. If it fails, log in again. Raise as `connect`."""
        if not await self.pipelining.ended() and not self._again_logged_in:
            await self._log_in_again(self.pipelining)

    async def _start(self, command: str) -> asyncssh.SSHClientProcess[bytes]:
        """Start `command`. The first one waits neither for the login nor for its channel if the last login allows that.
        If the server does otherwise than the last time, log in again and wait."""
        import asyncssh

        from . import pipelined_connection as channels

        first, self._first = self._first, False
        if not first:
            await self.logged_in()
            return await channels.start_waiting(self.connection, command, _LATER_WINDOW)

        if self.pipelining.guesses:
            try:
                process = await channels.start_command(self.connection, command)
            except channels.GuessedWrongError as error:
                if await self.pipelining.ended():
                    await self.pipelining.guessed_wrong(str(error))
                    await self._log_in_again(None)
                    return await channels.start_waiting(self.connection, command)
            except asyncssh.ChannelOpenError as error:
                if isinstance(error, channels.ChannelRefusedError) or await self.pipelining.ended():
                    raise
            else:
                await self.pipelining.ended()
                await self.pipelining.first_channel(channels.FIRST_CHANNEL, ahead=True)
                return process
        await self.logged_in()  # a login may have failed before the command was on its way
        process = await channels.start_waiting(self.connection, command)
        await self.pipelining.first_channel(getattr(process.channel, "_send_chan", None), ahead=False)
        return process

    async def _another(self) -> SshTransport:
        """Return the connection for what this one has no room for. Nobody is asked to log in. Raise CcbError."""
        async with self._opening_next:
            if self._next is None or not self._next.alive:
                dead, self._next = self._next, None
                if dead is not None:
                    await dead.close()
                log.info("%s runs no more commands on this connection: opening another one", self.name)
                fresh = await self._again(None, False)
                if not self.alive:  # closed meanwhile
                    await fresh.close()
                    raise lost(self.name, ConnectionResetError("it was closed"))
                self._next = fresh
            return self._next

    async def _log_in_again(self, failed: Pipelining | None) -> None:
        """Replace the connections by new ones. Their login is plain, or in the place of the one that `failed`."""
        self._again_logged_in = True
        fresh = await self._again(failed, True)
        self.connection, fresh.connection = fresh.connection, self.connection
        self._hops, fresh._hops = fresh._hops, self._hops
        self._stream, fresh._stream = fresh._stream, self._stream
        await fresh.close()

    @property
    def alive(self) -> bool:
        return not self.connection.is_closed()

    @property
    def has_more(self) -> bool:
        """Whether the server ran no more commands on one connection, so that there is another one."""
        return self._next is not None

    def abort(self) -> None:
        if self._next is not None:
            self._next.abort()
        for connection in (self.connection, *reversed(self._hops)):
            connection.abort()

    async def close(self) -> None:
        more, self._next = self._next, None
        try:
            if more is not None:
                await more.close()
            await self.pipelining.close()
            await close_all([self.connection, *reversed(self._hops)])
        finally:
            await self._stream.close()


async def close_all(connections: list[asyncssh.SSHClientConnection]) -> None:
    for connection in connections:
        connection.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await connection.wait_closed()
        except TimeoutError:
            connection.abort()
