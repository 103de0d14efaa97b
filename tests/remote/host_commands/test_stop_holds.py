"""`ccb stop` ends a session for its clients too: a client that reconnects does not start it again, a person does."""

from __future__ import annotations

import os
import signal
import uuid

import pytest
from tests.remote.host_commands.test_host_commands import command
from tests.remote.worker_process import WorkerHost, alive, until

from ccb.tunnel.wire.frames import Attach, Event, Hello
from ccb.tunnel.wire.session_options import SessionOptions


@pytest.mark.parametrize("worker", ["asked", "stuck", "killed before"])
async def test_a_client_that_comes_back_by_itself_does_not_start_a_session_that_was_stopped(
    host: WorkerHost, session: str, worker: str
) -> None:
    client = await host.drive(session, SessionOptions(client="me@laptop"))
    await client.opened("one")
    waiting = await client.say("two")
    await client.next(Event, lambda event: event.kind == "input" and event.body["id"] == waiting)
    if worker == "stuck":
        os.kill(client.hello.pid, signal.SIGSTOP)
    elif worker == "killed before":
        await host.kill_worker(client.hello.pid)
    else:
        await client.drop()
    await command(host, "stop", session)
    assert not alive(client.hello.pid)
    journal = (host.state(session) / "journal.jsonl").read_bytes()
    for _ in range(2):
        refused = await host.refused(session, create=False, again=True)
        assert (refused.code, refused.message) == ("stopped", "the session was stopped with `ccb stop`")
    assert host.runtime_files() == []
    assert (host.state(session) / "journal.jsonl").read_bytes() == journal, "nothing has gone on"


async def test_a_person_starts_it_again_and_then_clients_come_back_as_ever(host: WorkerHost, session: str) -> None:
    client = await host.drive(session, SessionOptions(client="me@laptop"))
    await client.opened("one")
    await command(host, "stop", session)
    person = await host.drive(session, SessionOptions(client="you@desk"), create=False)
    await person.message("result")
    os.kill(person.hello.pid, signal.SIGTERM)  # as when the host goes down
    while await person.read():
        pass
    await until(lambda: not alive(person.hello.pid), "the worker has ended")
    assert (await host.greeted(session, create=False, again=True)).pid != person.hello.pid


async def test_a_client_that_comes_back_while_the_session_is_stopped_is_not_served(
    host: WorkerHost, session: str
) -> None:
    """It reaches a worker that is stuck, and is cut off with it."""
    client = await host.drive(session, SessionOptions(client="me@laptop"))
    await client.opened("one")
    os.kill(client.hello.pid, signal.SIGSTOP)
    back = await host.connect(session, create=False, again=True)
    await back.send(Attach(client.hello.epoch + 2, "driver", 0, uuid.uuid4().hex, {"client": "me@laptop"}))
    await command(host, "stop", session)
    while await back.read():
        pass
    assert not any(isinstance(frame, Hello) for frame in back.frames)
    assert (await host.refused(session, create=False, again=True)).code == "stopped"
