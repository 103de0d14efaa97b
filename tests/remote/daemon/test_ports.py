"""Channels to ports of the host: who may open them, what they carry, and what ends them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.local.ports.test_port_forwards import free_port
from tests.remote.agent_kit import says
from tests.remote.worker_process import Laptop, WorkerHost

from ccb.remote.daemon import ports as worker_ports
from ccb.remote.daemon.ports import MAX_WAITING, PortWatch, ReversePorts
from ccb.tunnel.wire.channels import ChannelError, ChannelFrame, Channels
from ccb.tunnel.wire.frames import (
    CHUNK,
    INITIAL_CREDIT,
    CallData,
    ChannelCredit,
    ChannelData,
    ChannelEnd,
    ChannelOpen,
    Json,
    Listening,
)
from ccb.tunnel.wire.ndjson import MAX_LINE, FrameDecoder, encode_frame
from ccb.tunnel.wire.session_options import SessionOptions

ECHO = b"echo: "


@asynccontextmanager
async def echo_server(address: str = "127.0.0.1") -> AsyncIterator[int]:
    """A server that answers when the other end has sent all, and then closes. Yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            writer.write(ECHO + await reader.read(-1))
            await writer.drain()

    server = await asyncio.start_server(serve, address, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def opened(laptop: Laptop, kind: str, body: Json, sent: bytes = b"", channel: int = 1) -> None:
    await laptop.send(ChannelOpen(channel, kind, body))
    if sent:
        await laptop.send(ChannelData(channel, 0, sent))
        await laptop.send(ChannelEnd(channel))


async def received(laptop: Laptop) -> tuple[bytes, str]:
    """What comes on a channel up to its end, and the error of that."""
    end = await laptop.next(ChannelEnd)
    return b"".join(each.data for each in laptop.frames if isinstance(each, ChannelData)), end.error


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_a_channel_carries_bytes_to_a_port_of_either_loopback_and_back(
    host: WorkerHost, session: str, address: str
) -> None:
    laptop = await host.drive(session)
    async with echo_server(address) as port:
        await opened(laptop, "port", {"port": port}, b"hello")
        assert await received(laptop) == (b"echo: hello", "")


@pytest.mark.parametrize(
    "kind, body, why",
    [
        ("port", {"port": 0}, "1 to 65535"),
        ("port", {"port": "80"}, "1 to 65535"),
        ("port", {}, "1 to 65535"),
        ("printer", {}, "no printer"),
    ],
)
async def test_what_cannot_be_opened_is_refused_with_the_reason(
    host: WorkerHost, session: str, kind: str, body: Json, why: str
) -> None:
    laptop = await host.drive(session)
    await opened(laptop, kind, body)
    assert why in (await laptop.next(ChannelEnd)).error


async def test_a_port_where_nothing_listens_is_refused_and_the_session_goes_on(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        await opened(laptop, "port", {"port": bound.getsockname()[1]})
        assert "nothing answers" in (await laptop.next(ChannelEnd)).error
    assert (await laptop.turn("hi", says("hello")))["subtype"] == "success"


async def test_the_channels_of_a_client_end_with_its_connection_and_outlive_a_take_over(
    host: WorkerHost, session: str
) -> None:
    first = await host.drive(session)
    await first.turn("hi", says("hello"))
    async with echo_server() as port:
        await first.send(ChannelOpen(1, "port", {"port": port}))
        second = await host.drive(session)
        await first.send(ChannelData(1, 0, b"still mine"))
        await first.send(ChannelEnd(1))
        assert await received(first) == (b"echo: still mine", "")
        await opened(second, "port", {"port": port}, b"y")
        assert await received(second) == (b"echo: y", "")


async def test_who_attaches_is_told_too_that_nothing_listens(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    assert (await laptop.next(Listening)).body == {"ports": []}, "the ports of a worker that was killed are gone"


async def test_a_laptop_that_reads_nothing_of_a_port_gets_no_more_than_the_window_and_the_session_goes_on(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session)
    whole = bytes(3 * INITIAL_CREDIT)

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            writer.write(whole)
            await writer.drain()

    server = await asyncio.start_server(pour, "127.0.0.1", 0)
    async with server:
        await opened(laptop, "port", {"port": server.sockets[0].getsockname()[1]})
        size = 0
        while size < INITIAL_CREDIT:
            size += len((await laptop.next(ChannelData)).data)
        assert (await laptop.turn("hi", says("hello")))["subtype"] == "success"
        assert size == INITIAL_CREDIT and not isinstance(laptop.frames[-1], ChannelData)


ME = SessionOptions(client="me@laptop")


async def test_a_channel_whose_opening_was_lost_with_its_connection_opens_over_the_next(
    host: WorkerHost, session: str
) -> None:
    channels = Channels()

    async def lose(_: ChannelFrame | ChannelOpen) -> None:
        sent.set()

    async def take() -> None:
        while await laptop.read():
            for frame in laptop.frames:
                if isinstance(frame, (ChannelData, ChannelCredit, ChannelEnd)):
                    channels.take(frame)
            laptop.frames.clear()

    laptop, sent = await host.drive(session, ME), asyncio.Event()
    channels.back(lose)
    async with echo_server() as port, channels.open("port", {"port": port}) as channel:
        await channel.write(b"hello")
        await sent.wait()
        channels.lost()
        channels.back(laptop.send)
        taking = asyncio.create_task(take())
        channel.end()
        assert await asyncio.wait_for(channel.read(), 30) == b"echo: hello"
        taking.cancel()


async def test_a_channel_whose_end_the_laptop_has_not_heard_of_is_not_opened_again_and_its_end_is_told_again(
    host: WorkerHost, session: str
) -> None:
    requests: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.read(100))
        linger = struct.pack("ii", 1, 0)  # so that the connection is reset
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    laptop = await host.drive(session, ME)
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        body: Json = {"port": server.sockets[0].getsockname()[1]}
        await opened(laptop, "port", body, b"POST")
        _, why = await received(laptop)
        await laptop.drop()
        again = await host.drive(session, ME)
        await opened(again, "port", body, b"POST")
        assert (await received(again))[1] == why != ""
    assert requests == [b"POST"]


async def test_a_new_connection_of_a_client_ends_its_last_one(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, ME)
    await first.turn("hi", says("hello"))
    await host.drive(session, ME)
    while await first.read():
        pass


def test_a_frame_of_bytes_that_is_too_long_for_a_line_is_cut_like_others() -> None:
    frame = CallData(1, 1, 0, base64.b64encode(bytes(3 * CHUNK)).decode())
    lines = encode_frame(frame)
    assert max(map(len, lines)) <= MAX_LINE
    assert list(FrameDecoder().feed(b"".join(lines))) == [frame]


async def test_a_reverse_port_tells_of_connections_and_carries_what_the_laptop_takes_up(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session)
    port = free_port()
    await opened(laptop, "accept", {"port": port})
    assert (await laptop.next(ChannelData)).data == b"\n", "it listens"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert (await laptop.next(ChannelData)).data == b"\n", "there is a connection"
    await opened(laptop, "accept", {"port": port}, channel=2)
    await laptop.send(ChannelData(1, 0, b"from the laptop"))
    await laptop.send(ChannelEnd(1))
    assert await reader.read() == b"from the laptop"
    writer.write(b"from the host")
    writer.close()
    data = await laptop.next(ChannelData, lambda frame: frame.channel == 1)
    assert data.data == b"from the host"
    assert (await laptop.next(ChannelEnd)).channel == 1
    await laptop.send(ChannelCredit(1, len(b"\n\nfrom the host") + 1, INITIAL_CREDIT))
    answering = asyncio.create_task(answer_pings(laptop))
    other = await host.connect(session)
    await other.attach(role="viewer")
    await opened(other, "accept", {"port": port})
    assert "in use" in (await other.next(ChannelEnd)).error, "the port of another laptop"
    crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_WAITING + 2)]  # one is taken
    assert await crowd[-1][0].read() == b"", "one more than there may be"
    await laptop.send(ChannelEnd(2, "closed"))
    for reader, writer in crowd:
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)
    answering.cancel()


async def answer_pings(laptop: Laptop) -> None:
    while await laptop.read():
        pass


async def test_a_connection_that_breaks_off_at_once_does_not_end_its_reverse_port(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session)
    port = free_port()
    await opened(laptop, "accept", {"port": port})
    assert (await laptop.next(ChannelData)).data == b"\n", "it listens"
    broken = socket.create_connection(("127.0.0.1", port))
    broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    broken.close()
    assert (await laptop.next(ChannelEnd)).channel == 1
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    await opened(laptop, "accept", {"port": port}, channel=2)
    lines = [await laptop.next(ChannelData, lambda frame: frame.channel == 2) for _ in range(2)]
    assert [each.data for each in lines] == [b"\n", b"\n"], "it listens, and there is a connection"
    writer.close()


async def test_a_reverse_port_goes_over_to_a_laptop_that_was_started_again(host: WorkerHost, session: str) -> None:
    port = free_port()
    killed = await host.drive(session, SessionOptions(client="one"))
    await opened(killed, "accept", {"port": port})
    assert (await killed.next(ChannelData)).data == b"\n", "it listens"
    await killed.drop()
    again = await host.drive(session, SessionOptions(client="two"))
    await opened(again, "accept", {"port": port})
    assert (await again.next(ChannelData)).data == b"\n", "it listens"
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    assert (await again.next(ChannelData)).data == b"\n", "there is a connection"
    writer.close()


@pytest.mark.parametrize("turns", [2, 3], ids="after {} turns of the loop".format)
async def test_a_connection_that_comes_as_its_reverse_port_ends_is_closed(turns: int) -> None:
    channels, port, loop = Channels(), free_port(), asyncio.get_running_loop()
    channels.back(lambda _: asyncio.sleep(0))
    async with channels.add(1) as channel:
        listening = asyncio.create_task(ReversePorts().serve(channel, {"port": port}, "driver"))
        with socket.socket() as made:
            while made.connect_ex(("127.0.0.1", port)):
                await asyncio.sleep(0)
            made.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            channel.broken("the laptop has closed it")
            with contextlib.suppress(ChannelError):
                await listening
            assert await asyncio.wait_for(loop.sock_recv(made, 1), 10) == b""


async def test_where_the_system_does_not_tell_who_listens_the_output_of_commands_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_ports, "can_be_read", lambda: False)
    changed = asyncio.Event()
    watch = PortWatch(lambda: True, lambda: [("npm run dev", "Local: http://localhost:5173/")])
    looking = asyncio.create_task(watch.run(changed.set))
    await changed.wait()
    assert watch.body == {"ports": [{"port": 5173, "name": "npm run dev"}]}
    looking.cancel()
