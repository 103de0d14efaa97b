"""Ports of the host that the person has taken: each has a listener on this machine, which leads there."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import field
from functools import partial
from typing import Any

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.channels import BLOCK, Channel, ChannelError, carry
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import CHANNELS

from ..command_line.arguments import PortOptions
from ..session.remote_session import RemoteSession
from ..session.session_client import HostPort

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"  # nobody else on the network of this machine reaches a forward
MAX_FORWARDS = 50
_AT_ONCE = 3  # ports that are offered one by one; if more are new at once, a line tells how many
_MAX_OFFERED = 20  # in a session: tests and kernels open ports without end
MAX_REVERSED = 64  # connections to one port of this machine; a worker lets 32 in, and sees their ends before us
MAX_DIGITS = 12  # of the number of a connection


Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def forward_of(text: str) -> tuple[int, int]:
    """Return the port of the host and that of this machine, 0 for any, of a checked `[LOCAL:]PORT`."""
    local, _, remote = text.rpartition(":")
    return int(remote), int(local or 0)


def url_of(port: int) -> str:
    return f"http://{LOOPBACK}:{port}"


def reverse_words(port: int) -> str:
    return f"{LOOPBACK}:{port} of the host leads to port {port} of this machine: /ports stop {port} ends that."


@dataclass(eq=False)
class Forward:
    """A port of the host, and where it is on this machine. `pinned`: it stays until it is stopped, because the person
    wants it, or because no program of the session listened there."""

    remote: int
    local: int
    pinned: bool
    server: asyncio.Server
    connections: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return url_of(self.local)

    async def close(self) -> None:
        self.server.close()
        await cancelled(*self.connections)


@dataclass(eq=False)
class Reverse:
    """A port of this machine that programs of the host reach at the same number. `state` says why not, or not yet."""

    port: int
    state: str = "waits for the host"
    serving: asyncio.Task[None] | None = None
    connections: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def ended(self) -> bool:
        return self.serving is None or self.serving.done()

    async def close(self) -> None:
        await cancelled(self.serving)


class PortForwards(AbstractAsyncContextManager["PortForwards"]):
    """The forwards of a session, until the end of the context. A new port that the person has not taken is offered if
    `offers` says so."""

    def __init__(
        self, session: RemoteSession, labels: Mapping[str, str], offers: Callable[[int], bool] = lambda _: False
    ) -> None:
        self._session = session
        self._labels = labels
        self._offers = offers
        self.listening: Mapping[int, HostPort] = {}
        self.forwards: dict[int, Forward] = {}
        self.reverses: dict[int, Reverse] = {}
        self._taken: dict[int, int] = {}  # the ports here of forwards whose programs have ended: they come back
        self._offered: set[int] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._making = asyncio.Lock()  # so that no port gets two listeners

    async def __aenter__(self) -> PortForwards:
        self._session.tell_ports(self.told)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)  # listeners that close or open, which takes no time
        opened: list[Forward | Reverse] = [*self.forwards.values(), *self.reverses.values()]
        await asyncio.gather(*(each.close() for each in opened))
        self.forwards.clear()
        self.reverses.clear()

    def told(self, listening: Mapping[int, HostPort]) -> None:
        """Take the ports that listen now. A forward ends with its program, unless pinned, and comes back with it."""
        self.listening = listening
        for forward in [each for each in self.forwards.values() if not each.pinned]:
            if forward.remote not in self.listening:
                del self.forwards[forward.remote]
                self._taken[forward.remote] = forward.local
                self._run(forward.close())
        for port in self._taken.keys() & self.listening.keys():
            self._run(self._again(port, self._taken.pop(port)))
            self._offered.add(port)
        self._offer([port for port in self.listening if self.may_offer(port) and port not in self._offered])

    def _offer(self, ports: list[int]) -> None:
        """Tell of ports, of each once in the session."""
        if not ports or len(self._offered) >= _MAX_OFFERED:
            return
        self._offered.update(ports)
        if len(ports) > _AT_ONCE:
            self._session.warn(f"{len(ports)} ports listen on the host now → /ports lists them")
        for port in ports if len(ports) <= _AT_ONCE else ():
            self._session.offer_port(
                port,
                f"{self.shown(port)} listens on the host → /ports {port} makes it {url_of(port)} "
                f"here, /ports open {port} shows it, /ports ignore {port} hides it in this project",
            )
        if len(self._offered) >= _MAX_OFFERED:
            self._session.warn("Ports that programs open from now on are not offered any more: /ports lists them.")

    @property
    def offered(self) -> list[HostPort]:
        return [each for each in self.listening.values() if each.port not in self.forwards]

    def may_offer(self, remote: int) -> bool:
        """Whether the person may want a port: a program listens there, it is not forwarded, and not ignored."""
        return remote in self.listening and remote not in self.forwards and self._offers(remote)

    def shown(self, remote: int) -> str:
        """Return a port with its name."""
        name = self.name_of(remote)
        return f"{remote} ({name})" if name else str(remote)

    def name_of(self, remote: int) -> str:
        """Return the person's label for a port, else the name of its program, "" if none is known."""
        found = self.listening.get(remote)
        return self._labels.get(str(remote)) or (found.name.cell if found is not None else "")

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work, name="forwards")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _again(self, remote: int, local: int) -> None:
        try:
            await self.forward(remote, local)
        except UsageError as error:
            self._session.warn(f"port {remote} of the host is back, and not forwarded again: {error.what}")

    async def forward(self, remote: int, local: int = 0) -> Forward:
        """Listen on this machine for `remote`: on the port `local`, else on the same number, else on a free one, of
        which the person is told. Raises UsageError."""
        if CHANNELS not in self._session.hello.capabilities:
            what = "the worker of this session is of an older version, which forwards no ports"
            raise UsageError(what, do="/stop, then start again.")
        async with self._making:
            return await self._forwarded(remote, local)

    async def _forwarded(self, remote: int, local: int) -> Forward:
        if remote in self.forwards:
            return self.forwards[remote]
        if len(self.forwards) >= MAX_FORWARDS:
            raise UsageError(f"{MAX_FORWARDS} ports are forwarded", do="/ports stop PORT ends one.")
        connections: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._carry(remote, reader, writer), name=f"connection to port {remote}")
            connections.add(task)
            task.add_done_callback(connections.discard)

        server = await _listen(accept, [local] if local else [remote, 0])
        if remote in self.forwards:  # by another call meanwhile
            server.close()
            return self.forwards[remote]
        at = server.sockets[0].getsockname()[1]
        if at not in (local, remote):
            self._session.warn(f"port {remote} of this machine is in use: that of the host is {url_of(at)} here")
        made = self.forwards[remote] = Forward(remote, at, remote not in self.listening, server, connections)
        log.info("port %d of the host is %s:%d here", remote, LOOPBACK, at)
        return made

    async def take(self, options: PortOptions) -> None:
        """Forward what the command line asks for, in both directions. Raises UsageError."""
        for each in options.forwards:
            await self.forward(*forward_of(each))
        for each in options.reverses:
            await self.reverse(int(each))

    async def pin(self, remote: int) -> Forward:
        """Forward a port, and keep the forward when its program ends. Raises UsageError."""
        forward = await self.forward(remote)
        forward.pinned = True
        return forward

    async def stop(self, remote: int) -> None:
        """End a forward and its connections, in either direction. Raises UsageError."""
        if remote in self.reverses:
            await self.reverses.pop(remote).close()
        elif remote in self.forwards:
            await self.forwards.pop(remote).close()
        elif self._taken.pop(remote, None) is None:  # else it waited for its program
            raise UsageError(f"port {remote} is not forwarded", do="/ports lists what is.")

    async def reverse(self, port: int) -> Reverse:
        """Let the host reach a port of this machine. Only the person asks for that. Raises UsageError."""
        if port in self.reverses and not self.reverses[port].ended:
            return self.reverses[port]
        try:
            channel = await self._session.open_channel("reverse", {"port": port})
        except ChannelError as error:
            raise UsageError(f"the host cannot reach port {port}: {error}", do="/stop, then start again.") from None
        made = self.reverses[port] = Reverse(port)
        made.serving = asyncio.create_task(self._serve_reverse(made, channel), name=f"reverse port {port}")
        log.info("%s:%d of the host leads to the same port here", LOOPBACK, port)
        return made

    async def _serve_reverse(self, made: Reverse, channel: Channel) -> None:
        """Carry the connections of which the host tells by their numbers, a line each, until it stops listening."""
        try:
            async with channel, aclosing(lines_of(channel, MAX_DIGITS)) as lines:
                async for line in lines:
                    made.state = ""
                    if line:
                        self._connect_back(made, line)
            made.state = "the host has ended it"
        except ChannelError as error:
            made.state = one_line(str(error))
            self._session.warn(f"the host does not reach port {made.port} any more: {made.state}")
        finally:
            await cancelled(*made.connections)

    def _connect_back(self, made: Reverse, line: bytes) -> None:
        if not line.isdigit() or len(line) > MAX_DIGITS or len(made.connections) >= MAX_REVERSED:
            log.warning("a connection of the host to port %d is ignored", made.port)
            return
        connect = partial(asyncio.open_connection, LOOPBACK, made.port, limit=BLOCK)
        work = carry_numbered(self._session, int(line), connect)
        task = asyncio.create_task(work, name=f"connection of the host to port {made.port}")
        made.connections.add(task)
        task.add_done_callback(made.connections.discard)

    async def _carry(self, remote: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with await self._session.open_channel("port", {"port": remote}) as channel:
                await carry(channel, reader, writer)
                await channel.over()
        except (ChannelError, OSError) as error:
            log.info("a connection to port %d: %s", remote, error)
        finally:
            writer.close()


async def lines_of(channel: Channel, most: int) -> AsyncGenerator[bytes]:
    """Yield the lines that the host sends, of at most `most` bytes each. Raises ChannelError."""
    rest = b""
    while data := await channel.read():
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > most or any(len(line) > most for line in lines):
            raise ChannelError("it tells of no connection")
        for line in lines:
            yield line


async def carry_numbered(session: RemoteSession, number: int, connect: Connect) -> None:
    """Carry the bytes of a connection that waits on the host to what `connect` opens here, and back."""
    try:
        async with await session.open_channel("reversed", {"connection": number}) as channel:
            await carry(channel, *await connect())
            await channel.over()
    except (ChannelError, OSError) as error:
        log.info("connection %d of the host: %s", number, error)


async def _listen(
    accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None], ports: list[int]
) -> asyncio.Server:
    """Listen on the first of `ports` that is free. Raises UsageError."""
    for port in ports:
        try:
            return await asyncio.start_server(accept, LOOPBACK, port, limit=BLOCK)
        except OSError as error:
            failed = error
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                break
    why = os.strerror(failed.errno).lower() if failed.errno else str(failed)
    what = f"port {ports[-1]} of this machine cannot be used: {why}"
    raise UsageError(what, do="Choose another one: LOCAL:PORT.")
