"""Ports of a host over a real sshd: a forward carries requests, and survives a lost connection."""

from __future__ import annotations

import asyncio
import signal
import urllib.request

import pytest
from tests.local.ports.test_port_forwards import free_port, listens
from tests.support.hosts.reached_host import Host
from tests.support.machine.waiting import until
from tests.support.model.model_script import uses
from tests.support.network.relay import relay
from tests.support.person.laptop import STREAM

pytestmark = pytest.mark.visited


async def get(port: int, path: str) -> bytes:
    def read() -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
            data: bytes = answer.read()
            return data

    return await asyncio.to_thread(read)


async def test_a_forward_carries_requests_at_once_and_behind_a_reconnect(host: Host) -> None:
    remote, local, back, page = free_port(), free_port(), free_port(), bytes(range(256)) * 8192
    host.put("page.bin", page)
    serve = f"python3 -m http.server --bind 127.0.0.1 {remote} & while [ ! -e go ]; do sleep 0.05; done"
    host.model.add(uses("Bash", command=serve), {"text": "served"})
    async with relay(host.server.port) as between:
        words = (
            "-p",
            "serve",
            "--allowedTools",
            "Bash",
            *STREAM,
            "--forward",
            f"{local}:{remote}",
            "--reverse",
            f"{back}",
        )
        async with host.laptop.start(host.ssh(*words, port=between.port), piped=False) as running:
            await until(lambda: listens(remote))
            many = await asyncio.gather(*(get(local, "page.bin") for _ in range(50)))
            assert many == [page] * 50
            between.cut()
            assert await get(local, "page.bin") == page, "the browser only waits"
            assert between.connections == 2
            host.put("go", b"")
            done = await running.done()
    assert (done.code, done.results[-1]["result"]) == (0, "served"), done.stderr
    assert f"127.0.0.1:{back} of the host leads to port {back} of this machine" in done.stderr
    assert not listens(local)


async def test_ports_of_a_running_session_are_listed_and_forwarded_by_another_ccb_which_takes_nothing_over(
    host: Host,
) -> None:
    remote, local, back = free_port(), free_port(), free_port()
    host.put("app/page.bin", page := bytes(range(256)) * 4096)
    serve = f"python3 -m http.server --bind 127.0.0.1 {remote} & while [ ! -e go ]; do sleep 0.05; done"
    host.model.add(uses("Bash", command=serve), {"text": "served"})
    without = {"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": ""}
    async with relay(host.server.port) as between:
        words = ("-p", "serve", "--allowedTools", "Bash", *STREAM)
        driver = host.laptop.start(host.ssh(*words, path="~/app"), piped=False)
        async with driver as running:
            await until(lambda: listens(remote))
            listed = ""
            while f'"port": {remote}' not in listed:
                words = ("ports", f"{host.login}:~/app", *host.server.client_options(), "--json")
                done = await host.laptop.run(words, stdin=None, **without)
                listed = done.stdout
            assert f'{{"port": {remote}, "name": "python3", "url": ""}}' in listed and not done.stderr
            words = (
                *("ports", f"{host.login}:~/app", *host.server.client_options(between.port)),
                *("--forward", f"{local}:{remote}", "--reverse", f"{back}"),
            )
            async with host.laptop.start(words, piped=False, **without) as forwarding:
                assert forwarding.process.stdout is not None
                said = await forwarding.process.stdout.readline()
                assert said.decode() == f"{remote} (python3) is http://127.0.0.1:{local} on this machine\n"
                assert await get(local, "page.bin") == page
                between.cut()
                assert await get(local, "page.bin") == page
                forwarding.process.send_signal(signal.SIGINT)
                assert await forwarding.process.wait() == 130
            host.put("app/go", b"")
            done = await running.done()
    assert (done.code, done.results[-1]["result"]) == (0, "served"), done.stderr
    gone = await host.laptop.run(
        ("ports", f"{host.login}:~/nowhere", *host.server.client_options()), stdin=None, **without
    )
    assert gone.code != 0 and "no session runs there" in gone.stderr and "ccb ps --local" in gone.stderr
