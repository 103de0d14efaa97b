"""A shell in the middle of faults: what is typed arrives once and in order, or the shell is said to be gone."""

from __future__ import annotations

import random

import pytest
from tests.e2e.hosts.test_shell import shell
from tests.faults.play.host import kill_worker, left_by
from tests.faults.play.plan import DEAD_S
from tests.support.hosts.reached_host import Host
from tests.support.network.relay import Fault, relay

pytestmark = pytest.mark.visited

LINES = [random.Random(number).randbytes(30).hex() for number in range(60)]


@pytest.mark.timeout(240)
@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("upward", [True, False], ids=["typed", "shown"])
@pytest.mark.parametrize("kind", ["reset", "close", "freeze", "repeat", "double"])
async def test_what_is_typed_in_the_middle_of_a_fault_arrives_once_and_in_order(
    host: Host, kind: str, upward: bool
) -> None:
    async with relay(host.server.port) as between, shell(host, port=between.port) as running:
        running.type("cat > typed; exit 4\r")
        await running.shows("exit 4\r\n")
        at = (between.up if upward else between.down) + 400
        fault = Fault(kind, at, upward=upward, seconds=DEAD_S)
        between.faults.append(fault)
        for line in LINES:
            running.type(line + "\r")
        running.type("\x04")
        assert await running.ended() == 4
        assert fault.happened
    assert (host.home / "typed").read_text().splitlines() == LINES


@pytest.mark.timeout(240)
async def test_a_shell_whose_daemon_is_killed_is_said_to_be_gone_and_leaves_nothing(host: Host) -> None:
    async with shell(host) as running:
        running.type("sleep 4321 &\r")
        kill_worker(host.user)
        assert await running.ended() != 0
    assert await left_by(host.user) == []
