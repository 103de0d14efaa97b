"""Small fleets in the middle of faults: each place does its work once and has its answer, and nothing is left."""

from __future__ import annotations

import json

import psutil
import pytest
from tests.e2e.fleet import test_kubernetes as submitted
from tests.e2e.fleet.test_fleet import of, tasks, words
from tests.faults.play.host import kill_worker, left_by
from tests.faults.play.plan import DEAD_S
from tests.support.hosts.kubernetes import missing
from tests.support.hosts.reached_host import Host
from tests.support.machine.waiting import until
from tests.support.model.model_script import uses
from tests.support.network.relay import Fault, relay
from tests.support.person.laptop import Running

pytestmark = pytest.mark.visited

PLACES = ("a", "b", "c")
WORK = "echo begun >> did; while [ ! -e ../go ]; do sleep 0.05; done; echo done >> did"


def script(host: Host) -> None:
    for each in PLACES:
        host.model.add(of(each, uses("Bash", command=WORK), tools=False, times=0))
        host.model.add(of(each, {"text": f"did {each}"}, tools=True, times=0))


async def began(host: Host) -> None:
    await until(lambda: all((host.home / each / "did").exists() for each in PLACES))


@pytest.mark.thorough
@pytest.mark.timeout(240)
@pytest.mark.parametrize("early", [False, True], ids=["at work", "while it begins"])
@pytest.mark.parametrize("kind", ["reset", "close", "freeze", "double"])
async def test_a_fleet_over_a_faulty_link_does_everything_once(host: Host, kind: str, early: bool) -> None:
    script(host)
    async with relay(host.server.port) as between:
        faults = [Fault(kind, at, upward=False, seconds=DEAD_S) for at in (12_000, 40_000)]
        between.faults += faults if early else []
        run = words(host, "--allowedTools=Bash", places=PLACES, port=between.port)
        async with host.laptop.start(run, piped=False) as running:
            await began(host)
            if not early:
                between.faults.append(Fault(kind, between.down + 100, upward=False, seconds=DEAD_S))
            host.put("go", b"")
            done = await running.done(timeout=120)
    assert done.code == 0, done.stderr
    assert {each: row["text"] for each, row in tasks(done).items()} == {each: f"did {each}" for each in PLACES}
    assert {(host.home / each / "did").read_text() for each in PLACES} == {"begun\ndone\n"}
    assert len(host.model.requests) == 2 * len(PLACES), "nothing is asked and paid twice"
    assert await left_by(host.user) == []


@pytest.mark.timeout(240)
@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("killed", ["ccb", "daemons"])
async def test_a_fleet_that_is_killed_goes_on_where_it_was(host: Host, killed: str) -> None:
    script(host)
    async with host.laptop.start(words(host, "--allowedTools=Bash", places=PLACES), piped=False) as running:
        await began(host)
        running.process.kill()
        await running.process.wait()
    if killed == "daemons":
        kill_worker(host.user)
    host.put("go", b"")
    again = await host.laptop.run(["fleet", "run", "--resume-failed", "web"])
    assert again.code == 0, again.stderr
    assert {each: row["text"] for each, row in tasks(again).items()} == {each: f"did {each}" for each in PLACES}
    assert {(host.home / each / "did").read_text() for each in PLACES} == {"begun\ndone\n"}
    assert await left_by(host.user) == []


site = submitted.site


async def faulty(site: submitted.Site, running: Running, fault: str) -> None:
    """Let a submitted fleet lose all its links, its collector, its pods, or the API of its cluster as well."""
    kubectl = site.cluster.programs / "kubectl"
    if fault == "cluster":
        kubectl.rename(kubectl.with_name("away"))
        kubectl.write_text("#!/bin/sh\necho 'Unable to connect to the server: EOF' >&2; exit 1\n")
        kubectl.chmod(0o755)
    if fault == "pods":
        for pod in site.cluster.pods:
            site.cluster.evict(pod)
    elif fault == "collector":
        running.process.kill()
    else:
        for each in psutil.Process(running.process.pid).children(recursive=True):
            each.kill()
    if fault == "cluster":
        assert running.process.stderr is not None
        await running.process.stderr.readuntil(b"it is asked again")
        kubectl.with_name("away").rename(kubectl)


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.timeout(240)
@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("fault", ["links", "pods", "collector", "cluster"])
async def test_a_submitted_fleet_does_everything_once(site: submitted.Site, fault: str) -> None:
    volume, prompts = site.work / "volume", site.laptop.home / "prompts"
    for folder in (volume, *(site.work / each for each in PLACES)):
        folder.mkdir()
    lines = [{"prompt": "Work.", "directory": each} for each in PLACES]
    prompts.write_text("".join(json.dumps(each) + "\n" for each in lines))
    for each in PLACES:
        done = {"text": f"did {each}"}
        site.model.add(of(each, uses("Bash", command="echo done >> did"), tools=False))
        site.model.add(of(each, {**done, "stall_after": 2}, tools=True), of(each, done, times=0))
    await site.submit("--prompts", str(prompts), state=volume)
    collect = ["fleet", "collect", "night"]
    async with site.laptop.start(collect, piped=False) as running:
        await site.model.until(lambda model: len(model.requests) == 2 * len(PLACES))
        await faulty(site, running, fault)
        site.model.release()
        answered = await running.done()
    if fault == "collector":
        answered = await site.laptop.run(collect)
    assert answered.code == 0, answered.stderr
    assert submitted.answers(answered) == {index: f"did {each}" for index, each in enumerate(PLACES)}
    assert {(site.work / each / "did").read_text() for each in PLACES} == {"done\n"}
    assert len(site.model.requests) <= 3 * len(PLACES), "an answer that was cut off is asked for once more"
    await until(lambda: not site.cluster.jobs and not site.cluster.maps)
