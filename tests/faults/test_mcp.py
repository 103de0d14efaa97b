"""MCP servers of a project over a real sshd whose link is cut, and whose worker is killed: each call runs once, and no
server is left behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.faults.play.host import kill_worker, left_by
from tests.faults.test_sub_agents import argv, laptop_of, said
from tests.faults.work.servers import ALLOWED, MCP_JSON, count
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import relay

pytestmark = pytest.mark.visited

Json = dict[str, Any]


def bring(user: HostUser) -> None:
    (user.home / ".mcp.json").write_text(MCP_JSON)


def call(word: str) -> Json:
    return {"blocks": [count(word, until=word)]}


def results(fake: FakeModel) -> list[str]:
    blocks = [block for message in fake.requests[-1].messages for block in message["content"]]
    return [json.dumps(block["content"]) for block in blocks if block["type"] == "tool_result"]


async def counted(home: Path, line: str) -> None:
    async with asyncio.timeout(40):
        while not (home / "count").exists() or line not in (home / "count").read_text():
            await asyncio.sleep(0.02)


async def test_a_call_that_runs_while_the_link_is_cut_or_its_worker_dies_runs_once(
    tmp_path: Path, sshd: Sshd, host_user: HostUser
) -> None:
    home = host_user.home
    bring(host_user)
    (home / "third").touch()
    script = [call("first"), {"text": "one"}, call("second"), call("third"), {"text": "three"}]
    flags = ["--trust", "--allowedTools", ALLOWED]
    async with FakeModel(script) as fake, relay(sshd.port) as between:
        async with laptop_of(tmp_path, fake).start([*argv(host_user, sshd, between.port), *flags]) as run:
            await run.send(said("go"))
            await counted(home, "first")
            between.freeze()
            between.cut()
            (home / "first").touch()  # the call ends while nobody is connected
            between.thaw()
            assert (await run.until("result"))["result"] == "one"
            await run.send(said("again"))
            await counted(home, "second")
            kill_worker(host_user)
            assert (await run.until("result"))["is_error"]
            (home / "second").touch()
            await run.send(said("once more"))
            assert (await run.until("result"))["result"] == "three"
            run.end_input()
            done = await run.done()
        assert done.code == 0, done.stderr
        assert (home / "count").read_text().splitlines() == [
            *("first", "first-ended", "second", "third", "third-ended")
        ]
        found = results(fake)
        assert len(found) == 3 and found[0] == '"counted first"' and found[2] == '"counted third"', found
        assert len(fake.requests) == 5
    assert await left_by(host_user) == []
