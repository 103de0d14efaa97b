"""Nodes that share a home behind one login name: each session runs on one of them, and is reached over any."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.hosts.cluster import Cluster, cluster
from tests.support.hosts.sshd import HostUser
from tests.support.machine.processes import processes_of
from tests.support.machine.waiting import until
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import STREAMS, Laptop, Running, user_message

pytestmark = pytest.mark.visited

JSON = ["--output-format", "json"]


@pytest.fixture
async def site(tmp_path: Path, laptop: Laptop, fake_model: FakeModel, host_user: HostUser) -> AsyncIterator[Cluster]:
    fake_model.add({"text": "done", "times": 0})
    async with cluster(tmp_path / "nodes", laptop, fake_model, host_user) as made:
        yield made


@asynccontextmanager
async def lives_on(site: Cluster, name: str) -> AsyncIterator[tuple[str, Running]]:
    """A session with an idle worker on a node, and a laptop that drives it."""
    site.leads_to[:] = [name]
    async with site.host.start("-p", *STREAMS, "--reconnect-timeout", "0") as running:
        await running.send(user_message("begin"))
        session = (await running.until("result"))["session_id"]
        yield session, running


def workers(site: Cluster, session: str) -> list[int]:
    """The numbers of all records, checked to be without a gap, of which those of workers are returned."""
    path = site.host.home / ".local/state/ccb/sessions" / session / "journal.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["seq"] for each in records] == list(range(1, len(records) + 1))
    return [each["seq"] for each in records if each["kind"] in ("options", "worker") and each["body"].get("pid")]


async def test_a_session_is_reached_on_its_node_over_another_one(site: Cluster) -> None:
    async with lives_on(site, "n1") as (session, _):
        assert '"hostname": "n1"' in site.owner(session)
        done = await site.run("n2", "--resume", session, "-p", "go on", *JSON)
        assert done.code == 0 and json.loads(done.stdout)["session_id"] == session, done.stderr
        assert len(workers(site, session)) == 1, "it is the same worker"


async def test_the_list_has_the_sessions_of_both_nodes_and_stop_goes_through(site: Cluster) -> None:
    async with lives_on(site, "n1") as (one, _), lives_on(site, "n2") as (other, _):
        site.leads_to[:] = ["n2"]
        listed = await site.host.command("ps", "--json")
        rows = {row["session"]: row for row in map(json.loads, listed.stdout.splitlines())}
        assert {name: (row["alive"], row["host"]) for name, row in rows.items()} == {
            one: (True, "n1"),
            other: (True, ""),
        }
        assert "idle on n1" in (await site.host.command("ps")).stdout
        everything = await site.host.command("stop", "--all")
        assert everything.code == 1 and f"stopped {other}" in everything.stdout
        assert one in everything.stderr and "it may run on n1" in everything.stderr
        stopped = await site.host.command("stop", one)
        assert stopped.code == 0 and f"stopped {one} (ended when asked)" in stopped.stdout, stopped.stderr
        assert site.owner(one) == "", "the session is free"
        done = await site.run("n2", "--resume", one, "-p", "go on", *JSON)
        assert done.code == 0 and len(workers(site, one)) == 2, done.stderr


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("dead", [False, True], ids=["that has ended", "of a node that is gone"])
async def test_two_nodes_do_not_start_one_session_at_once(site: Cluster, dead: bool) -> None:
    async with lives_on(site, "n1") as (session, running):
        if dead:
            await site.down("n1")
        else:
            assert (await running.finish()).code == 0
    await until(lambda: dead or site.owner(session) == "")
    site.leads_to[:] = ["n2", "n3"]
    words = ["--resume", session, "-p", "go on", *JSON, "--take-over-node"]
    done = await asyncio.gather(*[site.host.run(*words) for _ in range(4)])
    assert any(each.code == 0 for each in done), [each.stderr for each in done]
    assert all("Traceback" not in each.stderr for each in done)
    await until(lambda: site.owner(session) == "")
    workers(site, session)


async def test_a_session_of_a_node_that_is_gone_is_taken_over_only_if_somebody_says_so(site: Cluster) -> None:
    async with lives_on(site, "n1") as (session, _):
        await site.down("n1")
    resume = ["--resume", session, "-p", "go on", *JSON]
    refused = await site.run("n2", *resume)
    assert refused.refuses(69, "node n1 cannot be reached", "--take-over-node")
    assert len(workers(site, session)) == 1 and '"hostname": "n1"' in site.owner(session)
    stopped = await site.host.command("stop", session)
    assert stopped.refuses(69, "node n1 cannot be reached")
    listed = await site.host.command("ps")
    assert "not heard on n1" in listed.stdout and "lists no sessions: " in listed.stderr, listed.stdout
    async with site.host.on_terminal("--plain", "--resume", session) as terminal:
        await terminal.shows("Take the session over? (yes/no)")
        terminal.type("no\r")
        assert await terminal.ended() == 69
    assert '"hostname": "n1"' in site.owner(session)
    done = await site.run("n2", *resume, "--take-over-node")
    assert done.code == 0 and len(workers(site, session)) == 2, done.stderr


async def test_a_screen_that_loses_the_node_asks_whether_to_go_on_without_it(site: Cluster) -> None:
    async with lives_on(site, "n1") as (session, _):
        site.leads_to[:] = ["n2"]
        async with site.host.on_terminal("--resume", session) as terminal:
            await terminal.shows("● ")
            await site.down("n1")
            await terminal.shows("node n1 cannot be reached")
            terminal.type("r")
            await terminal.shows("Take the session over? (yes/no)")
            terminal.type("yes\r")
            await until(lambda: '"hostname": "n2"' in site.owner(session))
            terminal.type("go on\r")
            await until(lambda: len(site.host.model.requests) == 2)
    assert len(workers(site, session)) == 2


async def test_a_session_moves_away_from_its_node(site: Cluster, project: Path) -> None:
    async with lives_on(site, "n1") as (session, running):
        site.leads_to[:] = ["n2"]
        refused = await site.host.command("move", session, str(project), "--no-files")
        assert refused.refuses(2, "drives this session now"), "its worker has said that"
        assert (await running.finish()).code == 0
    moved = await site.host.command("move", session, str(project), "--no-files")
    assert moved.code == 0 and f"moved {session[:8]}" in moved.stdout, moved.stderr


async def test_a_worker_whose_node_was_only_cut_off_writes_no_more(site: Cluster) -> None:
    async with lives_on(site, "n1") as (session, running):
        config = site.host.home / ".ssh/config"
        config.write_text(config.read_text().replace("Host n1", "Host n1\n  Port 1"))
        done = await site.run("n2", "--resume", session, "-p", "go on", *JSON, "--take-over-node")
        assert done.code == 0 and len(workers(site, session)) == 2, done.stderr
        await running.send(user_message("too late"))
        assert (await running.finish()).code == 75
        await until(lambda: not processes_of(site.host.user))
    assert len(workers(site, session)) == 2
    assert "too late" not in (site.host.home / f".local/state/ccb/sessions/{session}/journal.jsonl").read_text()
