"""Whole runs over the person's own ControlMaster, which may be hung."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.hosts.control_master import control_master, socket_directory
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop, make_laptop

pytestmark = pytest.mark.visited


@pytest.fixture
def sockets() -> Iterator[Path]:
    with socket_directory() as directory:
        yield directory


def logins(server: Sshd) -> int:
    return server.log.read_text().count("Accepted publickey")


async def test_runs_over_a_master_need_no_login_and_a_hung_one_leaves_nothing_on_the_host(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser, sockets: Path
) -> None:
    fake_model.add({"text": "ok", "times": 0})
    async with control_master(sshd, host_user, sockets / f"{host_user.name}@127.0.0.1:{sshd.port}") as master:
        host = [f"{host_user.name}@127.0.0.1", *sshd.client_options(), "-o", master.option]
        done = await laptop.run(["ssh", *host, "-p", "cold"])
        assert (done.code, done.stdout, done.stderr) == (0, "ok\n", "")
        assert (await laptop.run(["ps", *host])).code == 0
        assert logins(sshd) == 1, "that of the master"
        checked = await laptop.run(["doctor", *host, "--json"])
        (found,) = [each["found"] for each in checked.messages if each["name"] == "ControlMaster"]
        assert "without a login" in found
        assert any("connected and logged in" in each["found"] for each in checked.messages), "a login is examined too"
        before = logins(sshd)

        master.process.suspend()
        done = await laptop.run(["ssh", *host, "-p", "hung", "--debug"])
        assert (done.code, done.stdout) == (0, "ok\n")
        (log,) = laptop.home.rglob("ccb-*.log")
        assert "no answer within 1 s" in log.read_text()
        assert logins(sshd) == before + 1
        sessions = host_user.home / ".local/state/ccb/sessions"
        journals = {path: path.read_bytes() for path in sessions.glob("*/journal.jsonl")}
        assert len(journals) == 2

        master.process.resume()
        listed = await laptop.run(["ps", *host, "--json"])
        assert listed.code == 0 and logins(sshd) == before + 1
        workers = [
            each for each in psutil.process_iter(["username", "name"]) if each.info["username"] == host_user.name
        ]
        psutil.wait_procs([each for each in workers if "sshd" not in each.info["name"]], timeout=20)
        assert {path: path.read_bytes() for path in sessions.glob("*/journal.jsonl")} == journals


@pytest.fixture
async def laptop(tmp_path: Path, fake_model: FakeModel) -> AsyncIterator[Laptop]:
    with socket_directory() as runtime:
        made = make_laptop(tmp_path, fake_model.url)
        made = dataclasses.replace(made, env={**made.env, "XDG_RUNTIME_DIR": str(runtime)})
        settings = made.home / ".config/ccb/settings.json"
        settings.parent.mkdir(parents=True)
        settings.write_text('{"keepConnection": 30}')
        yield made
        await made.run(["disconnect"])


async def test_runs_share_one_login_until_ccb_disconnect(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    fake_model.add({"text": "ok", "times": 0})
    login = f"{host_user.name}@127.0.0.1"
    host = [login, *sshd.client_options()]
    first = await laptop.run(["ssh", *host, "-p", "hi"])
    assert (first.code, first.stdout) == (0, "ok\n")
    assert first.stderr == (
        f"ccb: The connection to {login} is kept for 30 minutes: a password or a code is asked once in that time. "
        f"`ccb disconnect {login}` ends it.\n"
    )
    second = await laptop.run(["ssh", *host, "-p", "hi"])
    assert (second.code, second.stdout, second.stderr) == (0, "ok\n", "")
    listed = await laptop.run(["ps", *host])
    assert f"SSH connection to {login} kept for 29m more; `ccb disconnect {login}` ends it" in listed.stdout
    assert sshd.log.read_text().count("Accepted publickey") == 1
    assert (await laptop.run(["disconnect", "elsewhere"])).stdout == "No connection to elsewhere is kept.\n"
    assert (await laptop.run(["disconnect", login])).stdout == f"disconnected {login}\n"
    assert (await laptop.run(["disconnect"])).stdout == "No connection is kept.\n"
