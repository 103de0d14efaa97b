"""Whole runs over the person's own ControlMaster, which may be hung."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.hosts.control_master import control_master, socket_directory
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import name_of, processes_of
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop, make_laptop

pytestmark = pytest.mark.visited


@pytest.fixture
def sockets() -> Iterator[Path]:
    with socket_directory() as directory:
        yield directory


async def test_runs_over_a_master_need_no_login_and_a_hung_one_leaves_nothing(host: Host, sockets: Path) -> None:
    host.model.add({"text": "ok", "times": 0})
    async with control_master(host.server, host.user, sockets / f"{host.login}:{host.server.port}") as master:
        over = ["-o", master.option]
        done = await host.command("ssh", *over, "-p", "cold")
        assert (done.code, done.stdout, done.stderr) == (0, "ok\n", "")
        assert (await host.command("ps", *over)).code == 0
        assert host.server.logins == 1, "that of the master"
        checked = await host.command("doctor", *over, "--json")
        (found,) = [each["found"] for each in checked.messages if each["name"] == "ControlMaster"]
        assert "without a login" in found
        assert any("connected and logged in" in each["found"] for each in checked.messages), "a login is examined too"
        before = host.server.logins

        master.process.suspend()
        done = await host.command("ssh", *over, "-p", "hung", "--debug")
        assert (done.code, done.stdout) == (0, "ok\n")
        (log,) = host.laptop.home.rglob("ccb-*.log")
        assert "no answer within 1 s" in log.read_text()
        assert host.server.logins == before + 1
        sessions = host.home / ".local/state/ccb/sessions"
        journals = {path: path.read_bytes() for path in sessions.glob("*/journal.jsonl")}
        assert len(journals) == 2

        master.process.resume()
        listed = await host.command("ps", *over, "--json")
        assert listed.code == 0 and host.server.logins == before + 1
        psutil.wait_procs([each for each in processes_of(host.user) if "sshd" not in name_of(each)], timeout=20)
        assert {path: path.read_bytes() for path in sessions.glob("*/journal.jsonl")} == journals


@pytest.fixture
async def laptop(tmp_path: Path, fake_model: FakeModel) -> AsyncIterator[Laptop]:
    with socket_directory() as runtime:
        made = make_laptop(tmp_path, fake_model.url)
        made = dataclasses.replace(made, env={**made.env, "XDG_RUNTIME_DIR": str(runtime)})
        made.settings(keepConnection=30)
        yield made
        await made.run(["disconnect"])


async def test_runs_share_one_login_until_ccb_disconnect(host: Host) -> None:
    host.model.add({"text": "ok", "times": 0})
    login = host.login
    first = await host.run("-p", "hi")
    assert (first.code, first.stdout) == (0, "ok\n")
    assert first.stderr == (
        f"ccb: The connection to {login} is kept for 30 minutes: a password or a code is asked once in that time. "
        f"`ccb disconnect {login}` ends it.\n"
    )
    second = await host.run("-p", "hi")
    assert (second.code, second.stdout, second.stderr) == (0, "ok\n", "")
    listed = await host.command("ps")
    assert f"SSH connection to {login} kept for 29m more; `ccb disconnect {login}` ends it" in listed.stdout
    assert host.server.logins == 1
    assert (await host.laptop.run(["disconnect", "elsewhere"])).stdout == "No connection to elsewhere is kept.\n"
    assert (await host.laptop.run(["disconnect", login])).stdout == f"disconnected {login}\n"
    assert (await host.laptop.run(["disconnect"])).stdout == "No connection is kept.\n"
