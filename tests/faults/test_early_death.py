"""A laptop that dies before its session has begun leaves no process, no socket and no half file on the host."""

from __future__ import annotations

import asyncio

import pytest
from tests.faults.play.host import kept_by, left_by
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import name_of, processes_of
from tests.support.machine.waiting import until
from tests.support.network.relay import Fault, relay
from tests.support.person.laptop import STREAMS

from ccb.deploy.bundle import load

MARKS = {
    "handshake": (1_500, 0.0),
    "login": (4_500, 0.0),
    "deploy": (12_000, 0.0),
    "in the bundle": (12_000, 0.5),
    "end of the bundle": (0, 1.0),  # login and command line take 10 KB before it
}  # bytes that were sent when ccb is killed, and shares of the bundle

WHOLE = ("worker/*.bundle", "worker/login.json", "/.made", "/journal.jsonl", "/daemon.log", "/epoch", "/summary.json")


def partial(kept: set[str]) -> list[str]:
    return sorted(name for name in kept if not name.endswith(WHOLE))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("where", MARKS)
@pytest.mark.quick_rows(2)
async def test_nothing_is_left_of_a_ccb_that_is_killed_on_its_way(host: Host, where: str) -> None:
    async with relay(host.server.port) as between:
        async with host.start("-p", *STREAMS, port=between.port) as run:

            async def kill() -> None:
                run.process.kill()

            sent, share = MARKS[where]
            at = sent + int(share * len(load().packed("xz")))
            fault = Fault("call", at, upward=True, act=kill)
            between.faults.append(fault)
            async with asyncio.timeout(30):
                await run.process.wait()
            assert fault.happened
        assert await left_by(host.user) == []
        assert partial(kept_by(host.user)) == []


@pytest.mark.timeout(120)
@pytest.mark.thorough
async def test_nothing_is_left_of_a_ccb_that_vanishes_without_a_word(host: Host) -> None:
    """The laptop loses its power: nobody closes the connection. The system's sshd waits for its own time-out."""
    async with relay(host.server.port) as between:
        async with host.start("-p", *STREAMS, port=between.port) as run:
            await until(lambda: any(name_of(process) == "ccb" for process in processes_of(host.user)))
            between.freeze()
            run.process.kill()
            await until(lambda: {name_of(process) for process in processes_of(host.user)} <= {"sshd", ""})
        assert partial(kept_by(host.user)) == []
