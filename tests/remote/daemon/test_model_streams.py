"""Model calls over a link that comes and goes: the worker's end, with the test as the laptop."""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from typing import Any

import pytest

from ccb.remote.daemon.model_streams import ModelStreams, StreamLink
from ccb.remote.model.model_request import ModelLinkError
from ccb.tunnel.wire.frames import CHUNK, INITIAL_CREDIT, CallData, CallEnd, CallHead, CallOpen, Cancel, Credit

DEADLINE_S = 60.0


class Link:
    """What one connection carries."""

    def __init__(self, calls: ModelStreams, epoch: int, client: str = "alice") -> None:
        self.sent: deque[Any] = deque()
        self.open: dict[int, CallOpen] = {}
        self.bodies: dict[int, bytes] = {}
        self._news = asyncio.Event()
        self._calls = calls
        self.epoch = epoch
        self.line = StreamLink(epoch, client, f"nonce-{epoch}", self.take, self.bulk)

    def attach(self) -> None:
        self._calls.attach(self.line)

    def drop(self) -> None:
        self._calls.detach(self.line)

    def take(self, frame: Any) -> None:
        self.sent.append(frame)
        if isinstance(frame, CallOpen):
            self.open[frame.stream] = frame
            self.bodies[frame.stream] = b""
        elif isinstance(frame, CallData):
            chunk = base64.b64decode(frame.b64)
            assert len(chunk) <= CHUNK
            assert frame.off == len(self.bodies[frame.stream])
            self.bodies[frame.stream] += chunk
        self._news.set()

    async def bulk(self, frame: Any) -> None:
        self.take(frame)
        await asyncio.sleep(0)

    async def next(self, kind: type[Any], stream: int | None = None) -> Any:
        async def found() -> Any:
            while True:
                while self.sent:
                    frame = self.sent.popleft()
                    if isinstance(frame, kind) and stream in (None, getattr(frame, "stream", None)):
                        return frame
                self._news.clear()
                await self._news.wait()

        return await asyncio.wait_for(found(), DEADLINE_S)

    def head(self, stream: int, status: int = 200) -> None:
        self._calls.handle(self.line, CallHead(self.epoch, stream, status, {"Request-ID": "r"}))

    def data(self, stream: int, off: int, chunk: bytes) -> None:
        self._calls.handle(self.line, CallData(self.epoch, stream, off, base64.b64encode(chunk).decode()))

    def end(self, stream: int, error: str = "") -> None:
        self._calls.handle(self.line, CallEnd(self.epoch, stream, error))

    def answer(self, stream: int, *chunks: bytes, offset: int = 0, status: int = 200) -> None:
        self.head(stream, status)
        for chunk in chunks:
            self.data(stream, offset, chunk)
            offset += len(chunk)
        self.end(stream)

    def credit(self, stream: int, count: int) -> None:
        self._calls.handle(self.line, Credit(self.epoch, stream, count))


async def ask(calls: ModelStreams, call_id: str = "c", body: bytes = b"question") -> bytes:
    async with calls.request(call_id, "POST", "/v1/messages", {"x": "y"}, [body]) as response:
        return b"".join([chunk async for chunk in response.body()])


async def asked_over_a_link(
    body: bytes = b"question", epoch: int = 1
) -> tuple[ModelStreams, Link, asyncio.Future[bytes], CallOpen]:
    calls = ModelStreams()
    link = Link(calls, epoch)
    link.attach()
    asked = asyncio.ensure_future(ask(calls, body=body))
    return calls, link, asked, await link.next(CallOpen)


async def test_a_call_is_opened_with_the_nonce_of_its_connection_and_its_body_follows_at_once() -> None:
    _calls, link, asked, opened = await asked_over_a_link(b"q" * 300_000, epoch=3)
    assert (opened.id, opened.nonce, opened.epoch, opened.size, opened.offset) == ("c", "nonce-3", 3, 300_000, 0)
    await link.next(CallEnd)
    assert link.bodies[opened.stream] == b"q" * 300_000
    link.answer(opened.stream, b"ans", b"wer")
    assert await asyncio.wait_for(asked, DEADLINE_S) == b"answer"
    assert not [frame for frame in link.sent if isinstance(frame, Cancel)]


async def test_no_more_of_a_body_is_sent_than_was_granted() -> None:
    size = INITIAL_CREDIT + 200_000
    _calls, link, asked, opened = await asked_over_a_link(b"q" * size)
    while len(link.bodies[opened.stream]) < INITIAL_CREDIT:
        await link.next(CallData)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(link.bodies[opened.stream]) == INITIAL_CREDIT
    link.credit(opened.stream, 200_000)
    await link.next(CallEnd)
    assert len(link.bodies[opened.stream]) == size
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)


async def test_another_client_takes_new_calls_while_the_one_before_reads_its_own_to_the_end() -> None:
    calls, alice, bob, asked = await half_read()
    (stream,) = alice.open
    bob.attach()
    later = asyncio.ensure_future(ask(calls, "second"))
    second = await bob.next(CallOpen)
    assert (second.id, second.nonce, list(bob.open)) == ("second", "nonce-2", [second.stream])
    bob.data(stream, 5, b"forged by who did not open it")
    alice.head(second.stream, 500)
    alice.data(stream, 5, b"whole")
    alice.end(stream)
    assert await asyncio.wait_for(asked, DEADLINE_S) == b"half whole"
    bob.answer(second.stream)
    assert await asyncio.wait_for(later, DEADLINE_S) == b""


async def half_read(other: str = "bob") -> tuple[ModelStreams, Link, Link, asyncio.Future[bytes]]:
    """A call of which alice has half the answer, and the link of the client that comes next."""
    calls, link, asked, opened = await asked_over_a_link()
    await link.next(CallEnd)
    link.head(opened.stream)
    link.data(opened.stream, 0, b"half ")
    return calls, link, Link(calls, 2, other), asked


async def read_on_by(link: Link, asked: asyncio.Future[bytes]) -> None:
    again = await link.next(CallOpen)
    assert (again.id, again.nonce, again.offset) == ("c", link.line.nonce, 5)
    link.answer(again.stream, b"whole", offset=5)
    assert await asyncio.wait_for(asked, DEADLINE_S) == b"half whole"


@pytest.mark.parametrize("drives", [True, False], ids=["to drive again", "to watch"])
async def test_a_client_that_was_taken_over_from_and_comes_back_soon_reads_on(drives: bool) -> None:
    calls, alice, bob, asked = await half_read()
    bob.attach()
    alice.drop()
    assert calls.link_up_since() is not None
    alice = Link(calls, 3, "alice")
    if drives:
        alice.attach()
    else:
        calls.back(alice.line)
    await read_on_by(alice, asked)
    assert not bob.sent


@pytest.mark.parametrize("who_drives", ["when it is lost", "later", "when it has left for good"])
async def test_a_client_that_stays_away_is_not_waited_for_long_and_one_that_has_left_not_at_all(
    who_drives: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccb.remote.daemon.model_streams.CLIENT_WAIT_S", 0.2)
    calls, alice, bob, asked = await half_read()
    has_left = who_drives == "when it has left for good"
    if has_left:
        calls.forget(alice.line)
    if who_drives != "when it is lost":
        alice.drop()
        assert calls.link_up_since() is None
    bob.attach()
    alice.drop()
    await asyncio.sleep(0)
    assert bool(bob.sent) is has_left, "at once only if nobody comes back"
    await read_on_by(bob, asked)


async def test_the_same_client_on_a_new_connection_takes_its_calls_along_at_once() -> None:
    _calls, zombie, alive, asked = await half_read("alice")
    alive.attach()
    zombie.data(1, 5, b"late")
    zombie.drop()
    await read_on_by(alive, asked)


async def test_the_bytes_of_one_answer_never_come_under_the_head_of_another() -> None:
    """A laptop died between head and body; the next one asks the provider again."""
    calls, first, asked, opened = await asked_over_a_link()
    first.head(opened.stream, status=529)
    await asyncio.sleep(0)
    first.drop()
    second = Link(calls, 2)
    second.attach()
    again = await second.next(CallOpen)
    assert again.offset == 0
    second.head(again.stream, status=200)
    with pytest.raises(ModelLinkError, match="200, not 529"):
        await asyncio.wait_for(asked, DEADLINE_S)


async def test_credit_comes_back_as_a_response_ten_times_the_window_is_read() -> None:
    size = 10 * INITIAL_CREDIT
    _calls, link, asked, opened = await asked_over_a_link()
    await link.next(CallEnd)
    link.head(opened.stream)
    sent, window = 0, INITIAL_CREDIT
    while sent < size:
        while window < CHUNK:
            window += (await link.next(Credit, opened.stream)).bytes
        link.data(opened.stream, sent, b"a" * CHUNK)
        sent += CHUNK
        window -= CHUNK
    link.end(opened.stream)
    assert len(await asyncio.wait_for(asked, DEADLINE_S)) == sent


async def test_a_response_beyond_the_window_fails_the_call_instead_of_growing_it() -> None:
    _calls, link, asked, opened = await asked_over_a_link()
    await link.next(CallEnd)
    link.head(opened.stream)
    for place in range(0, INITIAL_CREDIT + CHUNK, CHUNK):
        link.data(opened.stream, place, b"a" * CHUNK)
    with pytest.raises(ModelLinkError, match="granted"):
        await asyncio.wait_for(asked, DEADLINE_S)


async def test_a_gap_in_the_response_and_a_refusal_without_one_fail_the_call() -> None:
    _calls, link, asked, opened = await asked_over_a_link()
    link.head(opened.stream)
    link.data(opened.stream, 1, b"x")
    with pytest.raises(ModelLinkError, match="byte 1"):
        await asyncio.wait_for(asked, DEADLINE_S)
    assert (await link.next(Cancel)).stream == opened.stream
    _calls, link, asked, opened = await asked_over_a_link()
    link.end(opened.stream, "upstream is unreachable")
    with pytest.raises(ModelLinkError, match="unreachable"):
        await asyncio.wait_for(asked, DEADLINE_S)


async def test_leaving_early_cancels_the_call_on_the_laptop() -> None:
    _calls, link, asked, opened = await asked_over_a_link()
    link.head(opened.stream)
    link.data(opened.stream, 0, b"begun")
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert (await link.next(Cancel)).stream == opened.stream
    link.data(opened.stream, 5, b"late")  # is dropped


async def test_a_call_is_resumed_on_its_link_once_its_request_has_been_sent() -> None:
    calls, link, asked, first = await asked_over_a_link(b"q" * (INITIAL_CREDIT + 1))
    while sum(map(len, link.bodies.values())) < INITIAL_CREDIT:
        await link.next(CallData)
    assert calls.resume("c") > 0 and len(link.open) == 1, "what is being sent is not sent again"
    link.credit(first.stream, 1)
    await link.next(CallEnd)
    link.head(first.stream)
    link.data(first.stream, 0, b"ans")
    await asyncio.sleep(0)
    calls.resume("c")
    again = await link.next(CallOpen)
    assert (again.id, again.offset) == ("c", 3)
    link.data(first.stream, 3, b"lost")
    link.head(again.stream)
    link.data(again.stream, 3, b"wer")
    link.end(again.stream)
    assert await asyncio.wait_for(asked, DEADLINE_S) == b"answer"
