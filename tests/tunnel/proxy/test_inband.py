"""Model calls over the link: credit in both directions, cancelling, and calls that outlive their connection."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from contextlib import AsyncExitStack

import pytest
from aiohttp import web
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import NONCE, Stream, Worker, message_body, proxy_to

from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.providers.provider import MAX_BODY
from ccb.tunnel.proxy.link_front import LinkFront
from ccb.tunnel.proxy.proxied_call import BUFFER
from ccb.tunnel.secret import Secret
from ccb.tunnel.wire.frames import CHUNK, INITIAL_CREDIT, CallData, CallEnd, CallOpen, Frame, frame_from_dict

MIB = 1024 * 1024


async def test_a_call_is_a_head_then_its_bytes_then_an_end(fake_model: FakeModel) -> None:
    fake_model.add({"text": "hello"})
    async with proxy_to(fake_model.url) as proxy, Worker(proxy) as worker:
        stream = await worker.post(1, message_body("hi"), call_id="a", path="/v1/messages?beta=true")
        await worker.until(lambda: worker.calls.open_streams == 0)
    assert stream.head is not None and stream.end is not None
    assert (stream.head.status, stream.head.headers["request-id"], stream.end.error) == (200, "req_0001", "")
    assert stream.body.endswith(b'{"type": "message_stop"}\n\n')
    (seen,) = fake_model.requests
    assert (seen.headers["x-api-key"], seen.body) == (API_KEY, json.loads(message_body("hi")))


async def test_refusals_are_ordinary_answers_and_an_unknown_call_is_not_resumed(fake_model: FakeModel) -> None:
    async with proxy_to(fake_model.url) as proxy, Worker(proxy) as worker:
        await worker.open(1, 0, nonce="wrong")
        await worker.open(2, 0, path="/v1/organizations")
        await worker.open(3, 33 * MIB)
        for number, status in ((1, 403), (2, 404), (3, 413)):
            stream = await worker.ended(number)
            assert stream.head is not None and stream.head.status == status
            assert json.loads(stream.body)["type"] == "error"
        await worker.open(4, 10, call_id="never-seen", offset=100)
        end = (await worker.ended(4)).end
        said = "the laptop that read this answer is gone, and the answer cannot be resumed"
        assert end is not None and end.error == said
    assert not fake_model.requests


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"id": "x" * 129}, "the id of the call"),
        ({"id": "a\nccb: all is well"}, "the id of the call"),
        ({"id": "\x1b]0;owned\x07"}, "the id of the call"),
        ({"path": "/v1/messages?" + "x" * 70_000}, "the request head"),
        ({"headers": {"anthropic-beta": "x" * 70_000}}, "the request head"),
        ({"digest": "0" * 70_000}, "the request head"),
        ({"parts": [0] * 6_003}, "the request head"),
    ],
)
async def test_a_head_no_worker_sends_is_not_kept(fake_model: FakeModel, fields: dict[str, object], why: str) -> None:
    """An `open` frame may come in parts, up to 64 MB: its stream would hold it, the ledger would write it in each
    row, and an id with line ends would write lines of its own into the log."""
    opened = {"epoch": 3, "stream": 1, "id": "a", "nonce": NONCE, "method": "POST", "path": "/v1/messages"}
    frame = frame_from_dict({"t": "open", **opened, "headers": {}, "size": 0, **fields})
    assert isinstance(frame, CallOpen)
    async with proxy_to(fake_model.url) as proxy, Worker(proxy) as worker:
        worker.streams[1] = Stream()
        await worker.calls.handle(frame)
        ended = await worker.ended(1)
        assert ended.end is not None and why in ended.end.error
        assert (worker.calls.open_streams, ended.head) == (0, None)


async def test_a_request_that_is_longer_than_the_credit_arrives_whole() -> None:
    seen = list[bytes]()

    async def handle(request: web.Request) -> web.Response:
        seen.append(await request.read())
        return web.Response(body=b"ok")

    body = message_body("x" * (24 * INITIAL_CREDIT))
    async with serving(handle) as url, proxy_to(url) as proxy, Worker(proxy) as worker:
        assert (await worker.post(1, body)).body == b"ok" and seen == [body]


async def test_a_response_never_exceeds_the_credit_and_goes_on_when_it_is_granted() -> None:
    raw = bytes(range(256)) * (3 * MIB // 256)

    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=raw)

    async with serving(handle) as url, proxy_to(url) as proxy, Worker(proxy, auto_credit=False) as worker:
        stream = await worker.begin(1, message_body())
        await worker.received(1, INITIAL_CREDIT)
        for step in (1, CHUNK, 700_000):
            before = len(stream.body)
            await worker.grant(1, step)
            await worker.received(1, before + step)
        await worker.grant(1, len(raw))
        await worker.ended(1)
        assert bytes(stream.body) == raw


@pytest.mark.parametrize("begun", [True, False])
async def test_cancel_aborts_the_upstream_request_and_forgets_the_call(fake_model: FakeModel, begun: bool) -> None:
    fake_model.add({"text": "x", "stall_after": 2} if begun else {"text": "x", "first_delay": 60})
    async with proxy_to(fake_model.url) as proxy, Worker(proxy) as worker:
        await worker.begin(1, message_body())
        await fake_model.until(lambda model: len(model.requests) == 1)
        if begun:
            await worker.first_bytes(1)
        await worker.cancel(1)
        await fake_model.until(lambda model: model.aborted == [1])
        assert (worker.calls.open_streams, proxy.knows("a"), worker.streams[1].end) == (0, False, None)


async def test_an_upstream_cut_ends_the_stream_with_an_error(fake_model: FakeModel) -> None:
    fake_model.add({"text": "partly", "cut_after": 300})
    async with proxy_to(fake_model.url) as proxy, Worker(proxy) as worker:
        stream = await worker.post(1, message_body(), call_id="a")
    assert stream.end is not None and "broke" in stream.end.error
    assert len(stream.body) == 300


@pytest.mark.parametrize(
    "frame",
    [CallData(3, 1, 5, base64.b64encode(b"x").decode()), CallData(3, 1, 0, "not base64!")],
    ids=["gap", "not base64"],
)
async def test_bad_data_ends_its_stream_only(fake_model: FakeModel, frame: CallData) -> None:
    fake_model.add({"text": "x", "times": 0})
    async with proxy_to(fake_model.url) as proxy, Worker(proxy) as worker:
        await worker.open(1, 10)
        await worker.calls.handle(frame)
        end = (await worker.ended(1)).end
        assert end is not None and "bad data frame" in end.error
        assert (await worker.post(2, message_body())).end == CallEnd(3, 2)
        await worker.calls.handle(CallData(3, 1, 0, ""))  # a late frame of the broken stream is ignored


async def test_data_beyond_the_credit_ends_the_stream(fake_model: FakeModel) -> None:
    """Also where nobody reads it: a worker that takes no answers could else fill the laptop's memory."""
    chunk = base64.b64encode(b"x" * CHUNK).decode()
    async with proxy_to(fake_model.url) as proxy, Worker(proxy) as worker:
        await worker.open(1, 30 * MIB)
        for number in range(31 * MIB // CHUNK):  # never waits for credit
            await worker.calls.handle(CallData(3, 1, number * CHUNK, chunk))
        end = (await worker.ended(1)).end
        assert end is not None and "more data than the credit allows" in end.error


async def test_requests_that_are_too_large_together_are_told_to_come_back(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x"})
    async with proxy_to(fake_model.url) as proxy, Worker(proxy) as worker:
        for number in range(1, 4):
            await worker.open(number, MAX_BODY)
        refused = await worker.post(5, message_body())
        assert refused.head is not None and refused.head.status == 529
        assert b"too many large requests at once" in refused.body
        await worker.cancel(1)
        passed = await worker.post(6, message_body())
        assert passed.head is not None and passed.head.status == 200


async def test_a_stream_number_in_use_is_refused(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 2})
    async with proxy_to(fake_model.url) as proxy, Worker(proxy) as worker:
        await worker.open(1, 10)
        await worker.open(1, 10)
        await worker.ended(1)
        assert worker.streams[1].end == CallEnd(3, 1, "the stream number is in use")


async def test_a_call_goes_on_while_the_link_is_down_and_is_picked_up_where_it_was(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x" * 2000, "stall_after": 6})
    body = message_body()
    async with proxy_to(fake_model.url) as proxy:
        async with Worker(proxy) as first:
            await first.begin(1, body)
            await first.until(lambda: len(first.streams[1].body) > 400)
        start = bytes(first.streams[1].body)
        fake_model.release()
        await fake_model.until(lambda model: model.finished == [1])
        async with Worker(proxy) as second:
            await second.begin(7, body, offset=len(start))
            await second.ended(7)
            resumed = second.streams[7]
            assert resumed.head is not None and resumed.head.headers["request-id"] == "req_0001"
            assert resumed.first_offset == len(start)
            whole = start + bytes(resumed.body)
    assert len(fake_model.requests) == 1 and not fake_model.aborted
    texts = [json.loads(line[6:]) for line in whole.decode().splitlines() if line.startswith("data: ")]
    assert "".join(e["delta"]["text"] for e in texts if e["type"] == "content_block_delta") == "x" * 2000
    assert texts[-1] == {"type": "message_stop"}


async def test_bytes_that_were_sent_but_never_acknowledged_are_sent_again(fake_model: FakeModel) -> None:
    fake_model.add({"text": "y" * 500})
    body = message_body()
    async with proxy_to(fake_model.url) as proxy:
        async with Worker(proxy, auto_credit=False) as first:
            whole = bytes((await first.post(1, body, call_id="a")).body)
        for offset in (0, 100, len(whole)):
            async with Worker(proxy, auto_credit=False) as again:
                await again.open(2, len(body), call_id="a", offset=offset)
                await again.ended(2)
                assert bytes(again.streams[2].body) == whole[offset:]
        async with Worker(proxy) as late:
            await late.open(3, len(body), call_id="a", offset=50)  # byte 50 was acknowledged by asking for 100
            await late.ended(3)
            end = late.streams[3].end
            assert end is not None and "not held any more" in end.error and late.streams[3].head is None
    assert len(fake_model.requests) == 1


async def test_a_resumed_upload_is_thrown_away_but_still_gets_credit(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 2})
    body = message_body("long " * MIB)
    async with proxy_to(fake_model.url) as proxy:
        async with Worker(proxy) as first:
            await first.begin(1, body)
            await first.first_bytes(1)
        async with Worker(proxy) as second:
            await second.begin(1, body, offset=len(first.streams[1].body))
            fake_model.release()
            await second.ended(1)
            assert second.streams[1].body.endswith(b'"message_stop"}\n\n')
    assert len(fake_model.requests) == 1


@pytest.mark.parametrize("moment", range(30))
async def test_a_link_that_drops_at_any_moment_of_the_upload_costs_one_call(moment: int, fake_model: FakeModel) -> None:
    fake_model.add({"text": "a"}, {"text": "b"})
    async with proxy_to(fake_model.url) as proxy:
        async with Worker(proxy) as first:
            await first.begin(1, message_body())
            for _ in range(moment):
                await asyncio.sleep(0)
        async with Worker(proxy) as second:
            await second.post(1, message_body(), call_id="a")
    assert len(fake_model.requests) == 1


@pytest.mark.parametrize("dropped", [True, False], ids=["the link dropped", "the old link hangs"])
async def test_a_call_whose_upload_was_not_whole_may_start_again(fake_model: FakeModel, dropped: bool) -> None:
    fake_model.add({"text": "ok"})
    body = message_body("x" * 3000)
    async with proxy_to(fake_model.url) as proxy, AsyncExitStack() as stack:
        old = await stack.enter_async_context(Worker(proxy))
        await old.open(1, len(body), call_id="a")
        await old.calls.handle(CallData(3, 1, 0, base64.b64encode(body[:1000]).decode()))
        if dropped:
            await stack.aclose()
            assert not proxy.knows("a")
        async with Worker(proxy) as new:
            stream = await new.post(1, body, call_id="a")
            assert stream.head is not None and stream.head.status == 200
        if not dropped:
            given_up = (await old.ended(1)).head
            assert given_up is not None and given_up.status == 503
    assert len(fake_model.requests) == 1


async def test_frames_are_taken_while_the_connection_takes_none(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 2})
    body = message_body()
    async with proxy_to(fake_model.url) as proxy:
        stuck = asyncio.Event()

        async def send(_: Frame) -> None:
            stuck.set()
            await asyncio.Event().wait()

        async with LinkFront(proxy, send, Secret(NONCE)) as calls, asyncio.timeout(60):
            for number in range(200):  # the last ones are refused: too many streams
                await calls.handle(CallOpen(0, number, f"c{number}", NONCE, "POST", "/nowhere", {}, len(body)))
            await calls.handle(CallData(0, 1, 5, "broken"))
            await stuck.wait()


async def test_a_second_reader_of_the_same_call_ends_the_first(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 3})
    body = message_body()
    async with proxy_to(fake_model.url) as proxy, Worker(proxy) as worker:
        await worker.begin(1, body)
        await worker.first_bytes(1)
        await worker.open(2, len(body), call_id="a", offset=len(worker.streams[1].body))
        await worker.ended(1)
        assert worker.streams[1].end == CallEnd(3, 1, "the call is read by a newer stream")
        await worker.cancel(1)  # says nothing about the newer reader
        fake_model.release()
        await worker.ended(2)
        assert worker.streams[2].body.endswith(b'"message_stop"}\n\n')
    assert not fake_model.aborted


async def test_a_call_is_kept_as_long_as_there_is_no_link_and_not_much_longer_with_one(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 2})
    body = message_body()
    async with proxy_to(fake_model.url, hold=0.05) as proxy:
        async with Worker(proxy) as worker:
            await worker.begin(1, body)
            await worker.first_bytes(1)
        await asyncio.sleep(0.3)  # the time is what is tested: many times as long as an unread call is kept
        assert proxy.knows("a") and not fake_model.aborted
        async with Worker(proxy):  # a connection that does not ask for it
            await fake_model.until(lambda model: model.aborted == [1])
            assert not proxy.knows("a")


async def test_without_a_link_more_is_read_ahead_than_for_a_slow_reader() -> None:
    total = 24 * MIB
    written = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        out = web.StreamResponse()
        await out.prepare(request)
        for _ in range(total // 65536):
            await out.write(b"z" * 65536)
        written.set()
        return out

    async with serving(handle) as url, proxy_to(url) as proxy:
        async with Worker(proxy, auto_credit=False) as worker:
            await worker.begin(1, message_body())
            await worker.first_bytes(1)
        async with asyncio.timeout(60):
            await written.wait()
        async with Worker(proxy) as back:
            await back.begin(1, message_body())
            await back.ended(1)
            assert len(back.streams[1].body) == total


@pytest.mark.slow
async def test_an_unread_response_is_held_up_to_the_buffer_and_then_the_upstream_waits() -> None:
    sent = 0
    total = 128 * MIB
    blocked = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        out = web.StreamResponse()
        await out.prepare(request)
        while sent < total:
            writing = asyncio.create_task(out.write(b"z" * 65536))
            if not (await asyncio.wait({writing}, timeout=1))[0]:
                blocked.set()
            await writing
            sent += 65536
        return out

    async with serving(handle) as url, proxy_to(url) as proxy, Worker(proxy, auto_credit=False) as worker:
        await worker.begin(1, message_body())
        async with asyncio.timeout(60):
            await blocked.wait()
        # the buffer, and what the kernel holds of the connection (tcp_rmem and tcp_wmem: 36 MiB here)
        assert BUFFER <= sent + 65536 < BUFFER + 64 * MIB
        await worker.grant(1, total)
        await worker.ended(1)
        assert len(worker.streams[1].body) == total


async def test_a_call_that_fails_together_with_its_connection_leaves_no_unread_error(fake_model: FakeModel) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    told = asyncio.Event()

    async def send(frame: Frame) -> None:
        if isinstance(frame, CallEnd):
            told.set()
            raise ConnectionLost("the connection is gone")

    async with proxy_to("http://127.0.0.1:9") as proxy, LinkFront(proxy, send, Secret(NONCE)) as calls:
        await calls.handle(CallOpen(0, 1, "a", NONCE, "POST", "/v1/messages", {}, 0, 5))
        async with asyncio.timeout(60):
            await told.wait()
            while calls.open_streams:
                await asyncio.sleep(0)
    gc.collect()
    assert complaints == []
