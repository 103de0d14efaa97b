"""Both ends of channels, wired together: what is written arrives, and nobody holds more than was granted."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.tunnel.wire.channels import MAX_CHANNELS, Channel, ChannelError, ChannelFrame, Channels
from ccb.tunnel.wire.frames import CHUNK, INITIAL_CREDIT, ChannelCredit, ChannelData, ChannelEnd


class Wire:
    """Two tables of channels whose frames reach the other at once, and a record of them."""

    def __init__(self) -> None:
        self.frames: list[ChannelFrame] = []
        self.near = Channels(self._to(lambda: self.far))
        self.far = Channels(self._to(lambda: self.near))

    def _to(self, table: Callable[[], Channels]) -> Callable[[ChannelFrame], Awaitable[None]]:
        async def send(frame: ChannelFrame) -> None:
            self.frames.append(frame)
            table().take(frame)

        return send

    def channel(self, number: int = 1) -> tuple[Channel, Channel]:
        return self.near.add(number, 1), self.far.add(number, 1)


async def all_of(channel: Channel) -> bytes:
    data = bytearray()
    while piece := await channel.read():
        data += piece
    return bytes(data)


@given(st.lists(st.binary(max_size=3 * CHUNK), max_size=8), st.lists(st.binary(max_size=200), max_size=8))
def test_what_is_written_arrives_whole_and_in_order_in_both_directions(one: list[bytes], other: list[bytes]) -> None:
    async def run() -> None:
        near, far = Wire().channel()

        async def give(channel: Channel, pieces: list[bytes]) -> None:
            for piece in pieces:
                await channel.write(piece)
            await channel.end({"code": 3})

        *_, there, here = await asyncio.gather(give(near, one), give(far, other), all_of(far), all_of(near))
        assert (there, here, near.result) == (b"".join(one), b"".join(other), {"code": 3})

    asyncio.run(run())


async def test_a_reader_that_stops_holds_up_its_own_channel_only() -> None:
    wire = Wire()
    (near, far), (second, other) = wire.channel(1), wire.channel(2)
    writing = asyncio.create_task(far.write(bytes(4 * INITIAL_CREDIT)))
    await asyncio.sleep(0)  # it writes until it has no credit
    await other.write(b"still here")
    assert await second.read() == b"still here"
    sent = sum(len(base64.b64decode(each.b64)) for each in wire.frames if isinstance(each, ChannelData))
    assert sent == INITIAL_CREDIT + len(b"still here") and not writing.done()
    read = 0
    while read < 4 * INITIAL_CREDIT:
        read += len(await near.read())
    await writing


@pytest.mark.parametrize(
    "frame", [ChannelData(1, 1, base64.b64encode(bytes(INITIAL_CREDIT + 1)).decode()), ChannelData(1, 1, "no base64")]
)
async def test_a_peer_that_sends_more_than_it_was_granted_or_nonsense_breaks_its_channel(frame: ChannelData) -> None:
    wire = Wire()
    near, _ = wire.channel()
    wire.near.take(frame)
    with pytest.raises(ChannelError):
        await near.read()
    with pytest.raises(ChannelError):
        await near.write(b"x")


async def test_frames_of_channels_that_nobody_opened_or_that_are_over_do_nothing() -> None:
    wire = Wire()
    near, far = wire.channel()
    await near.end()
    await far.end()
    before = list(wire.frames)
    for number in (1, 7):
        for frame in (ChannelData(1, number, ""), ChannelCredit(1, number, 9), ChannelEnd(1, number)):
            wire.near.take(frame)
    assert wire.frames == before and await near.read() == b""
    wire.near.add(1, 1)  # the number is free again


async def test_too_many_channels_and_a_number_in_use_are_refused() -> None:
    wire = Wire()
    for number in range(MAX_CHANNELS):
        wire.near.add(number, 1)
    for number in (0, MAX_CHANNELS):
        with pytest.raises(ChannelError):
            wire.near.add(number, 1)


async def test_a_lost_connection_breaks_channels_behind_what_has_arrived() -> None:
    wire = Wire()
    near, far = wire.channel()
    await far.write(b"last words")
    wire.near.lost("the connection was lost")
    assert await near.read() == b"last words"
    with pytest.raises(ChannelError, match="lost"):
        await near.read()


async def test_leaving_an_open_channel_closes_it_at_the_other_end() -> None:
    near, far = Wire().channel()
    async with near:
        await near.write(b"x")
    assert await far.read() == b"x"
    with pytest.raises(ChannelError, match="closed"):
        await far.read()
