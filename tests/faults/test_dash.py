"""`ccb dash` in the middle of faults: its rows end as the sessions of the host are, and each change is told once."""

from __future__ import annotations

import asyncio
import json
import os
import random

import pytest
from tests.faults.play.host import left_by
from tests.faults.play.plan import DEAD_S
from tests.support.hosts.reached_host import Host
from tests.support.model.model_script import uses
from tests.support.network.relay import Fault, relay
from tests.support.person.laptop import STDIO, Json, Running, user_message

pytestmark = pytest.mark.visited

SEED = os.environ.get("CCB_FAULT_SEEDS", "1")
TURNS = 3
FAULTS = ["reset", "close", "freeze", "repeat", "double", "slow"]


async def shows(dash: Running, state: str, last: str) -> None:
    """Wait for the row of the session with this state and these last words. No row comes twice in a row."""
    assert dash.process.stdout is not None
    async with asyncio.timeout(60):
        while True:
            row: Json = json.loads(await dash.process.stdout.readline())
            if "state" in row:
                lasting = {name: value for name, value in row.items() if not name.endswith("_s")}
                assert lasting not in dash.lines[-1:]
                dash.lines.append(lasting)
                if row["state"] == state and last in row["last"]:
                    return


@pytest.mark.timeout(240)
@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("kind", FAULTS)
async def test_a_dash_in_the_middle_of_a_fault(host: Host, kind: str) -> None:
    for turn in range(TURNS):
        host.model.add(uses("Bash", command=f"echo {turn} >> count"), {"text": f"That was turn {turn}."})
    async with relay(host.server.port) as between, host.start("-p", *STDIO) as driver:
        words = ["dash", "--json", "--follow", f"ssh://{host.login}:{between.port}"]
        async with host.laptop.start([*words, *host.server.client_options(between.port)[2:]]) as dash:
            for turn in range(TURNS):
                await driver.send(user_message("go on"))
                asks = await driver.until("control_request")
                await shows(dash, "requires_action", f"echo {turn}")
                if turn == 0:
                    at = between.down + random.Random(f"{SEED} {kind}").randrange(1, 1_000)
                    fault = Fault(kind, at, upward=False, seconds=DEAD_S)
                    between.faults.append(fault)
                await driver.reply(asks, {"behavior": "allow", "updatedInput": asks["request"]["input"]})
                await driver.until("result")
            await shows(dash, "idle", "That was turn 2.")
            assert fault.happened
            await driver.finish()
    assert await left_by(host.user) == []
