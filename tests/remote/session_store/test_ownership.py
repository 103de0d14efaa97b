"""One session, one daemon: whatever cleaners, logouts, reboots and other hosts of the same home do to its files."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
import uuid
from typing import Any

import pytest
from tests.remote.agent_kit import calls
from tests.remote.worker_process import WorkerHost, alive, until

from ccb.tunnel.wire.frames import Event, Hello
from ccb.tunnel.wire.session_options import SessionOptions


def record(host: WorkerHost, session: str, **owner: Any) -> None:
    (host.state(session) / "summary.json").write_text(json.dumps({**host.summary(session), **owner}))


async def test_a_lock_that_a_cleaner_took_lets_nobody_in(host: WorkerHost, session: str) -> None:
    hello = (await host.drive(session)).hello
    (host.runtime / "ccb" / f"{session}.lock").unlink()
    assert (await host.greeted(session)).pid == hello.pid
    assert (await host.refused(session, fresh=True)).code == "in_use"


async def test_a_runtime_directory_that_a_logout_took_costs_the_running_work_nothing(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session, SessionOptions(allowed_tools=["Bash"]))
    command = "echo run >> count; while [ ! -e go ]; do sleep 0.02; done; echo finished >> count"
    await laptop.begin("go", calls(("toolu_1", "Bash", {"command": command})))
    await until((host.project / "count").exists, "the tool runs")
    shutil.rmtree(host.runtime / "ccb")
    await laptop.drop()
    again = await host.drive(session)
    assert again.hello.pid == laptop.hello.pid
    (host.project / "go").touch()
    await again.call()
    assert (host.project / "count").read_text() == "run\nfinished\n"
    assert (await host.greeted(session)).pid == laptop.hello.pid
    await again.end()
    assert host.runtime_files() == []


async def test_socket_and_lock_are_touched_so_that_cleaners_leave_them(host: WorkerHost, session: str) -> None:
    """Every hour, and when somebody rings."""
    laptop = await host.drive(session)
    await laptop.next(Event)
    files = [host.runtime / "ccb" / f"{session}.{ending}" for ending in ("sock", "lock")]
    for path in files:
        os.utime(path, (1, 1))
    os.kill(laptop.hello.pid, signal.SIGHUP)
    await until(lambda: all(path.stat().st_mtime > 1 for path in files), "both are touched")


async def test_many_logins_without_a_common_lock_find_one_daemon(host: WorkerHost, session: str) -> None:
    await host.ended(session)
    laptops, first = [], host.runtime
    try:
        for number in range(4):
            host.runtime = host.home / str(number)
            host.runtime.mkdir(mode=0o700)
            laptops.append(host.connect(session))
        hellos = await asyncio.gather(*[laptop.next(Hello) for laptop in await asyncio.gather(*laptops)])
    finally:
        host.runtime = first
    assert len({hello.pid for hello in hellos}) == 1


async def test_a_session_of_another_host_with_the_same_home_is_refused_there(host: WorkerHost, session: str) -> None:
    await host.ended(session)
    record(host, session, hostname="nodeb", boot="b", pid=1, started="1")
    refused = await host.refused(session, create=False)
    assert (refused.code, refused.data["host"]) == ("in_use", "nodeb")
    assert "nodeb" in refused.message and "--fork-session" in refused.data["do"]
    assert host.runtime_files() == []
    assert (await host.greeted(str(uuid.uuid4()), fork_of=session)).seq > 1


async def test_a_session_that_another_node_is_about_to_begin_is_left_to_it(host: WorkerHost, session: str) -> None:
    host.state(session).mkdir(parents=True)
    files = {"journal.jsonl": "", "owner.1": json.dumps({"hostname": "nodeb", "boot": "b", "pid": 1})}
    for name, text in files.items():
        (host.state(session) / name).write_text(text)
    refused = await host.refused(session)
    assert (refused.code, refused.data["host"], refused.data["boot"]) == ("in_use", "nodeb", "b")
    assert {path.name: path.read_text() for path in host.state(session).iterdir()} == files
    assert host.runtime_files() == []


async def test_after_a_reboot_the_session_is_taken_over(host: WorkerHost, session: str) -> None:
    hello = (await host.drive(session)).hello
    await host.kill_worker(hello.pid)
    record(host, session, boot="an earlier one")
    assert (await host.drive(session, create=False)).hello.pid != hello.pid
    await until(lambda: host.summary(session).get("boot") != "an earlier one", "the new owner is on record")


async def test_a_worker_in_another_container_of_the_machine_is_named(host: WorkerHost, session: str) -> None:
    """It holds the journal, and its pid means nothing here."""
    hello = (await host.drive(session)).hello
    record(host, session, pid=1, started="1", socket="/x")
    (claim,) = host.state(session).glob("owner.*")
    claim.write_text(json.dumps({**json.loads(claim.read_text()), "hostname": "box"}))
    (host.runtime / "ccb" / f"{session}.lock").unlink()
    refused = await host.refused(session)
    assert (refused.code, refused.data["host"]) == ("in_use", "box")
    assert alive(hello.pid)


async def test_a_session_that_cannot_start_leaves_nothing(host: WorkerHost, session: str) -> None:
    (host.runtime / "ccb" / f"{session}.sock").mkdir(parents=True)
    assert (await host.refused(session)).code == "internal"
    assert not host.state(session).exists()
    assert host.runtime_files() == [f"{session}.sock"]


def zero_first_record(host: WorkerHost, session: str) -> None:
    path = host.state(session) / "journal.jsonl"
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(b"\0" * len(first) + b"\n" + rest)


@pytest.mark.parametrize("known_by", ["summary", "journal"])
@pytest.mark.parametrize("copied", [False, True])
async def test_a_session_whose_first_record_is_damaged_stays_in_its_directory(
    host: WorkerHost, session: str, known_by: str, copied: bool
) -> None:
    began = time.time()
    await host.ended(session)
    ended = time.time()
    zero_first_record(host, session)
    if known_by == "journal":
        (host.state(session) / "summary.json").unlink()
    wanted = {"session": str(uuid.uuid4()), "fork_of": session} if copied else {"session": session, "create": False}
    laptop = await host.drive(cwd="", **wanted)
    assert laptop.hello.cwd == str(host.project)
    await laptop.next(Event, lambda event: event.kind == "driver")
    kept = host.summary(laptop.hello.session)
    assert kept["cwd"] == str(host.project)
    assert began - 1 < kept["created"] < (time.time() + 1 if copied else ended)


async def test_a_session_that_nothing_says_the_directory_of_goes_only_where_it_is_sent(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session)
    await laptop.next(Event)
    await laptop.end()
    zero_first_record(host, session)
    (host.state(session) / "summary.json").unlink()
    with open(host.state(session) / "journal.jsonl", "a") as journal:
        journal.write('{"seq":2,"time":1.0,"kind":"driver","body":{}}\n')
    refused = await host.refused(session, cwd="", create=False)
    assert (refused.code, "damaged" in refused.message) == ("not_a_directory", True)
    assert host.runtime_files() == []
    assert (await host.greeted(session, cwd="~/project", create=False)).cwd == str(host.project)
