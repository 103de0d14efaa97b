"""Naming and removing one session of a host."""

from __future__ import annotations

import uuid

from tests.remote.agent_kit import says
from tests.remote.host_commands.test_host_commands import begin, command, refusal
from tests.remote.worker_process import WorkerHost, alive, until


async def named(host: WorkerHost, session: str) -> str:
    (found,) = [body for _, body in await command(host, "ps") if body["session"] == session]
    return str(found["prompt"])


async def test_a_session_is_named_while_it_runs_and_after_it_has_ended(host: WorkerHost, session: str) -> None:
    laptop, hello = await begin(host, session)
    await laptop.turn("what is this?", says("a thing"))
    assert await command(host, "rename", session, title="the  big\nthing") == [("renamed", {"session": session})]
    assert await named(host, session) == "the big thing"
    await laptop.stop()
    await until(lambda: not alive(hello.pid), "the daemon has ended")
    assert await named(host, session) == "the big thing"
    await command(host, "rename", session, title="")
    assert await named(host, session) == "what is this?"


async def test_remove_takes_a_session_away_but_not_one_that_a_client_drives(host: WorkerHost, session: str) -> None:
    other = str(uuid.uuid4())
    await host.ended(other)
    _, hello = await begin(host, session)
    assert ("removed", str(host.state(other))) in [(k, b.get("path")) for k, b in await command(host, "remove", other)]
    assert not host.state(other).exists() and host.state(session).exists()
    refused = await refusal(host, "remove", session)
    assert refused.code == "in_use" and "me@laptop drives this session now" in refused.message
    assert alive(hello.pid)
    assert "removed" in [kind for kind, _ in await command(host, "remove", session, driven=True)]
    await until(lambda: not alive(hello.pid), "the daemon has ended")
    assert not host.state(session).exists()
