"""A connection that is kept between runs of the real ccb, and the commands around it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.hosts.control_master import socket_directory
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop, make_laptop

pytestmark = pytest.mark.visited


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
