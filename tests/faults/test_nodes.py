"""A login name that leads to another node after each fault: the session goes on, on its own node, whole and once."""

from __future__ import annotations

import itertools

import pytest
from tests.e2e.hosts.test_cluster import site, workers
from tests.faults.play.plan import DEAD_S
from tests.support.hosts.cluster import Cluster
from tests.support.model.model_script import Script, uses
from tests.support.network.relay import Fault, relay
from tests.support.person.laptop import STREAMS, user_message

pytestmark = pytest.mark.visited

__all__ = ["site"]
TURNS = 3


@pytest.mark.timeout(240)
@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("upward", [True, False], ids=["prompts", "events"])
@pytest.mark.parametrize("kind", ["reset", "close", "freeze", "repeat", "double"])
async def test_what_is_sent_in_the_middle_of_a_fault_is_done_once_whichever_node_comes_next(
    site: Cluster, kind: str, upward: bool
) -> None:
    model = site.host.model
    model.script = Script([])
    for number in range(TURNS):
        call = uses("Bash", command=f"echo {number} >> done")
        model.add({**call, "when": {"user_contains": f"turn {number}"}}, {"text": "done"})
    async with relay(site.host.server.port) as between:
        site.trust(between.port)
        words = ["-p", *STREAMS, "--allowedTools", "Bash"]
        async with site.host.start(*words, port=between.port) as running:
            for number in itertools.count():
                await running.send(user_message(f"turn {number}"))
                result = await running.until("result")
                assert not result["is_error"], result
                if number == TURNS - 1:
                    break
                at = (between.up if upward else between.down) + 400
                between.faults.append(Fault(kind, at, upward=upward, seconds=DEAD_S))
            done = await running.finish()
    assert done.code == 0, done.stderr
    assert (site.host.home / "done").read_text().split() == [str(number) for number in range(TURNS)]
    assert len(workers(site, result["session_id"])) == 1 and any(each.happened for each in between.faults)
