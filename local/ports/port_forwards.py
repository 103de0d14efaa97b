"""Ports of the host that the person has taken: each has a listener on this machine, which leads there."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import field
from functools import partial
from typing import Any, NoReturn

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.channels import BLOCK, Channel, ChannelError, carry
from ccb.tunnel.wire.control_protocol import Request, RequestRefused
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import CHANNELS, Json

from ..command_line.arguments import PortOptions
from ..session.remote_session import RemoteSession

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"  # nobody else on the network of this machine reaches a forward
MAX_FORWARDS = 50
_MAX_OFFERED = 20  # in a session: tests and kernels open ports without end
MAX_REVERSED = 32  # connections to one port of this machine
_MAX_LINE = 100
_AGAIN_S = 1.0  # until another channel is tried where none was left

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
    state: str = "waits for your answer"
    serving: asyncio.Task[None] | None = None
    connections: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def ended(self) -> bool:
        return self.serving is None or self.serving.done()

    async def close(self) -> None:
        await cancelled(self.serving)


class PortForwards(AbstractAsyncContextManager["PortForwards"]):
    """The forwards of a session, until the end of the context. A new port that the person has not taken is offered if
    `offers` says so. `asks` asks the person whether the host may reach a port; without it, their word was enough."""

    def __init__(
        self,
        session: RemoteSession,
        labels: Mapping[str, str],
        offers: Callable[[int], bool] = lambda _: False,
        asks: Callable[[int], Awaitable[bool]] | None = None,
    ) -> None:
        self._session = session
        self._labels = labels
        self._offers, self._asks = offers, asks
        self.listening: Mapping[int, HostText] = {}
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

    def told(self, listening: Mapping[int, HostText]) -> None:
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
        for port in ports:
            if len(self._offered) >= _MAX_OFFERED:
                return
            self._offered.add(port)
            self._session.offer_port(
                port,
                f"{self.shown(port)} listens on the host → /ports {port} makes it {url_of(port)} "
                f"here, /ports open {port} shows it, /ports ignore {port} hides it in this project",
            )
            if len(self._offered) >= _MAX_OFFERED:
                self._session.warn("Ports that programs open from now on are not offered any more: /ports lists them.")

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
        return self._labels.get(str(remote)) or (found.cell if found is not None else "")

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
        """Listen on this machine for `remote`: on the port `local`, else on the same number, else on a free one. Raises
        UsageError."""
        self._check_worker()
        async with self._making:
            return await self._forwarded(remote, local)

    def _check_worker(self) -> None:
        if CHANNELS not in self._session.hello.capabilities:
            what = "the worker of this session is of an older version, which forwards no ports"
            raise UsageError(what, do="/stop, then start again.")

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
        at = server.sockets[0].getsockname()[1]
        made = self.forwards[remote] = Forward(remote, at, remote not in self.listening, server, connections)
        log.info("port %d of the host is %s:%d here", remote, LOOPBACK, at)
        return made

    async def take(self, options: PortOptions) -> None:
        """Forward what the command line asks for, in both directions. Raises UsageError."""
        for each in options.forwards:
            remote, local = forward_of(each)
            forward = await self.forward(remote, local)
            if forward.local not in (local, remote):
                self._session.warn(f"port {remote} of this machine is in use: that of the host is {forward.url} here")
        for each in options.reverses:
            await self.reverse(int(each))

    async def stop(self, remote: int) -> None:
        """End a forward and its connections, in either direction. Raises UsageError."""
        if remote in self.reverses:
            await self.reverses.pop(remote).close()
        elif remote in self.forwards:
            await self.forwards.pop(remote).close()
        elif self._taken.pop(remote, None) is None:  # else it waited for its program
            raise UsageError(f"port {remote} is not forwarded", do="/ports lists what is.")

    async def reverse(self, port: int) -> Reverse:
        """Let the host reach a port of this machine, or ask the person before. Raises UsageError."""
        self._check_worker()
        if port not in self.reverses or self.reverses[port].ended:
            made = self.reverses[port] = Reverse(port)
            made.serving = asyncio.create_task(self._serve_reverse(made), name=f"reverse port {port}")
        return self.reverses[port]

    async def _serve_reverse(self, made: Reverse) -> None:
        if self._asks is not None and not await self._asks(made.port):
            del self.reverses[made.port]
            self._session.warn(f"port {made.port} of this machine stays closed for the host")
            return
        made.state = "waits for the host"
        self._session.warn(reverse_words(made.port))

        def listens(_: str) -> None:
            made.state = ""

        log.info("%s:%d of the host leads to the same port here", LOOPBACK, made.port)
        connect = partial(asyncio.open_connection, LOOPBACK, made.port, limit=BLOCK)
        try:
            await take_connections(self._session, "accept", {"port": made.port}, listens, connect, made.connections)
        except ChannelError as error:
            made.state = one_line(str(error))
            self._session.warn(f"the host does not reach port {made.port} any more: {made.state}")

    async def _carry(self, remote: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with await self._session.open_channel("port", {"port": remote}) as channel:
                await carry(channel, reader, writer)
        except (ChannelError, OSError) as error:
            log.info("a connection to port %d: %s", remote, error)
        finally:
            writer.close()


def asks_reader(session: RemoteSession, host: str) -> Callable[[int], Awaitable[bool]]:
    """Return what asks the reader of a session whether the host may reach a port of this machine."""
    from ..transcript.questions import REVERSE_PORT, ReversedPort  # headless runs ask nobody

    async def refused(_: object) -> Json:
        raise RequestRefused("Only the laptop asks that.")

    async def asks(port: int) -> bool:
        return await session.ask_reader(Request(REVERSE_PORT, ReversedPort(host, port)))

    session.register(REVERSE_PORT)
    session.register(REVERSE_PORT, refused)
    return asks


async def take_connections(
    session: RemoteSession,
    kind: str,
    body: Json,
    told: Callable[[str], None],
    connect: Connect,
    carrying: set[asyncio.Task[None]],
) -> NoReturn:
    """Carry the connections that wait on the host to what `connect` opens here, each on a channel of its own. The next
    channel opens before a connection has ended. Call `told` with the line that the host says first on each. Raises
    ChannelError."""
    try:
        while True:
            try:
                channel = await session.open_channel(kind, body)
            except ChannelError:
                if not carrying:
                    raise
                await asyncio.wait(carrying, timeout=_AGAIN_S)  # too many are open: what is carried goes on
                continue
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(channel)
                told(await _line_of(channel))
                if not await channel.read(1):
                    raise ChannelError("the host has ended it")
                work = _carry_here(channel, connect, stack.pop_all())
            task = asyncio.create_task(work, name=f"connection of the host ({kind})")
            carrying.add(task)
            task.add_done_callback(carrying.discard)
            while len(carrying) >= MAX_REVERSED:
                await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancelled(*carrying)


async def _line_of(channel: Channel) -> str:
    line = b""
    while (byte := await channel.read(1)) not in (b"\n", b""):
        line += byte
        if len(line) > _MAX_LINE:
            raise ChannelError("the host says something else than a line")
    return line.decode("ascii", "replace")


async def _carry_here(channel: Channel, connect: Connect, stack: AsyncExitStack) -> None:
    async with stack:
        try:
            await carry(channel, *await connect())
        except (ChannelError, OSError) as error:
            log.info("a connection of the host: %s", error)


async def _listen(
    accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None], ports: list[int]
) -> asyncio.Server:
    """Listen on the first of `ports` that is free. Raises UsageError."""
    for port in ports:
        try:
            return await asyncio.start_server(accept, LOOPBACK, port, limit=BLOCK)
        except OSError as error:
            failed = error
    why = os.strerror(failed.errno).lower() if failed.errno else str(failed)
    what = f"port {ports[-1]} of this machine cannot be used: {why}"
    raise UsageError(what, do="Choose another one: LOCAL:PORT.")
