"""What makes a laptop doubt its connections: sleep, a stop of the process, another network; and what does not.

- The pace of reconnecting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace

import pytest

from ccb.tunnel import reconnecting
from ccb.tunnel.reconnecting import MAX_QUICK, Clocks, Pace, changes, machine_clocks, source_addresses, waits


class Machine:
    """Clocks and addresses that a test moves."""

    def __init__(self) -> None:
        self.slept = 0.0
        self.now = 0.0
        self.addresses: tuple[str | None, ...] = ("10.0.0.2", None)
        self.looks = 0

    def look(self) -> tuple[str | None, ...]:
        self.looks += 1
        return self.addresses

    def changes(self) -> AsyncIterator[str]:
        return changes(0.001, clocks=Clocks(lambda: self.now, lambda: self.slept, 2.0), addresses=self.look)


@pytest.fixture
def machine() -> Machine:
    return Machine()


async def looked_twice(machine: Machine) -> None:
    """Wait until it has looked at what was changed, and once more."""
    before = machine.looks
    async with asyncio.timeout(60):
        while machine.looks < before + 2:
            await asyncio.sleep(0.001)


async def reasons(machine: Machine, *moves: dict[str, object]) -> list[str]:
    """What is said after each of the moves."""
    said: list[str] = []

    async def listen() -> None:
        async for reason in machine.changes():
            said.append(reason)  # noqa: PERF401 - it never ends

    listening = asyncio.create_task(listen())
    try:
        await looked_twice(machine)
        for move in moves:
            for name, value in move.items():
                setattr(machine, name, value)
            await looked_twice(machine)
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    return said


async def test_sleep_is_told_once(machine: Machine) -> None:
    assert await reasons(machine, {"slept": 3600.0}, {}) == ["this machine was asleep for 3600 s"]


async def test_a_step_of_less_than_the_threshold_is_no_sleep(machine: Machine) -> None:
    assert await reasons(machine, {"slept": 1.9}) == []


async def test_a_process_that_was_stopped_finds_its_timer_late(machine: Machine) -> None:
    assert await reasons(machine, {"now": 120.0}) == ["this process was stopped for 120 s"]


async def test_another_address_is_another_network(machine: Machine) -> None:
    assert await reasons(machine, {"addresses": ("192.168.1.7", None)}) == ["the network has changed"]


async def test_a_route_that_goes_is_no_change_and_one_that_comes_is(machine: Machine) -> None:
    gone: tuple[str | None, ...] = (None, None)
    assert await reasons(machine, {"addresses": gone}) == []
    assert await reasons(machine, {"addresses": gone}, {"addresses": ("10.0.0.2", None)}) == ["the network has changed"]
    assert await reasons(machine, {"addresses": ("10.0.0.2", "2001:db8::7")}) == ["the network has changed"]


async def test_a_timer_that_is_a_little_late_is_no_stop(machine: Machine) -> None:
    assert await reasons(machine, {"now": 5.0}) == []


async def test_the_time_a_reader_takes_for_a_sentence_is_no_stop(machine: Machine) -> None:
    reading = machine.changes()
    async with asyncio.timeout(60):
        starting = asyncio.ensure_future(anext(reading))
        while not machine.looks:
            await asyncio.sleep(0)
        machine.slept += 3600.0
        assert await starting == "this machine was asleep for 3600 s"
        machine.now += 120.0
        looking = asyncio.ensure_future(anext(reading))
        await looked_twice(machine)
        machine.addresses = ("192.168.1.7", None)
        assert await looking == "the network has changed"


class SystemTime:
    """The clocks of a system with these ids: sleep, time awake and a new wall-clock time move them as documented."""

    def __init__(self, counts_sleep: str = "", counts_awake: str = "") -> None:
        self.awake, self.slept, self.set_by = 1000.0, 0.0, 0.0
        self.source = SimpleNamespace(
            time=lambda: self.awake + self.slept + self.set_by, monotonic=lambda: self.awake, clock_gettime=self._read
        )
        self._counts_sleep = counts_sleep
        for name in filter(None, (counts_sleep, counts_awake)):
            setattr(self.source, name, name)

    def _read(self, clock: str) -> float:
        return self.awake + self.slept if clock == self._counts_sleep else self.awake


LINUX = ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC")
MACOS = ("CLOCK_MONOTONIC", "CLOCK_UPTIME_RAW")


@pytest.mark.parametrize("ids", [LINUX, MACOS])
def test_where_sleep_is_counted_only_sleep_moves_the_clock_of_sleep(ids: tuple[str, str]) -> None:
    system = SystemTime(*ids)
    clocks = machine_clocks(system.source)
    before = clocks.slept()
    system.awake += 500
    system.set_by = 86_400  # a step of NTP, as large as it may be
    assert clocks.slept() == before
    system.slept = 12
    assert clocks.slept() - before == 12 >= clocks.enough


def test_where_only_the_wall_clock_tells_a_small_step_of_it_is_no_sleep() -> None:
    system = SystemTime()
    clocks = machine_clocks(system.source)
    before = clocks.slept()
    system.set_by = 2
    assert clocks.slept() - before < clocks.enough == 10
    system.slept = 12
    assert clocks.slept() - before >= clocks.enough


def test_the_real_clock_of_sleep_stands_still_while_awake() -> None:
    clocks = machine_clocks()
    assert abs(clocks.slept() - clocks.slept()) < clocks.enough


def test_the_real_addresses_are_found_without_sending() -> None:
    assert len(source_addresses()) == 2


def plain() -> Iterator[float]:
    return waits(lambda: 0.5)


def test_attempts_wait_longer_and_longer_and_begin_anew_after_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting, "STEADY_S", 0.0)
    pace = Pace(plain)
    for _ in range(MAX_QUICK + 3):
        assert [pace.next() for _ in range(8)] == [0, 1, 2, 4, 8, 16, 30, 30]
        pace.connected()


def test_connections_that_keep_breaking_off_at_once_are_not_made_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting, "STEADY_S", 600.0)
    pace = Pace(plain)
    seen = []
    for _ in range(MAX_QUICK + 4):
        pace.connected()
        seen.append(pace.next())
    assert seen == [0.0] * MAX_QUICK + [1, 2, 4, 8]
    monkeypatch.setattr(reconnecting, "STEADY_S", 0.0)
    pace.connected()
    assert pace.next() == 0, "one that lasted ends it"
