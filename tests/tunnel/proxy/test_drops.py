"""One model call over connections that break off at any byte: the worker has every byte once, the provider one request.

The ends are the real ones (the worker's `remote.daemon.model_streams`, the in-band front of the auth proxy), and so is
the provider's HTTP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TypedDict

import pytest
from tests.support.model.fake_model import FakeModel
from tests.support.network.cut_line import CutLine
from tests.support.proxy.proxy_client import message_body, proxy_to

from ccb.remote.daemon.model_streams import ModelStreams, StreamLink
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.wire.frames import CallData, CallEnd, CallHead, Credit, Frame

KIB = 1024


class Cut(TypedDict, total=False):
    cut_down: int
    cut_up: int


async def ask(calls: ModelStreams, body: bytes, call_id: str = "c") -> bytes:
    headers = {"content-type": "application/json"}
    async with calls.request(call_id, "POST", "/v1/messages", headers, [body]) as response:
        assert response.status == 200
        return b"".join([chunk async for chunk in response.body()])


async def over_drops(
    proxy: AuthProxy, body: bytes, cuts: Sequence[Cut], call_id: str = "c", *, deltas: bool = False
) -> tuple[bytes, CutLine]:
    """The response over one connection for each of `cuts` and then a whole one; the last connection."""
    calls = ModelStreams()
    asked = asyncio.create_task(ask(calls, body, call_id))
    await asyncio.sleep(0)
    try:
        for number, cut in enumerate([*cuts, Cut()]):
            async with CutLine(calls, proxy, number + 1, **cut, deltas=deltas) as line:
                await line.until_over(asked)
            if asked.done():
                break
        return await asked, line
    finally:
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)


async def undisturbed(url: str, body: bytes) -> tuple[bytes, CutLine]:
    async with proxy_to(url) as proxy:
        return await over_drops(proxy, body, [])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.quick_rows(4)
async def test_the_worker_has_every_byte_once_and_the_provider_one_request(seed: int, fake_model: FakeModel) -> None:
    chance = random.Random(seed)
    fake_model.add({"text": "".join(chance.choices("abcdefgh \n", k=60 * KIB)), "times": 2, "network_pieces": 700})
    body = message_body("q" * chance.choice((10, 2 * KIB, 300 * KIB)))
    whole, line = await undisturbed(fake_model.url, body)
    cuts = [
        chance.choice((Cut(cut_up=chance.randrange(line.up)), Cut(cut_down=chance.randrange(line.down))))
        for _ in range(15)
    ]
    async with proxy_to(fake_model.url) as proxy:
        disturbed, _ = await over_drops(proxy, body, cuts, deltas=seed % 2 == 1)
    assert disturbed.replace(b"_0002", b"_0001") == whole
    assert len(fake_model.requests) == 2, "the undisturbed call and the one that was cut"


async def test_a_response_whose_last_bytes_get_lost_is_not_asked_for_again(fake_model: FakeModel) -> None:
    fake_model.add({"text": "short", "times": 0})
    body = message_body()
    whole, line = await undisturbed(fake_model.url, body)
    async with proxy_to(fake_model.url) as proxy:
        for missing in range(1, 120):  # the end frame, and into the last data frame
            again, _ = await over_drops(proxy, body, [Cut(cut_up=line.up - missing)], f"c{missing}")
            assert len(again) == len(whole)
    assert len(fake_model.requests) == 120


async def test_the_nonce_of_a_connection_is_worth_nothing_on_the_next_one(fake_model: FakeModel) -> None:
    fake_model.add({"text": "secret", "stall_after": 3})
    body = message_body()
    async with proxy_to(fake_model.url) as proxy:
        calls = ModelStreams()
        asked = asyncio.create_task(ask(calls, body))
        await asyncio.sleep(0)
        async with CutLine(calls, proxy, 1, cut_up=400) as first:
            await first.until_over(asked)
        for call_id in ("c", "another"):
            thief = ModelStreams()
            async with (
                CutLine(thief, proxy, 2, shown=first.nonce),
                thief.request(call_id, "POST", "/v1/messages", {}, [body]) as response,
            ):
                assert response.status == 403
                refusal = b"".join([chunk async for chunk in response.body()])
            assert b"nonce" in refusal and b"secret" not in refusal
        fake_model.release()
        async with CutLine(calls, proxy, 3) as line:
            await line.until_over(asked)
        assert (await asked).endswith(b'"message_stop"}\n\n')
    assert len(fake_model.requests) == 1


@pytest.mark.parametrize("loses", [CallHead, CallData, CallEnd])
async def test_a_call_whose_frames_do_not_arrive_is_resumed_on_the_same_connection(
    loses: type[Frame], fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked, and paid, is on the laptop."""
    fake_model.add({"text": "abcdefgh" * 8 * KIB, "times": 2, "network_pieces": 50})
    body = message_body()
    whole, _ = await undisturbed(fake_model.url, body)
    calls, lost = ModelStreams(), asyncio.Event()
    handle = calls.handle

    def losing(link: StreamLink, frame: CallHead | CallData | CallEnd | Credit) -> None:
        if isinstance(frame, loses) and not lost.is_set():
            lost.set()
        elif not (lost.is_set() and frame.stream == 1):
            handle(link, frame)

    monkeypatch.setattr(calls, "handle", losing)
    async with proxy_to(fake_model.url) as proxy, CutLine(calls, proxy, 1) as line:
        asked = asyncio.create_task(ask(calls, body))
        await asyncio.wait_for(lost.wait(), 60)
        calls.resume("c")
        await line.until_over(asked)
        assert (await asked).replace(b"_0002", b"_0001") == whole
        async with asyncio.timeout(60):
            await line.read_out()  # nothing is held for the stream that was left
    assert len(fake_model.requests) == 2
