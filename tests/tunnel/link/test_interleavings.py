"""Any interleaving of what can happen to the links of one session keeps its promises.

Hypothesis plays the person, the network and other clients against the laptop's real session client and the real daemon
with its journal; bytes stay in flight until it moves them. The promises (`check`): every client sees every event once,
in order and as it is in the journal; every input is applied once, in the order it was sent, and only while its client
drives; epochs only grow, and nobody drives unasked. `settle` lets everything arrive and demands that all is where it
belongs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.support.hosts.scripted_host import no_waits
from tests.support.network.held_wire import InProcessHost, Wire, frames_in, in_process_host

from ccb.local.session.dialing import FIRST_TRIES, AttachOptions, KnownSession, WorkerConnection
from ccb.local.session.remote_session import RemoteSession
from ccb.local.session.session_client import EventGap, LinkState, SessionEvent
from ccb.tunnel.errors import CcbError
from ccb.tunnel.link.link import Link
from ccb.tunnel.wire.journal_records import MessageRecord, Record

pytestmark = pytest.mark.slow

DEADLINE_S = 60.0
TAIL = 4000  # bytes; of the viewer


class Player:
    """One running ccb, and everything its person has seen and sent."""

    def __init__(self, host: InProcessHost, name: str, role: str) -> None:
        self.name = name
        self.session: RemoteSession | None = None
        self.wire: Wire | None = None
        self.seen: list[SessionEvent | EventGap] = []
        self.sent: list[str] = []
        self.free = True
        self.online = asyncio.Event()
        self.online.set()
        self.dials = 0
        self.past = b""  # what earlier connections carried
        self.past_up = b""
        self._host = host
        self._terms = AttachOptions(
            options={"client": name}, who=name, role=role, tail=0 if role == "driver" else TAIL, waits=no_waits
        )
        self.task = asyncio.create_task(self._live(), name=name)

    @asynccontextmanager
    async def _dial(self, known: KnownSession | None, ask: bool) -> AsyncIterator[WorkerConnection]:
        await self.online.wait()
        self.dials += 1
        self.wire = wire = await self._host.connect(free=self.free)
        try:
            async with Link(wire) as link:
                yield WorkerConnection(link, await link.hello())
        finally:
            self.past, self.past_up = bytes(wire.sent_down), bytes(wire.sent_up)

    async def _live(self) -> None:
        async with RemoteSession(self._dial, self._terms) as session:
            self.session = session
            async for item in session.events():
                if isinstance(item, EventGap) or (isinstance(item, SessionEvent) and item.kind != "progress"):
                    self.seen.append(item)

    @property
    def have(self) -> int:
        return self.seen[-1].seq if self.seen else 0

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def acted(step: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A step that runs in the loop of its machine."""

    @functools.wraps(step)
    def run(machine: Links, *given: Any, **drawn: Any) -> None:
        machine.run(step(machine, *given, **drawn))

    return run


class Links(RuleBasedStateMachine):
    """Two people who drive in turn, A and B, and V who watches."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = contextlib.AsyncExitStack()
        self.host: InProcessHost = self.run(self.stack.enter_async_context(in_process_host()))
        self.journal = self.host.daemon.journal
        self.players: dict[str, Player] = {}
        self.everybody: list[Player] = []
        self.sender: dict[str, Player] = {}
        self.takes: Counter[str] = Counter()
        self.left: set[str] = set()  # who said that it leaves: anybody may go on
        self.records: list[Record] = []
        self.events = 0
        self.count = 0

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def teardown(self) -> None:
        try:
            self.run(self._teardown())
        finally:
            self.runner.close()

    async def _teardown(self) -> None:
        try:
            await self._settle()
        finally:
            await self._end()

    async def _end(self) -> None:
        for player in self.everybody:
            await player.end()
        await self.stack.aclose()

    async def breathe(self, turns: int = 12) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    # What may happen

    who = st.sampled_from("AABBV")
    share = st.sampled_from((0, 0, 10, 50, 90, 100, 100))

    @initialize(free=st.booleans())
    def begin(self, free: bool) -> None:
        """The first terminal drives; V looks on."""
        self.start("A", free)
        self.start("V", True)

    @rule(who=st.sampled_from("AAABBBV"), free=st.booleans())
    @acted
    async def start(self, who: str, free: bool) -> None:
        """A new terminal; a driver takes over."""
        if who in self.players:
            return
        role = "viewer" if who == "V" else "driver"
        self.count += 1
        player = Player(self.host, f"{who}{self.count}", role)
        player.free = free
        self.takes[player.name] += role == "driver"
        self.players[who] = player
        self.everybody.append(player)
        await self.breathe(30)

    @rule(large=st.integers(0, 9))
    @acted
    async def happen(self, large: int) -> None:
        """The worker has news; one in ten is longer than a line of the wire may be."""
        if self.host.daemon.journal.seq == 0:
            return
        self.events += 1
        self.journal.append(MessageRecord({"type": "news", "n": self.events, "text": "x" * (300_000 * (large == 0))}))
        self.journal.flush_soon()
        await self.breathe()

    @rule(who=who, count=st.integers(1, 3))
    @acted
    async def send(self, who: str, count: int) -> None:
        player = self.players.get(who)
        if player is None or player.session is None:
            return
        for _ in range(count):
            self.count += 1
            request = {"subtype": "get_context_usage"}
            body = {"type": "control_request", "request_id": f"{player.name}/{self.count}", "request": request}
            try:
                identity = await player.session.send(body)
            except CcbError:
                continue  # it watches, or has ended
            self.sender[identity] = player
            player.sent.append(identity)
        await self.breathe()

    @rule(who=st.sampled_from("AAB"), up=share, count=st.integers(1, 3))
    def send_and_lose(self, who: str, up: int, count: int) -> None:
        """The connection is lost before anything is confirmed."""
        self.flow(who, False)
        self.send(who, count)
        self.drop(who, up, 0, True, True)

    @rule(who=st.sampled_from("AB"), host_knows=st.booleans())
    def taken_meanwhile(self, who: str, host_knows: bool) -> None:
        """While one is out of reach, another terminal takes over; then the first one is back."""
        other = "B" if who == "A" else "A"
        self.drop(who, 0, 0, host_knows, False)
        self.start(other, True)
        self.flow(other, True)
        self.take_back(other)
        self.run(self.breathe(100))
        self.reattach(who)

    @rule(who=st.sampled_from("AB"), count=st.integers(1, 3))
    def overtaken(self, who: str, count: int) -> None:
        """What one has sent is under way when another terminal takes over."""
        other = "B" if who == "A" else "A"
        self.flow(who, False)
        self.send(who, count)
        self.start(other, True)
        self.flow(other, True)
        self.take_back(other)
        self.run(self.breathe(100))
        self.move(who, 100, 0)

    @rule(who=who, up=share, down=share)
    @acted
    async def move(self, who: str, up: int, down: int) -> None:
        """Some of what is in flight arrives."""
        player = self.players.get(who)
        if player is not None and player.wire is not None:
            player.wire.move(up, down)
        await self.breathe()

    @rule(who=who, free=st.booleans())
    @acted
    async def flow(self, who: str, free: bool) -> None:
        player = self.players.get(who)
        if player is not None:
            player.free = free
            if player.wire is not None:
                player.wire.release(free=free)
        await self.breathe()

    @rule(who=who, up=share, down=share, host_knows=st.booleans(), online=st.booleans())
    @acted
    async def drop(self, who: str, up: int, down: int, host_knows: bool, online: bool) -> None:
        """The connection is lost on the laptop; the host may not notice."""
        player = self.players.get(who)
        if player is None or player.wire is None:
            return
        if player.session is None and player.dials >= FIRST_TRIES:
            return  # a client whose first connections all break off gives up
        if not online:
            player.online.clear()
        player.wire.cut(up, down, host_knows=host_knows)
        await self.breathe()

    @rule(who=who)
    @acted
    async def reattach(self, who: str) -> None:
        player = self.players.get(who)
        if player is not None:
            player.online.set()
            if player.session is not None:
                player.session.retry()
        await self.breathe(30)

    @rule(number=st.integers(0, 30), up=share, over=st.booleans())
    @acted
    async def late(self, number: int, up: int, over: bool) -> None:
        """A connection that the laptop has lost still delivers to the host."""
        lost = [wire for wire in self.host.wires if wire.lost and (wire.up or wire.free)]
        if lost:
            wire = lost[number % len(lost)]
            wire.move(up, 0)
            if over:
                wire.bury()
        await self.breathe()

    @rule(who=who, up=st.booleans(), number=st.integers(0, 100), count=st.integers(1, 3))
    @acted
    async def repeat(self, who: str, up: bool, number: int, count: int) -> None:
        """Frames of the connection before come again, on the new one."""
        player = self.players.get(who)
        if player is None or player.wire is None or player.wire.lost:
            return
        frames = frames_in(player.past_up if up else player.past)
        for frame in frames[number % len(frames) :][:count] if frames else ():
            player.wire.repeat(frame, up=up)
        await self.breathe()

    @rule(who=st.sampled_from("AB"))
    @acted
    async def take_back(self, who: str) -> None:
        player = self.players.get(who)
        if player is not None and player.session is not None and not player.session.driving:
            self.takes[player.name] += 1
            player.session.take_back()
        await self.breathe(30)

    @rule(who=who, killed=st.booleans())
    @acted
    async def leave(self, who: str, killed: bool) -> None:
        """The terminal is closed; killed, it says no word."""
        player = self.players.pop(who, None)
        if player is None:
            return
        if player.session is not None and not killed:
            player.free = True
            if player.wire is not None:
                player.wire.release(free=True)
            self.left.add(player.name)
            await player.session.close()
        await player.end()
        await self.breathe()

    @rule()
    def settle(self) -> None:
        """Everything arrives, everybody is connected, what is lost is known to be."""
        self.run(self._settle())

    async def _settle(self) -> None:
        for wire in self.host.wires:
            if wire.lost:
                wire.move(100, 0)
                await self.breathe()
                wire.bury()
        for player in self.players.values():
            player.free = True
            player.online.set()
            if player.wire is not None:
                player.wire.release(free=True)
        try:
            async with asyncio.timeout(DEADLINE_S):
                while left := self.unsettled():
                    await asyncio.sleep(0.001)
        except TimeoutError:
            raise AssertionError(f"not settled: {left}") from None

    def unsettled(self) -> list[str]:
        """What is not yet as it has to become when nothing disturbs any more."""
        self.check()
        left = []
        if self.journal.durable < self.journal.seq:
            left.append("the journal is not durable")
        drivers = []
        for player in self.players.values():
            session = player.session
            if session is None or session.state not in (LinkState.CONNECTED, LinkState.FENCED):
                left.append(f"{player.name} is {session and session.state.value}")
                continue
            if player.have != self.journal.seq:
                left.append(f"{player.name} has {player.have} of {self.journal.seq}")
            if session.driving != (session.state is LinkState.CONNECTED):
                left.append(f"{player.name} is in between")
            if session.driving:
                drivers.append(player.name)
                applied = {body["id"] for kind, body in self._facts() if kind == "input"}
                if session.unsent or not applied.issuperset(player.sent):
                    left.append(f"{player.name} waits for {session.unsent} confirmations")
        if len(drivers) > 1:
            left.append(f"{drivers} drive")
        if drivers and drivers[0] != self.driver():
            left.append(f"{drivers[0]} drives, the journal says {self.driver()!r}")
        if any(player.name == self.driver() for player in self.players.values()) and not drivers:
            left.append(f"{self.driver()} does not know that it drives")
        return left

    def _facts(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for record in self.records:
            yield record.kind, record.body

    def driver(self) -> str:
        """Who was granted the highest epoch."""
        name = ""
        for kind, body in self._facts():
            if kind == "options" and not name:
                name = body["options"].get("client", "")
            elif kind == "driver":
                name = body["by"]
        return name

    # What must always be true

    @invariant()
    def check(self) -> None:
        self.records += self.journal.read(len(self.records), self.journal.seq)
        self.check_inputs()
        for player in self.everybody:
            self.check_seen(player)
            if player.task.done() and not player.task.cancelled():
                player.task.result()
        assert self.everybody or not self.records

    def check_inputs(self) -> None:
        """Journal order is the truth: whose inputs were applied, and who drove then."""
        driver, epoch = "", 0
        applied: dict[str, list[str]] = {}
        changes: Counter[str] = Counter()
        for kind, body in self._facts():
            if kind == "options" and not driver:
                driver = body["options"].get("client", "")
                changes[driver] += 1
            elif kind == "driver":
                assert body["epoch"] > epoch, "an epoch was granted twice"
                epoch = body["epoch"]
                changes[body["by"]] += body["by"] != driver and driver not in self.left
                driver = body["by"]
            elif kind == "input":
                sender = self.sender[body["id"]]
                assert sender.name == driver, f"{body['id']} was applied while {driver} drove"
                applied.setdefault(sender.name, []).append(body["id"])
        for player in self.everybody:
            mine = applied.get(player.name, [])
            assert mine == player.sent[: len(mine)], f"{player.name} sent {player.sent}, applied is {mine}"
            assert changes[player.name] <= self.takes[player.name], f"{player.name} drives unasked"

    def check_seen(self, player: Player) -> None:
        last = 0
        for item in player.seen:
            if isinstance(item, EventGap):
                assert item.seq >= last
            else:
                assert item.seq == last + 1, f"{player.name} saw {item.seq} after {last}"
                record = self.records[item.seq - 1]
                assert (item.kind, item.body) == (record.kind, record.body)
            last = item.seq
        assert last <= self.journal.durable, "shown before it was durable"


def test_every_interleaving_keeps_the_promises_of_the_link() -> None:
    often = settings(max_examples=settings().max_examples // 5, stateful_step_count=60, derandomize=True)
    run_state_machine_as_test(
        Links, settings=settings(often, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    )
