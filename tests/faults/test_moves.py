"""A move in the middle of faults: the session arrives whole, and one side owns it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.hosts.test_moving import JSON, SIZE, kept_much, move, owners
from tests.faults.play.plan import DEAD_S
from tests.support.hosts.reached_host import Host
from tests.support.network.relay import Fault, relay

pytestmark = pytest.mark.visited


@pytest.mark.timeout(240)
@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("share", [0.02, 0.6, 1.0])
@pytest.mark.parametrize("kind", ["reset", "close", "freeze", "repeat", "double"])
async def test_a_move_in_the_middle_of_a_fault_arrives_whole_or_goes_on_when_given_again(
    host: Host, project: Path, kind: str, share: float
) -> None:
    session = await kept_much(host, project)
    async with relay(host.server.port) as between:
        between.faults = [Fault(kind, int(SIZE * share), True, seconds=DEAD_S)]
        host.server.trust(between.port)
        words = move(host, session, "app", "--no-files", port=between.port)
        done = await host.laptop.run(words)
        assert between.faults[0].happened
        assert owners(host, session) in (["laptop"], ["host"], [])
        if done.code:
            done = await host.laptop.run(words)
    assert done.code == 0, done.stderr
    assert owners(host, session) == ["host"]
    done = await host.run("--resume", session, "-p", "go on", *JSON, path="app")
    assert done.code == 0, done.stderr
