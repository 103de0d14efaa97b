"""`ccb cp` as a person types it, over a real sshd and over links that break."""

from __future__ import annotations

import os

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.network.relay import Fault, relay

pytestmark = pytest.mark.visited

SIZE = 6_000_000


async def test_a_file_and_a_folder_go_both_ways_over_ssh(host: Host) -> None:
    login, options = host.login, host.server.client_options()
    data = os.urandom(SIZE)
    host.put("run/plot.png", data)
    done = await host.laptop.run(["cp", f"{login}:run/plot.png", ".", *options])
    assert (done.code, done.stderr) == (0, "copied plot.png (6.0 MB)\n"), done.stderr
    assert (host.laptop.home / "plot.png").read_bytes() == data
    assert (await host.laptop.run(["cp", "-r", *options, f"{login}:run", "all"])).code == 0
    assert (host.laptop.home / "all/plot.png").read_bytes() == data
    assert (await host.laptop.run(["cp", *options, "all", f"{login}:"])).code == 0
    assert (host.home / "all/plot.png").read_bytes() == data
    assert (host.home / "all/plot.png").stat().st_uid == host.uid
    done = await host.laptop.run(["cp", f"{login}:nothing", ".", *options])
    assert done.code == 66 and "nothing" in done.stderr and not (host.laptop.home / "nothing").exists()


@pytest.mark.parametrize("upload", [False, True])
async def test_a_copy_goes_on_after_its_connection_was_cut(host: Host, upload: bool) -> None:
    data = os.urandom(SIZE)
    host.put("source", data)
    (host.laptop.home / "source").write_bytes(data)
    async with relay(host.server.port) as between:
        between.faults = [Fault("reset", SIZE * 2 // 3, upload)]
        words = ["source", f"{host.login}:target"] if upload else [f"{host.login}:source", "target"]
        done = await host.laptop.run(["cp", *words, *host.server.client_options(between.port)])
        carried = between.up if upload else between.down
    assert (done.code, between.connections) == (0, 2), done.stderr
    assert ((host.home if upload else host.laptop.home) / "target").read_bytes() == data
    assert SIZE < carried < SIZE * 3 // 2, "what had arrived is not sent again"
