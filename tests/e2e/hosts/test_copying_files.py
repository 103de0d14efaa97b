"""`ccb cp` as a person types it, over a real sshd and over links that break."""

from __future__ import annotations

import os
import pwd

import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.network.relay import Fault, relay
from tests.support.person.laptop import Laptop

pytestmark = pytest.mark.visited

SIZE = 6_000_000


def on_host(user: HostUser, name: str, data: bytes) -> None:
    """Make a file of the user."""
    path = user.home / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    for each in (path.parent, path):
        os.chown(each, pwd.getpwnam(user.name).pw_uid, -1)


async def test_a_file_and_a_folder_go_both_ways_over_ssh(laptop: Laptop, sshd: Sshd, host_user: HostUser) -> None:
    login, options = f"{host_user.name}@127.0.0.1", sshd.client_options()
    data = os.urandom(SIZE)
    on_host(host_user, "run/plot.png", data)
    done = await laptop.run(["cp", f"{login}:run/plot.png", ".", *options])
    assert (done.code, done.stderr) == (0, "copied plot.png (6.0 MB)\n"), done.stderr
    assert (laptop.home / "plot.png").read_bytes() == data
    assert (await laptop.run(["cp", "-r", *options, f"{login}:run", "all"])).code == 0
    assert (laptop.home / "all/plot.png").read_bytes() == data
    assert (await laptop.run(["cp", *options, "all", f"{login}:"])).code == 0
    assert (host_user.home / "all/plot.png").read_bytes() == data
    assert (host_user.home / "all/plot.png").stat().st_uid == pwd.getpwnam(host_user.name).pw_uid
    done = await laptop.run(["cp", f"{login}:nothing", ".", *options])
    assert done.code == 66 and "nothing" in done.stderr and not (laptop.home / "nothing").exists()


@pytest.mark.parametrize("upload", [False, True])
async def test_a_copy_goes_on_after_its_connection_was_cut(
    laptop: Laptop, sshd: Sshd, host_user: HostUser, upload: bool
) -> None:
    data = os.urandom(SIZE)
    source, target = "source", "target"
    on_host(host_user, "source", data)
    (laptop.home / "source").write_bytes(data)
    async with relay(sshd.port) as between:
        remote = f"{host_user.name}@127.0.0.1"
        between.faults = [Fault("reset", SIZE * 2 // 3, upload)]
        words = [source, f"{remote}:{target}"] if upload else [f"{remote}:{source}", target]
        done = await laptop.run(["cp", *words, *sshd.client_options(between.port)])
        carried = between.up if upload else between.down
    assert (done.code, between.connections) == (0, 2), done.stderr
    assert ((host_user.home if upload else laptop.home) / target).read_bytes() == data
    assert SIZE < carried < SIZE * 3 // 2, "what had arrived is not sent again"
