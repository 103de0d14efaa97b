"""Requests to services on the laptop, between the real daemon and real sessions of laptops: cut, taken over, started
again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosts.scripted_host import no_waits
from tests.support.network.held_wire import InProcessHost, Wire

from ccb.local.session.dialing import AttachOptions, KnownSession, WorkerConnection
from ccb.local.session.remote_session import RemoteSession
from ccb.remote.daemon.assembly import SessionHost
from ccb.remote.daemon.daemon import Daemon
from ccb.tunnel.link.link import Link
from ccb.tunnel.wire.control_protocol import AnsweredBy, Durability, Request, RequestKind, payload_of

Json = dict[str, Any]

DEPLOY: RequestKind[Json, Json] = RequestKind(
    "deploy", AnsweredBy.LAPTOP, payload_of, write=dict, read=dict, durability=Durability.RESTART
)
BEEP: RequestKind[Json, Json] = RequestKind(
    "beep", AnsweredBy.LAPTOP, payload_of, write=dict, read=dict, durability=Durability.MEMORY, deadline_s=60
)


class DeployingDaemon(Daemon):
    """A daemon whose `deploy` requests survive a restart of the worker."""

    def _session_host(self) -> SessionHost:
        return replace(super()._session_host(), surviving=(DEPLOY.name,))


class Laptop:
    """A ccb that serves both kinds; `gate` holds its answers back."""

    def __init__(self, host: InProcessHost, name: str) -> None:
        self.calls: list[Json] = []
        self.called = asyncio.Event()
        self.gate = asyncio.Event()
        self.wire: Wire | None = None
        self._host = host
        options = AttachOptions(options={"client": name}, who=name, waits=no_waits)
        self.session = RemoteSession(self._dial, options)
        for kind in (DEPLOY, BEEP):
            self.session.register(kind, self._serve)

    async def _serve(self, payload: Json) -> Json:
        self.calls.append(payload)
        self.called.set()
        await self.gate.wait()
        return {"done": payload}

    @asynccontextmanager
    async def _dial(self, known: KnownSession | None, ask: bool) -> AsyncIterator[WorkerConnection]:
        self.wire = await self._host.connect(free=True)
        async with Link(self.wire) as link:
            yield WorkerConnection(link, await link.hello())

    def cut(self) -> None:
        assert self.wire is not None
        self.wire.cut(0, 0, host_knows=True)


@asynccontextmanager
async def laptop_on(host: InProcessHost, name: str) -> AsyncIterator[Laptop]:
    laptop = Laptop(host, name)
    async with laptop.session as session:

        async def read() -> None:
            async for _ in session.events():
                pass

        reading = asyncio.create_task(read())
        try:
            yield laptop
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def ask(host: InProcessHost, kind: RequestKind[Json, Json], request_id: str) -> asyncio.Task[Json]:
    while (session := host.daemon.session) is None:  # the attach is on its way
        await asyncio.sleep(0.005)
    return asyncio.create_task(session.broker.request(Request(kind, {"n": request_id}, id=request_id)))


@pytest.fixture(autouse=True)
def hangup() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("kind", [DEPLOY, BEEP], ids=["durable", "in memory"])
async def test_a_service_runs_once_over_a_cut(tmp_path: Path, kind: RequestKind[Json, Json]) -> None:
    async with asyncio.timeout(30), InProcessHost(tmp_path) as host, laptop_on(host, "ann") as ann:
        asking = await ask(host, kind, "r1")
        await ann.called.wait()
        ann.cut()
        ann.gate.set()
        assert await asking == {"done": {"n": "r1"}}
        assert await (await ask(host, kind, "r2")) == {"done": {"n": "r2"}}
        assert ann.calls == [{"n": "r1"}, {"n": "r2"}]


@pytest.mark.parametrize("kind", [DEPLOY, BEEP], ids=["durable", "in memory"])
async def test_whoever_takes_over_is_asked_under_the_same_id(tmp_path: Path, kind: RequestKind[Json, Json]) -> None:
    async with asyncio.timeout(30), InProcessHost(tmp_path) as host, laptop_on(host, "ann") as ann:
        asking = await ask(host, kind, "r1")
        await ann.called.wait()
        async with laptop_on(host, "bob") as bob:
            bob.gate.set()
            assert await asking == {"done": {"n": "r1"}}
            assert bob.calls == [{"n": "r1"}]


async def test_a_durable_request_goes_on_when_the_worker_starts_again(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        async with InProcessHost(tmp_path, DeployingDaemon) as host, laptop_on(host, "ann") as ann:
            asking = await ask(host, DEPLOY, "r1")
            await ann.called.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        async with InProcessHost(tmp_path, DeployingDaemon) as host, laptop_on(host, "bob") as bob:
            bob.gate.set()
            await bob.called.wait()
            assert await (await ask(host, DEPLOY, "r1")) == {"done": {"n": "r1"}}
            assert await (await ask(host, DEPLOY, "r1")) == {"done": {"n": "r1"}}, (
                "asked once more, it is not done once more"
            )
            assert bob.calls == [{"n": "r1"}]
