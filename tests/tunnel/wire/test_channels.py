"""Both ends of channels, wired together: what is written arrives once and whole, over any connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.tunnel.wire.channels import MAX_CHANNELS, Channel, ChannelError, ChannelFrame, Channels
from ccb.tunnel.wire.frames import CHUNK, INITIAL_CREDIT, ChannelCredit, ChannelData, ChannelEnd, ChannelOpen

OPEN = ChannelOpen(1, "port", {})


class Wire:
    """The tables of a laptop and a host, whose frames reach the other end while there is a connection. A cut loses what
    was sent since the last look of the other end."""

    def __init__(self, lossy: random.Random | None = None) -> None:
        self.frames: list[ChannelFrame | ChannelOpen] = []
        self.laptop, self.host = Channels(), Channels()
        self._lossy = lossy
        self._alive = [True]

    def channel(self, number: int = 1) -> tuple[Channel, Channel]:
        return self.laptop.add(number, ChannelOpen(number, "port", {})), self.host.add(number)

    def connect(self) -> None:
        self.cut()  # an end may not have noticed that
        alive = self._alive = [True]

        def arrive(frame: ChannelFrame | ChannelOpen, to: Channels) -> None:
            if not alive[0]:
                return
            if self._lossy is not None and self._lossy.random() < 0.2:
                self.cut()  # while it is on its way
            elif not isinstance(frame, ChannelOpen):
                to.take(frame)
            elif self.host.get(frame.channel) is None:
                self.laptop.take(ChannelEnd(frame.channel, "it has ended meanwhile"))

        async def carry(frame: ChannelFrame | ChannelOpen, to: Channels) -> None:
            await asyncio.sleep(0)
            if not alive[0]:
                raise ChannelError("lost")
            self.frames.append(frame)
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, arrive, frame, to)  # its sender goes on before

        self.host.keep_only(self.laptop.numbers)
        self.host.back(lambda frame: carry(frame, self.laptop))
        self.laptop.back(lambda frame: carry(frame, self.host))

    def cut(self) -> None:
        self._alive[0] = False
        self.laptop.lost()
        self.host.lost()

    @property
    def alive(self) -> bool:
        return self._alive[0]


@asynccontextmanager
async def connected(number: int = 1) -> AsyncIterator[tuple[Wire, Channel, Channel]]:
    wire = Wire()
    near, far = wire.channel(number)
    wire.connect()
    async with near, far:
        yield wire, near, far


async def all_of(channel: Channel) -> bytes:
    data = bytearray()
    while piece := await channel.read():
        data += piece
    return bytes(data)


async def give(channel: Channel, pieces: list[bytes]) -> None:
    for piece in pieces:
        await channel.write(piece)
    channel.end({"code": 3})


async def all_both_ways(channel: Channel, pieces: list[bytes]) -> bytes:
    """Give and read all, and leave the channel as soon as this end knows that the other one has all."""
    async with channel:
        _, data = await asyncio.gather(give(channel, pieces), all_of(channel))
        with suppress(ChannelError):  # the other end has left, which knows that this one has all
            await channel.over()
    return data


SIZES = st.lists(st.integers(0, 3 * CHUNK), max_size=6)


@given(SIZES, SIZES, st.none() | st.integers())
def test_what_is_written_arrives_once_and_whole_over_any_lost_connections(
    sizes: list[int], sizes_back: list[int], seed: int | None
) -> None:
    one, other = ([random.Random(size).randbytes(size) for size in each] for each in (sizes, sizes_back))

    async def run() -> None:
        wire = Wire(random.Random(seed) if seed is not None else None)
        near, far = wire.channel()
        wire.connect()

        async def reconnect() -> None:
            while True:
                if not wire.alive:
                    wire.connect()
                await asyncio.sleep(0)

        again = asyncio.create_task(reconnect())
        async with asyncio.timeout(20):
            here, there = await asyncio.gather(all_both_ways(near, one), all_both_ways(far, other))
        again.cancel()
        assert there == b"".join(one) and here == b"".join(other) and near.result == {"code": 3}
        assert not wire.laptop.numbers and not wire.host.numbers

    asyncio.run(run())


async def test_a_reader_that_stops_holds_up_its_own_channel_only() -> None:
    async with connected() as (wire, near, far):
        second, other = wire.channel(2)
        async with second, other:
            writing = asyncio.create_task(far.write(bytes(4 * INITIAL_CREDIT)))
            await other.write(b"still here")
            assert await second.read() == b"still here"
            while sum(len(each.data) for each in wire.frames if isinstance(each, ChannelData)) < INITIAL_CREDIT:
                await asyncio.sleep(0)
            assert not writing.done()
            read = 0
            while read < 4 * INITIAL_CREDIT:
                read += len(await near.read())
            await writing
    sent = [len(each.data) for each in wire.frames if isinstance(each, ChannelData)]
    assert sum(sent) == 4 * INITIAL_CREDIT + len(b"still here")


async def test_what_two_tasks_write_is_not_mixed() -> None:
    now = asyncio.Event()
    async with connected() as (_, near, far):

        async def write_now() -> None:
            await now.wait()
            await near.write(b"2")

        writing = [asyncio.create_task(near.write(b"1" * 2 * INITIAL_CREDIT)), asyncio.create_task(write_now())]
        while far._in.received < INITIAL_CREDIT:
            await asyncio.sleep(0)
        for _turn in range(20):  # of the loop, until nothing is due any more
            await asyncio.sleep(0)
        now.set()  # before the first one hears that there is room
        near.take(ChannelCredit(1, INITIAL_CREDIT, INITIAL_CREDIT))
        got = bytearray()
        while len(got) <= 2 * INITIAL_CREDIT:
            got += await far.read()
        await asyncio.gather(*writing)
    assert got == b"1" * 2 * INITIAL_CREDIT + b"2"


async def test_bytes_that_were_written_and_not_sent_cannot_have_arrived() -> None:
    async with connected() as (wire, near, _):
        wire.cut()
        await near.write(b"written")
        wire.laptop.take(ChannelCredit(1, 7, INITIAL_CREDIT))
        with pytest.raises(ChannelError, match="invented"):
            await near.read()


@pytest.mark.parametrize(
    "frame",
    [ChannelData(1, 0, bytes(INITIAL_CREDIT + 1)), ChannelData(1, 7, b"a gap"), ChannelCredit(1, 5, INITIAL_CREDIT)],
    ids=["more than it may", "a gap", "bytes that nobody sent"],
)
async def test_a_peer_that_lies_breaks_its_channel_and_no_other(frame: ChannelFrame) -> None:
    async with connected() as (wire, near, _):
        second, other = wire.channel(2)
        async with second, other:
            wire.laptop.take(frame)
            with pytest.raises(ChannelError):
                await near.read()
            with pytest.raises(ChannelError):
                await near.write(b"x")
            await other.write(b"fine")
            assert await second.read() == b"fine"


async def test_frames_of_channels_that_nobody_opened_or_that_are_over_do_nothing() -> None:
    async with connected() as (wire, near, far):
        near.end()
        far.end()
        await asyncio.gather(near.over(), far.over())
    before = list(wire.frames)
    for number in (1, 7):
        for frame in (ChannelData(number, 0, b""), ChannelCredit(number, 9, 9), ChannelEnd(number)):
            wire.laptop.take(frame)
    assert wire.frames == before and not wire.laptop.numbers


async def test_too_many_channels_and_a_number_in_use_are_refused() -> None:
    table = Channels()
    for number in range(MAX_CHANNELS):
        table.add(number)
    for number in (0, MAX_CHANNELS):
        with pytest.raises(ChannelError):
            table.add(number)


async def test_a_channel_that_is_left_without_a_connection_is_closed_at_the_other_end_by_the_next_attach() -> None:
    wire = Wire()
    near, far = wire.channel()
    wire.connect()
    async with far:
        async with near:
            wire.cut()
        reading = asyncio.create_task(far.read())
        wire.connect()
        with pytest.raises(ChannelError, match="closed"):
            await reading


async def test_leaving_an_open_channel_closes_it_at_the_other_end_behind_what_has_arrived() -> None:
    async with connected() as (_, near, far):
        await far.write(b"last words")
        while not near._in.received:
            await asyncio.sleep(0)
        await far.close("the program has ended")
        assert await near.read() == b"last words"
        with pytest.raises(ChannelError, match="has ended"):
            await near.read()
