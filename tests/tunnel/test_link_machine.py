"""The link as a state machine: whatever is sent, dropped, repeated, fenced and taken back in whatever order, every event is seen
once and in order by everybody who watches, and every input is applied once and in order.

Laptops are real `Session`s over real links; the host is the real daemon side (clients, journal) without an agent. Both live in
one process over socket pairs, so that thousands of steps take seconds.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.link_peer import SocketPipe

from ccb.local.client import LinkChange, LinkState, Received
from ccb.local.connection import Known, Terms
from ccb.local.session import Session
from ccb.remote.clients import Client, fence
from ccb.remote.inputs import Inputs
from ccb.remote.journal import Journal
from ccb.tunnel.errors import ConnectionLost, UsageError
from ccb.tunnel.link import Link, new_nonce
from ccb.tunnel.wire import (
    PROTOCOL,
    Attach,
    Attached,
    Fenced,
    Fetch,
    Hello,
    Input,
    Json,
    frame_to_dict,
)

T = TypeVar("T")


class Host:
    """The session's owner as the daemon is it: grants epochs, journals what comes, applies each input once."""

    def __init__(self, directory: str) -> None:
        self.journal = Journal(os.path.join(directory, "journal.jsonl"))
        self.inputs = Inputs()
        self.applied: list[str] = []
        self.epoch = 0
        self.driver: Client | None = None
        self.driver_name = ""
        self.clients: set[Client] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    def say(self, number: int) -> None:
        self.journal.append("message", {"type": "assistant", "n": number})
        self.journal.flush_soon()

    def hello(self) -> Hello:
        return Hello(
            PROTOCOL,
            "b",
            "s",
            1,
            "3.9",
            "linux",
            "/",
            self.epoch,
            self.journal.durable,
            "idle",
            driver=self.driver_name,
        )

    async def accept(self, end: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=end)
        client = Client(self, reader, writer, frame_to_dict(self.hello()))
        self.clients.add(client)
        task = asyncio.create_task(client.run())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def attached(self, client: Client, frame: Attach) -> None:
        if frame.role == "driver":
            if frame.epoch <= self.epoch:
                client.close("fenced", Fenced(self.epoch, self.driver_name))
                return
            self.epoch, self.driver_name = frame.epoch, str(frame.options.get("client", ""))
            if self.driver is not None:
                fence(self.driver, [self.driver], self.epoch, self.driver_name)
            self.driver = client
        client.control(Attached(self.epoch, frame.role, self.journal.durable, self.driver_name))
        client.admit(frame.role, self.epoch, frame.have)

    def received(self, client: Client, frame: object) -> None:
        assert isinstance(frame, Input)
        assert client is self.driver, "only the newest driver is heard"
        if not self.inputs.knows(frame.id):
            self.journal.append("input", {"id": frame.id, "body": frame.body})
            self.inputs.remember(frame.id, frame.body)
            self.applied.append(frame.id)
            self.journal.flush_soon()
        client.applied_after(self.journal.seq, frame.id)

    def fetch(self, client: Client, frame: Fetch) -> None:
        raise AssertionError("nobody fetches")

    def detached(self, client: Client, *, done: bool) -> None:
        if client is self.driver:
            self.driver_name = ""

    def left(self, client: Client) -> None:
        self.clients.discard(client)
        if client is self.driver:
            self.driver = None

    async def close(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.journal.close()


class Connection:
    def __init__(self, link: Link, hello: Hello) -> None:
        self.link = link
        self.hello = hello

    async def attach(self, *, role: str, have: int, tail: int, options: Mapping[str, object]) -> None:
        await self.link.attach(role=role, have=have, nonce=new_nonce(), options=options, streams=None, tail=tail)


class Laptop:
    """One client with its session, and all that it was shown."""

    def __init__(self, host: Host, name: str, role: str) -> None:
        self.host = host
        self.name = name
        self.shown: list[int] = []
        self.sent: list[str] = []
        self.states: list[LinkState] = []
        self.reachable = asyncio.Event()
        self.reachable.set()
        self.pipes: list[SocketPipe] = []
        options = {"client": name}
        self.session = Session(self.dial, Terms(options=options, who=name, role=role, waits=_no_waits))
        self.listening: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def dial(self, *, known: Known | None, ask: bool) -> AsyncIterator[Connection]:
        await self.reachable.wait()
        ours, theirs = socket.socketpair()
        await self.host.accept(theirs)
        pipe = SocketPipe(*await asyncio.open_connection(sock=ours))
        self.pipes.append(pipe)
        async with Link(pipe) as link:
            yield Connection(link, await link.hello())

    async def start(self) -> None:
        await self.session.__aenter__()
        self.listening = asyncio.create_task(self.listen())

    async def listen(self) -> None:
        async for item in self.session.events():
            if isinstance(item, Received):
                self.shown.append(item.seq)
            elif isinstance(item, LinkChange):
                self.states.append(item.state)

    def cut(self) -> None:
        """The network goes: both ends notice, whatever was on its way is lost or not."""
        for pipe in self.pipes:
            pipe._writer.transport.abort()
        self.pipes.clear()

    async def close(self) -> None:
        self.reachable.set()
        await self.session.close()
        await self.session.__aexit__(None, None, None)
        if self.listening is not None:
            await asyncio.gather(self.listening, return_exceptions=True)
        self.cut()


NAMES = ("alice", "bob")
LAPTOPS = st.sampled_from(NAMES)


class LinkMachine(RuleBasedStateMachine):
    """Two laptops that may drive, one that only watches."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        self.said = 0
        self.counter = 0
        self.laptops: dict[str, Laptop] = {}
        self.run(self.begin())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(30):
                return await work

        return self.loop.run_until_complete(bounded())

    async def begin(self) -> None:
        self.host = Host(self.directory.name)
        for name, role in (("alice", "driver"), ("carol", "viewer")):
            self.laptops[name] = Laptop(self.host, name, role)
            await self.laptops[name].start()

    @precondition(lambda self: "bob" not in self.laptops)
    @rule()
    def bob_takes_over(self) -> None:
        async def come() -> None:
            self.laptops["bob"] = Laptop(self.host, "bob", "driver")
            await self.laptops["bob"].start()

        self.run(come())

    @rule(count=st.integers(1, 5))
    def the_host_says(self, count: int) -> None:
        async def say() -> None:
            for _ in range(count):
                self.said += 1
                self.host.say(self.said)

        self.run(say())

    @rule(name=LAPTOPS)
    def a_laptop_sends(self, name: str) -> None:
        laptop = self.laptops.get(name)
        if laptop is None:
            return
        self.counter += 1
        identity = f"{name}-{self.counter}"
        body: Json = {"type": "user", "uuid": identity, "message": {"role": "user", "content": "x"}}
        try:
            self.run(_sent(laptop.session, body))
            laptop.sent.append(identity)
        except (UsageError, ConnectionLost):
            assert not laptop.session.driving

    @rule(name=st.sampled_from((*NAMES, "carol")))
    def the_network_drops(self, name: str) -> None:
        if name in self.laptops:
            self.run(_cut(self.laptops[name]))

    @rule(name=st.sampled_from((*NAMES, "carol")), steps=st.integers(0, 40))
    def the_network_drops_a_little_later(self, name: str, steps: int) -> None:
        async def later() -> None:
            for _ in range(steps):
                await asyncio.sleep(0)
            self.laptops[name].cut()

        if name in self.laptops:
            self.run(later())

    @rule(name=LAPTOPS)
    def a_laptop_goes_out_of_reach(self, name: str) -> None:
        async def away() -> None:
            self.laptops[name].reachable.clear()
            self.laptops[name].cut()

        if name in self.laptops:
            self.run(away())

    @rule(name=LAPTOPS)
    def a_laptop_comes_back(self, name: str) -> None:
        async def back() -> None:
            self.laptops[name].reachable.set()

        if name in self.laptops:
            self.run(back())

    @rule(name=LAPTOPS)
    def a_person_takes_the_session_back(self, name: str) -> None:
        async def take() -> None:
            self.laptops[name].session.take_back()

        if name in self.laptops:
            self.run(take())

    @rule(name=LAPTOPS)
    def an_old_connection_repeats_an_input(self, name: str) -> None:
        """What was sent once arrives again over the driver's connection."""

        async def repeat() -> None:
            laptop = self.laptops[name]
            connection = laptop.session._connection
            if connection is not None and laptop.sent:
                body: Json = {"type": "user", "uuid": laptop.sent[0], "message": {"role": "user", "content": "x"}}
                try:
                    await connection.link.send(Input(connection.link.epoch, laptop.sent[0], body))
                except ConnectionLost:
                    return

        if name in self.laptops:
            self.run(repeat())

    @rule(steps=st.integers(1, 60))
    def time_passes(self, steps: int) -> None:
        self.run(_yield(steps))

    @invariant()
    def nothing_is_applied_twice(self) -> None:
        applied = self.host.applied
        assert len(applied) == len(set(applied))

    @invariant()
    def inputs_of_a_laptop_are_applied_in_their_order(self) -> None:
        for name, laptop in self.laptops.items():
            mine = [identity for identity in self.host.applied if identity.startswith(name + "-")]
            assert mine == [identity for identity in laptop.sent if identity in set(mine)]

    @invariant()
    def events_are_shown_once_in_order_and_without_gaps(self) -> None:
        for laptop in self.laptops.values():
            assert laptop.shown == list(range(1, len(laptop.shown) + 1))

    def teardown(self) -> None:
        try:
            self.run(self.settle())
        finally:
            self.run(self.end())
            self.loop.close()
            self.directory.cleanup()

    async def settle(self) -> None:
        """With everybody in reach and nothing going wrong any more, all see all, and what the driver sent is applied."""
        for laptop in self.laptops.values():
            laptop.reachable.set()
        driver = self.laptops["alice"]
        while not self.settled(driver):
            if driver.session.state is LinkState.FENCED:
                driver.session.take_back()
            await asyncio.sleep(0.002)

    def settled(self, driver: Laptop) -> bool:
        seq = self.host.journal.seq
        everybody = all(laptop.shown == list(range(1, seq + 1)) for laptop in self.laptops.values())
        return everybody and driver.session.driving and all(identity in self.host.applied for identity in driver.sent)

    async def end(self) -> None:
        for laptop in self.laptops.values():
            await laptop.close()
        await self.host.close()


def _no_waits() -> Iterator[float]:
    while True:
        yield 0.0


async def _sent(session: Session, body: Json) -> None:
    await session.send(body)


async def _cut(laptop: Laptop) -> None:
    laptop.cut()


async def _yield(steps: int) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)


TestLink = LinkMachine.TestCase
TestLink.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    database=None,
)
