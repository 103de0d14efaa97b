"""What makes a laptop doubt its connections: sleep, a stop of the process, another network; and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from tests.support.machine.waiting import until

from ccb.tunnel import reconnecting
from ccb.tunnel.reconnecting import MAX_QUICK, SLEPT_S, Pace, changes, slept_s, source_addresses, waits


@dataclass
class Machine:
    """Clocks and addresses that a test moves."""

    slept: float = 0.0
    now: float = 0.0
    addresses: tuple[str | None, ...] = ("10.0.0.2", None)
    looks: int = 0

    def look(self) -> tuple[str | None, ...]:
        self.looks += 1
        return self.addresses


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(reconnecting, "time", SimpleNamespace(monotonic=lambda: made.now))
    monkeypatch.setattr(reconnecting, "slept_s", lambda: made.slept)
    monkeypatch.setattr(reconnecting, "source_addresses", made.look)
    return made


async def looked_twice(machine: Machine) -> None:
    """Wait until it has looked at what was changed, and once more."""
    before = machine.looks
    await until(lambda: machine.looks >= before + 2)


async def reasons(machine: Machine, *moves: dict[str, object]) -> list[str]:
    """What is said after each of the moves."""
    said: list[str] = []

    async def listen() -> None:
        async for reason in changes(0.001):
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


SLEPT, NETWORK = "this machine was asleep for 3600 s", "the network has changed"
GONE: tuple[str | None, ...] = (None, None)


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ([{"slept": 3600.0}, {}], [SLEPT]),
        ([{"slept": 1.9}], []),
        ([{"now": 120.0}], ["this process was stopped for 120 s"]),
        ([{"now": 5.0}], []),
        ([{"addresses": ("192.168.1.7", None)}], [NETWORK]),
        ([{"addresses": GONE}], []),
        ([{"addresses": GONE}, {"addresses": ("10.0.0.2", None)}], [NETWORK]),
        ([{"addresses": ("10.0.0.2", "2001:db8::7")}], [NETWORK]),
    ],
)
async def test_what_is_told_of_the_machine(machine: Machine, moves: list[dict[str, object]], said: list[str]) -> None:
    assert await reasons(machine, *moves) == said


async def test_the_time_a_reader_takes_for_a_sentence_is_no_stop(machine: Machine) -> None:
    reading = changes(0.001)
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


@pytest.mark.parametrize(
    ("with_sleep", "without"), [("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"), ("CLOCK_MONOTONIC", "CLOCK_UPTIME_RAW")]
)
def test_the_sleep_of_linux_and_macos_is_counted_and_no_other_clock(with_sleep: str, without: str) -> None:
    clocks = {with_sleep: 1512.0, without: 1500.0}
    assert slept_s(SimpleNamespace(clock_gettime=clocks.get, **{name: name for name in clocks})) == 12
    assert slept_s(SimpleNamespace()) == 0
    assert abs(slept_s() - slept_s()) < SLEPT_S
    assert len(source_addresses()) == 2, "the real ones are found without sending"


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
