"""Request bodies that the laptop makes of earlier ones: the provider gets the exact bytes, and the worker sends only
what is new. The ends are the real ones."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.support.network.cut_line import CutLine
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import NONCE, Stream, Worker, message_body, proxy_to

from ccb.remote.daemon.model_streams import ModelStreams
from ccb.tunnel.proxy import body_store
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.wire.body_deltas import MAX_KEPT, deflate, digest_of
from ccb.tunnel.wire.frames import CallOpen


class Provider:
    def __init__(self) -> None:
        self.url = ""
        self.got: list[bytes] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.got.append(await request.read())
        return web.Response(body=b"answer")


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    made = Provider()
    async with serving(made.handle) as url:
        made.url = url
        yield made


class Conversation:
    """A history of random text, which does not get shorter when it is compressed."""

    def __init__(self, seed: int, size: int) -> None:
        self._chance = random.Random(seed)
        self.pieces = [b'{"texts": [' + self._text(size), b"]}"]

    def _text(self, size: int) -> bytes:
        return b'"%s"' % self._chance.randbytes(size // 2).hex().encode()

    def grow(self, count: int) -> list[bytes]:
        self.pieces[-1:-1] = [b",", self._text(count)]
        return list(self.pieces)


async def ask(calls: ModelStreams, call_id: str, body: Sequence[bytes]) -> bytes:
    headers = {"content-type": "application/json"}
    async with calls.request(call_id, "POST", "/v1/messages", headers, body) as response:
        assert response.status == 200, [chunk async for chunk in response.body()]
        return b"".join([chunk async for chunk in response.body()])


@asynccontextmanager
async def connected(
    calls: ModelStreams, proxy: AuthProxy, epoch: int, *, deltas: bool = True
) -> AsyncIterator[CutLine]:
    async with asyncio.timeout(60), CutLine(calls, proxy, epoch, deltas=deltas) as line:
        yield line


async def test_each_call_sends_what_is_new_also_over_the_next_connection(provider: Provider) -> None:
    calls, talk, asked = ModelStreams(), Conversation(1, 400_000), []
    async with proxy_to(provider.url) as proxy:
        for epoch in (1, 2):
            async with connected(calls, proxy, epoch) as line:
                for number in range(5):
                    before = line.down
                    asked.append(talk.grow(1_000))
                    await ask(calls, f"{epoch}.{number}", asked[-1])
                    first = epoch == 1 and number == 0
                    assert first or line.down - before < 3_500, "1,000 bytes in base64, and the head of the call"
        assert proxy.bodies.made == sum(len(b"".join(body)) for body in asked)
        assert proxy.bodies.sent < 420_000
    assert provider.got == [b"".join(body) for body in asked]


async def test_another_laptop_gets_the_whole_body_once(provider: Provider) -> None:
    calls, talk, lines = ModelStreams(), Conversation(2, 100_000), []
    for epoch in (1, 2):  # the name of the client is the same: only the laptop itself knows that it has nothing
        async with proxy_to(provider.url) as proxy, connected(calls, proxy, epoch) as line:
            for number in range(3):
                await ask(calls, f"{epoch}.{number}", talk.grow(500))
            lines.append(line.down)
    assert max(lines) < 100_000 * 4 / 3 + 3 * 3_000 + 3_000
    assert provider.got[-1] == b"".join(talk.pieces)
    assert len(provider.got) == 6, "what could not be made did not reach the provider"


async def test_an_older_laptop_gets_whole_bodies(provider: Provider) -> None:
    calls, talk = ModelStreams(), Conversation(3, 50_000)
    async with proxy_to(provider.url) as proxy, connected(calls, proxy, 1, deltas=False) as line:
        for number in range(2):
            await ask(calls, str(number), talk.grow(500))
        assert line.down > 2 * 50_000 * 4 / 3
        assert proxy.bodies.made == 0, "nothing is kept for a worker that does not ask for it"
    assert provider.got[-1] == b"".join(talk.pieces)


@pytest.mark.parametrize("newer", [True, False])
async def test_the_events_of_an_answer_take_little_room_for_a_worker_that_can_unpack_them(newer: bool) -> None:
    def event(number: int) -> bytes:
        delta = {"type": "text_delta", "text": f"word {number} "}
        data = {"type": "content_block_delta", "index": 0, "delta": delta}
        return f"event: content_block_delta\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()

    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for start in range(0, 200, 20):
            await response.write(b"".join(map(event, range(start, start + 20))))
        return response

    calls = ModelStreams()
    async with serving(answer) as url, proxy_to(url) as proxy, connected(calls, proxy, 1, deltas=newer) as line:
        assert await ask(calls, "a", [message_body()]) == b"".join(map(event, range(200)))
        size = len(b"".join(map(event, range(200))))
        assert line.up < size / 2 if newer else line.up > size


async def test_conversations_at_the_same_time_keep_their_own_bodies(provider: Provider) -> None:
    calls, talks = ModelStreams(), [Conversation(seed, 20_000) for seed in range(9)]
    async with proxy_to(provider.url) as proxy, connected(calls, proxy, 1):
        for turn in range(4):
            await asyncio.gather(*(ask(calls, f"{n}.{turn}", talk.grow(300)) for n, talk in enumerate(talks)))
        assert proxy.bodies.sent < 9 * (20_000 + 4 * 400)
    assert sorted(provider.got[-9:]) == sorted(b"".join(talk.pieces) for talk in talks)


@pytest.mark.parametrize("seed", range(6))
async def test_every_body_arrives_exactly_once_over_connections_that_break(seed: int, provider: Provider) -> None:
    chance = random.Random(seed)
    calls, talk, asked, epoch = ModelStreams(), Conversation(seed, 60_000), [], 0
    async with proxy_to(provider.url) as proxy:
        for number in range(8):
            asked.append(talk.grow(chance.choice((200, 30_000))))
            work = asyncio.create_task(ask(calls, str(number), asked[-1]))
            while not work.done():
                epoch += 1
                down, up = (chance.choice((None, chance.randrange(60_000))) for _ in range(2))
                async with CutLine(calls, proxy, epoch, cut_down=down, cut_up=up, deltas=True) as line:
                    await line.until_over(work)
            assert await work == b"answer"
    assert provider.got == [b"".join(body) for body in asked]


async def send(worker: Worker, stream: int, opened: dict[str, object], data: bytes, nonce: str = NONCE) -> Stream:
    worker.streams[stream] = Stream()
    fields = {"offset": 0, "sent": len(data), **opened}
    headers = {"content-type": "application/json"}
    await worker.calls.handle(CallOpen(3, stream, f"c{stream}", nonce, "POST", "/v1/messages", headers, **fields))  # type: ignore[arg-type]
    await worker.upload(stream, data)
    return await worker.ended(stream)


async def test_what_a_hostile_worker_sends_as_parts_does_not_reach_the_provider(provider: Provider) -> None:
    base = message_body("x" * 1_000)
    digest, size = digest_of([base]), len(base)
    async with proxy_to(provider.url) as proxy, Worker(proxy) as worker, asyncio.timeout(60):
        await send(worker, 1, {"size": size, "digest": digest, "sent": 0}, base)
        good = {"size": size, "digest": digest, "base": digest, "parts": [0, 0, size]}
        bad: list[tuple[dict[str, object], bytes]] = [
            ({**good, "base": "0" * 64}, b""),
            ({**good, "digest": "0" * 64}, b""),
            ({**good, "parts": [0, 1, size]}, b""),
            ({**good, "parts": [0, 0, size - 1]}, b""),
            ({**good, "size": 10 * size, "parts": [0, 0, size] * 10}, b""),
            ({**good, "parts": [4, 0, size - 4]}, b"too long"),
            ({**good, "parts": [size, 0, 0], "deflated": True}, b"no zlib"),
            ({**good, "parts": [size, 0, 0], "deflated": True}, zlib.compress(b"x" * 900_000)),
            ({**good, "parts": [size, 0, 0], "deflated": True, "primed": True}, zlib.compress(base)),
            ({**good, "parts": [size, 0, 0], "deflated": True, "primed": True}, deflate([b"x" * 900_000], base)),
            ({**good, "size": MAX_KEPT + 1, "parts": [MAX_KEPT + 1, 0, 0]}, b""),
        ]
        for stream, (opened, data) in enumerate(bad, 2):
            end = (await send(worker, stream, opened, data)).end
            assert end is not None and end.whole, opened
        assert (await send(worker, 50, good, b"")).body == b"answer"
        primed = {**good, "parts": [size, 0, 0], "deflated": True, "primed": True}
        assert (await send(worker, 49, primed, deflate([base], base))).body == b"answer"
        refused = await send(worker, 51, good, b"", nonce="guessed")
        assert refused.head is not None and refused.head.status == 403
        unnamed = await send(worker, 52, {**good, "digest": ""}, b"")
        assert json.loads(bytes(unnamed.body))["error"]["type"] == "invalid_request_error"
    assert provider.got == [base] * 3


async def test_only_so_many_bodies_are_made_in_a_while(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_store, "MAX_BURST", 3)
    monkeypatch.setattr(body_store, "MAX_PER_MINUTE", 0.001)
    base = message_body()
    wrong = {"size": len(base), "digest": hashlib.sha256(b"other").hexdigest(), "parts": [len(base), 0, 0]}
    async with proxy_to(provider.url) as proxy, Worker(proxy) as worker, asyncio.timeout(60):
        for stream in range(1, 4):
            await send(worker, stream, wrong, base)
        end = (await send(worker, 4, {**wrong, "digest": digest_of([base])}, base)).end
        assert end is not None and end.whole, "the parts fit, but are not looked at any more"
        assert (await worker.post(9, base)).body == b"answer", "whole bodies still pass"
