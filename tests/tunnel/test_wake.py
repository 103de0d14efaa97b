"""What makes a laptop doubt its connections: sleep, a stop of the process, another network; and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ccb.tunnel.wake import asleep_clock, changes, source_addresses


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
        return changes(0.001, asleep=(lambda: self.slept, 2.0), monotonic=lambda: self.now, addresses=self.look)


@pytest.fixture
def machine() -> Machine:
    return Machine()


async def looked_twice(machine: Machine, said: list[str]) -> None:
    """Wait until it has looked at what was changed, and once more."""
    before = machine.looks
    async with asyncio.timeout(10):
        while machine.looks < before + 2:
            await asyncio.sleep(0.001)
    assert said is not None


async def reasons(machine: Machine, *moves: dict[str, object]) -> list[str]:
    """What is said after each of the moves."""
    said: list[str] = []

    async def listen() -> None:
        async for reason in machine.changes():
            said.append(reason)  # noqa: PERF401 - it never ends

    listening = asyncio.create_task(listen())
    try:
        await looked_twice(machine, said)
        for move in moves:
            for name, value in move.items():
                setattr(machine, name, value)
            await looked_twice(machine, said)
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


def test_the_real_clock_of_sleep_stands_still_while_awake() -> None:
    slept, enough = asleep_clock()
    assert abs(slept() - slept()) < enough


def test_the_real_addresses_are_found_without_sending() -> None:
    assert len(source_addresses()) == 2
