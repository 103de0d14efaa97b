"""The model calls of an agent of others, from the relay on its host to the laptop, over cuts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import aiohttp
from aiohttp import web
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import session_proxy

from ccb.local.ports.agent_relay import agent_relay
from ccb.local.session.remote_session import RemoteSession
from ccb.remote.daemon.client_channels import ServeChannel
from ccb.remote.daemon.model_relay import ModelRelay
from ccb.tunnel.wire.channels import MAX_CHANNELS, Channel, ChannelError, ChannelFrame, Channels
from ccb.tunnel.wire.frames import ChannelEnd, ChannelOpen, Json

ASKED: Json = {"model": "claude-sonnet-4-5", "max_tokens": 9, "stream": True, "messages": []}


class HostAndLaptop:
    """A session whose connections can be cut, as far as channels go."""

    def __init__(self, kinds: Mapping[str, ServeChannel]) -> None:
        self.laptop, self.host = Channels(), Channels()
        self.warnings: list[str] = []
        self.cuts = 0
        self.kinds = kinds
        self._alive = [True]
        self._tasks: set[asyncio.Task[None]] = set()

    async def open_channel(self, kind: str, body: Json) -> Channel:
        return self.laptop.open(kind, body)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def connect(self) -> None:
        alive = self._alive = [True]

        async def carry(frame: ChannelFrame | ChannelOpen, to: Channels) -> None:
            await asyncio.sleep(0)
            if not alive[0]:
                raise ChannelError("lost")
            if not isinstance(frame, ChannelOpen):
                to.take(frame)
            elif frame.begun and self.host.get(frame.channel) is None:
                self.laptop.take(ChannelEnd(frame.channel, "it has ended meanwhile"))
            elif self.host.get(frame.channel) is None:
                task = asyncio.create_task(self._serve(self.host.add(frame.channel), frame))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        self.host.keep_only(self.laptop.numbers)
        self.host.back(lambda frame: carry(frame, self.laptop))
        self.laptop.back(lambda frame: carry(frame, self.host))

    def cut(self) -> None:
        self.cuts += 1
        self._alive[0] = False
        self.host.lost()
        self.laptop.lost()

    def restart(self, kinds: Mapping[str, ServeChannel]) -> None:
        """Another worker goes on with the session."""
        self.cut()
        self.host.end("killed")
        self.host, self.kinds = Channels(), kinds
        self.connect()

    async def _serve(self, channel: Channel, opened: ChannelOpen) -> None:
        async with channel:
            try:
                await self.kinds[opened.kind](channel, opened.body, "driver")
                channel.end()
                await channel.over()
            except (ValueError, OSError, ChannelError) as error:
                await channel.close(str(error))


@asynccontextmanager
async def listening(relay: ModelRelay) -> AsyncIterator[ModelRelay]:
    await relay.open()
    yield relay
    relay.close()


@asynccontextmanager
async def agent_at(url: str, home: Path) -> AsyncIterator[tuple[HostAndLaptop, ModelRelay]]:
    """A session, and the relay that an agent on its host connects to; the provider is at `url`."""
    relay = ModelRelay()
    session = HostAndLaptop({"model": relay.serve})
    async with session_proxy(url, home, "claude-sonnet-4-5") as proxy, listening(relay):
        session.connect()
        async with agent_relay(cast(RemoteSession, session), proxy):
            yield session, relay


async def test_an_answer_goes_on_byte_for_byte_over_cuts_and_the_model_is_asked_once(tmp_path: Path) -> None:
    pieces = [b"event: ping\ndata: %04d%s\n\n" % (number, b"x" * 3000) for number in range(100)]
    asked, sent = 0, asyncio.Semaphore(0)

    async def upstream(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        await request.read()
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        for piece in pieces:
            await sent.acquire()
            await answer.write(piece)
        return answer

    async with (
        serving(upstream) as url,
        agent_at(url, tmp_path) as (session, relay),
        aiohttp.ClientSession() as agent,
        agent.post(f"{relay.url}/v1/messages", json=ASKED) as answer,
    ):
        received = bytearray()
        for number in range(len(pieces)):
            if number % 10 == 5:
                session.cut()
            sent.release()
            if number % 10 == 8:
                session.connect()
                received += await answer.content.readany()
        received += await answer.content.read()
    assert bytes(received) == b"".join(pieces) and asked == 1 and session.cuts == 10


async def test_a_call_waits_for_the_laptop_and_ends_with_the_agent_that_made_it(tmp_path: Path) -> None:
    asked, given_up = asyncio.Event(), asyncio.Event()

    async def upstream(request: web.Request) -> web.StreamResponse:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        raise AssertionError

    async with serving(upstream) as url, agent_at(url, tmp_path) as (session, relay), aiohttp.ClientSession() as agent:
        session.cut()
        call = asyncio.create_task(agent.post(f"{relay.url}/v1/messages", json=ASKED))
        done, _ = await asyncio.wait({call}, timeout=0.1)
        assert not done and not asked.is_set()
        session.connect()
        await asked.wait()
        call.cancel()
        await given_up.wait()


async def test_the_agent_of_a_worker_that_was_started_again_is_answered_too(tmp_path: Path) -> None:
    async def upstream(request: web.Request) -> web.Response:
        return web.Response(body=b"{}")

    async with (
        serving(upstream) as url,
        agent_at(url, tmp_path) as (session, _),
        aiohttp.ClientSession() as agent,
        listening(ModelRelay()) as relay,
    ):
        session.restart({"model": relay.serve})
        async with agent.post(f"{relay.url}/v1/messages", json=ASKED) as answer:
            assert answer.status == 200


async def test_an_answer_goes_on_while_no_channel_is_left_for_the_next_connection(tmp_path: Path) -> None:
    rest = asyncio.Event()

    async def upstream(request: web.Request) -> web.StreamResponse:
        is_first = b"first" in await request.read()
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b"event: ping\ndata: begun\n\n")
        if is_first:
            await rest.wait()
        return answer

    async with (
        serving(upstream) as url,
        agent_at(url, tmp_path) as (session, relay),
        aiohttp.ClientSession() as agent,
        agent.post(f"{relay.url}/v1/messages", json={**ASKED, "metadata": {"user_id": "first"}}) as first,
    ):
        try:
            await first.content.readany()
            taken = [session.laptop.open("port", {}) for _ in range(MAX_CHANNELS - len(session.laptop.numbers))]
            async with agent.post(f"{relay.url}/v1/messages", json=ASKED) as second:
                await second.read()
            for channel in taken:
                channel.broken("closed")
            async with aiohttp.ClientSession() as other, other.post(f"{relay.url}/v1/messages", json=ASKED) as third:
                await third.read()
        finally:
            rest.set()
        assert await first.content.read() == b""


async def test_a_request_without_the_token_reaches_no_provider_and_the_person_hears_of_it_once(tmp_path: Path) -> None:
    async def upstream(request: web.Request) -> web.Response:
        raise AssertionError("nobody asks")

    async with serving(upstream) as url, agent_at(url, tmp_path) as (session, relay), aiohttp.ClientSession() as agent:
        address, _, token = relay.url.rpartition("/")
        for path in ("/", "/v1/messages", f"/{'x' * 43}/v1/messages", f"//{token}/v1/messages"):
            async with agent.post(address + path, json=ASKED) as answer:
                assert answer.status == 404
    assert len(session.warnings) == 1 and "model relay" in session.warnings[0]
