"""An attached link: order, acknowledgement, liveness, priority, model streams."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.hosts.scripted_host import no_calls
from tests.support.machine.waiting import until
from tests.support.network.link_peer import HELLO, Peer, SocketPipe, link_pair

from ccb.tunnel.errors import CcbError, ConnectionLost, DeployError, NoStorage, NoSuchPath, ProtocolError, UsageError
from ccb.tunnel.link import link as links
from ccb.tunnel.link import liveness
from ccb.tunnel.link.link import MAX_NOTES, FrameWriter, Link, new_nonce
from ccb.tunnel.wire import frames as wire
from ccb.tunnel.wire.ndjson import encode_frame

OPEN = wire.CallOpen(1, 3, "call-1", "n", "POST", "/v1/messages", {}, 5)


class Calls:
    def __init__(self) -> None:
        self.seen: list[object] = []

    async def handle(self, frame: object) -> None:
        self.seen.append(frame)


@asynccontextmanager
async def attached(
    *, ping_after: float = 15, dead_after: float = 45, have: int = 0
) -> AsyncIterator[tuple[Link, Peer, SocketPipe, Calls]]:
    calls = Calls()
    async with link_pair() as (pipe, peer), Link(pipe, ping_after=ping_after, dead_after=dead_after) as link:
        await peer.hello()
        await link.hello()
        await link.attach(have=have, nonce=new_nonce(), options={}, calls=calls.handle)
        await peer.next(wire.Attach)
        yield link, peer, pipe, calls


async def collect(link: Link) -> list[object]:
    return [frame async for frame in link.frames()]


async def test_events_come_in_order_and_a_repeated_one_once() -> None:
    async with attached() as (link, peer, _, _):
        await peer.send(wire.Event(1, 1, "message", {"a": 1}), wire.Event(2, 1, "message", {"a": 2}))
        await peer.send(wire.Event(2, 1, "message", {"a": 2}), wire.Progress(2, 1, "k", {}))
        await peer.send(wire.Event(3, 1, "fact", {}), wire.Bye("done"))
        frames = await collect(link)
    seen = [(type(each).__name__, getattr(each, "seq", None)) for each in frames]
    assert seen == [("Event", 1), ("Event", 2), ("Progress", 2), ("Event", 3), ("Bye", None)]


async def test_a_gap_in_the_events_is_an_error_that_names_it() -> None:
    async with attached(have=4) as (link, peer, _, _):
        await peer.send(wire.Event(5, 1, "m", {}), wire.Event(9, 1, "m", {}))
        with pytest.raises(ProtocolError, match="6 to 8"):
            await collect(link)


@pytest.mark.parametrize(("seconds", "count", "most"), [(60, 64, 1), (0.05, 3, 2)], ids=["64 at once", "after a while"])
async def test_events_are_acknowledged_together(
    seconds: float, count: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "ACK_SECONDS", seconds)
    async with attached() as (link, peer, _, _):
        reading = asyncio.create_task(collect(link))
        await peer.send(*(wire.Event(n, 1, "m", {}) for n in range(1, count + 1)))
        seqs = [(await peer.next(wire.Ack)).seq]
        while seqs[-1] < count:
            seqs.append((await peer.next(wire.Ack)).seq)
        assert len(seqs) <= most
        reading.cancel()


async def test_silence_is_pinged_and_then_dead() -> None:
    async with attached(ping_after=0.1, dead_after=0.4) as (link, peer, _, _):
        reading = asyncio.create_task(collect(link))
        await peer.next(wire.Ping)
        with pytest.raises(ConnectionLost, match="has not answered"):
            await asyncio.wait_for(reading, 60)
        assert link.silent


async def test_a_doubted_connection_lives_if_it_is_heard_or_is_soon_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "PROBE_S", 0.3)
    async with attached(ping_after=0.1, dead_after=600) as (link, peer, _, _):
        reading = asyncio.create_task(collect(link))
        link.liveness.probe()
        await peer.send(wire.Pong(1, (await peer.next(wire.Ping)).n))
        for _ in range(3):  # pings of silence, as it lives on
            await peer.send(wire.Pong(1, (await peer.next(wire.Ping)).n))
        assert not reading.done()
        await peer.next(wire.Ping)  # asked after silence, so nothing is on its way
        link.liveness.probe()
        with pytest.raises(ConnectionLost, match="has not answered"):
            await asyncio.wait_for(reading, 60)


async def test_a_link_that_does_not_answer_says_so_long_before_it_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "UNANSWERED_S", 0.05)
    async with attached(ping_after=600, dead_after=1800) as (link, peer, _, _):
        reading = asyncio.create_task(collect(link))
        await asyncio.sleep(0)
        link.liveness.expect()  # the person has sent something
        link.liveness.expect()
        ping = await peer.next(wire.Ping)
        await until(lambda: link.liveness.unanswered_s)
        await peer.send(wire.Pong(1, ping.n))
        await until(lambda: not link.liveness.unanswered_s)
        link.liveness.expect()
        assert (await peer.next(wire.Ping)).n == ping.n + 1
        reading.cancel()


async def test_a_consumer_that_takes_its_time_makes_neither_end_look_dead() -> None:
    """The host detaches who is silent: somebody who pages through the output of a run is not."""
    async with attached(ping_after=0.1, dead_after=0.3) as (link, peer, _, _):
        await peer.send(wire.Event(1, 1, "m", {}), wire.Event(2, 1, "m", {}))
        frames = link.frames()
        await anext(frames)
        for _ in range(6):
            await peer.next(wire.Ping)
        await peer.send(wire.Bye())
        assert [type(frame) async for frame in frames] == [wire.Event, wire.Bye]


async def test_model_calls_for_who_only_watches_are_against_the_protocol() -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.hello()
        await link.hello()
        await link.attach(role="viewer", nonce=new_nonce(), options={}, calls=None)
        await peer.send(OPEN)
        with pytest.raises(ProtocolError, match="only watches"):
            await collect(link)


async def test_a_lost_connection_is_an_error_for_readers_and_writers() -> None:
    async with attached() as (link, peer, pipe, _):
        pipe.stderr = "Connection reset by devbox\n"
        peer.hang_up()
        with pytest.raises(ConnectionLost) as caught:
            await collect(link)
        assert "reset by devbox" in caught.value.evidence
        with pytest.raises(ConnectionLost):
            async with asyncio.timeout(60):
                while True:
                    await link.send(wire.Input(1, "i", {"fill": "x" * 65536}))


async def test_a_refused_attach_and_a_frame_that_only_a_laptop_sends_are_errors() -> None:
    for frame, kind, said in (
        (wire.Refused("bad_attach", "unknown option"), UsageError, "unknown option"),
        (wire.Input(1, "x", {"type": "user"}), ProtocolError, "only a laptop"),
        (wire.ChannelOpen(1, "port", {"port": 22}), ProtocolError, "only a laptop"),
    ):
        async with attached() as (link, peer, _, _):
            await peer.send(frame)
            with pytest.raises(kind, match=said):
                await collect(link)


async def test_model_streams_go_to_the_proxy_and_nowhere_else() -> None:
    async with attached() as (link, peer, _, calls):
        data = wire.CallData(1, 3, 0, "aGVsbG8=")
        frames: list[wire.Frame] = [OPEN, data, wire.CallEnd(1, 3), wire.Credit(1, 3, 9), wire.Cancel(1, 3)]
        await peer.send(*frames, wire.Bye())
        assert [type(frame) for frame in await collect(link)] == [wire.Bye]
        assert calls.seen == frames


async def test_control_frames_overtake_waiting_response_bytes() -> None:
    async with attached() as (link, peer, _, _):
        chunk = base64.b64encode(bytes(90_000)).decode()

        async def fill() -> None:
            for n in range(60):
                await link.send(wire.CallData(1, 3, n * 90_000, chunk))

        filling = asyncio.create_task(fill())
        done, _ = await asyncio.wait({filling}, timeout=0.2)
        assert not done, "the response must meet back-pressure"
        await link.send(wire.Input(1, "urgent", {"type": "user"}))
        before = 0
        async with asyncio.timeout(60):
            while (await peer.next((wire.Input, wire.CallData))).t != "input":  # type: ignore[arg-type]
                before += 1
        assert before < 40
        while (await peer.next(wire.CallData)).off < 59 * 90_000:
            pass
        await filling


async def test_a_frame_over_the_limit_is_refused_and_the_link_lives() -> None:
    async with attached() as (link, peer, _, _):
        with pytest.raises(wire.FrameError, match="limit"):
            await link.send(wire.Input(1, "huge", {"fill": "x" * (33 * 1024 * 1024)}))
        await link.send(wire.Input(1, "small", {}))
        assert (await peer.next(wire.Input)).id == "small"


class _StuckPipe:
    """Takes nothing until it is opened, and gives nothing until it is cancelled."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.written = b""
        self.cancelled = asyncio.Event()

    async def exit_status(self) -> int | None:
        return None

    async def read(self, n: int = 0) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            await asyncio.sleep(0.05)  # as a transport that ends in its own time
        return b""

    async def write(self, data: bytes) -> None:
        await self.opened.wait()
        self.written += data

    async def close(self) -> None:
        pass

    def stderr_tail(self) -> str:
        return ""


async def test_credit_is_never_dropped_however_many_answers_wait() -> None:
    """Its stream would stand still for good."""
    pipe = _StuckPipe()
    writer = FrameWriter(pipe)
    writer.start()
    writer.send_soon(wire.Pong(1, 0))
    await asyncio.sleep(0)  # it writes now, and takes nothing more
    for number in range(10_000):
        writer.send_soon(wire.Pong(1, number))
    credit = asyncio.ensure_future(writer.send(wire.Credit(1, 7, 1000)))
    await asyncio.sleep(0)
    pipe.opened.set()
    await asyncio.wait_for(credit, 60)
    await asyncio.wait_for(writer.flush(), 60)
    assert pipe.written.count(b'"credit"') == 1
    await writer.close()


async def test_the_end_of_a_channel_waits_for_no_room() -> None:
    """Who leaves a shell would wait for a network that takes nothing."""
    pipe = _StuckPipe()
    writer = FrameWriter(pipe)
    writer.start()

    piece = wire.ChannelData(1, 0, bytes(90_000))
    sending = [asyncio.ensure_future(writer.send(piece)) for _ in range(100)]
    done, waiting = await asyncio.wait(sending, timeout=0.1)
    assert done and waiting
    sending.append(asyncio.ensure_future(writer.send(piece)))  # the queue has the room of the piece that is written
    await asyncio.wait_for(writer.send(wire.ChannelEnd(1, "closed")), 5)
    pipe.opened.set()
    await asyncio.gather(*sending)
    await writer.close()


async def test_a_cancellation_that_comes_while_a_read_is_being_ended_is_not_lost() -> None:
    pipe = _StuckPipe()
    link = Link(pipe)
    async with link:
        reading = asyncio.ensure_future(link._read())
        await asyncio.sleep(0)
        link._writer.failed.set_result(ConnectionLost("so it is"))
        await asyncio.wait_for(pipe.cancelled.wait(), 60)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading


@pytest.mark.parametrize("version", [wire.PROTOCOL, wire.PROTOCOL - 1])
async def test_hello_of_this_version_or_the_one_before_is_read_and_the_next_epoch_asked_for(version: int) -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.hello(epoch=6, seq=41, protocol=version)
        hello = await link.hello()
        assert (hello.cwd.raw, hello.seq) == ("/srv/app", 41)
        nonce = new_nonce()
        await link.attach(have=0, nonce=nonce, options={"model": "opus"}, calls=no_calls)
        attach = await peer.next(wire.Attach)
        assert (attach.epoch, attach.role, attach.have, attach.options) == (7, "driver", 0, {"model": "opus"})
        assert nonce.matches(attach.nonce) and len(attach.nonce) >= 32


async def test_the_notes_of_a_worker_are_limited_and_the_rest_is_counted() -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        notes, last = [f"note {number}" for number in range(500)], {"records": [json.loads("[" * 500 + "]" * 500)]}
        await peer.hello(notes=["n" * 100_000, *notes], capabilities=["c"] * 9_000, last=last)
        hello = await link.hello()
    assert len(hello.notes) == MAX_NOTES + 1 and hello.notes[1].raw == "note 0"
    assert hello.notes[-1].raw == "… and 481 more notes"
    assert sum(len(note.raw) for note in hello.notes) < 2_000 and len(hello.capabilities) == 100
    assert hello.last == {}  # no widget takes so many levels


async def test_a_hello_with_a_text_without_end_is_refused() -> None:
    async with link_pair() as (pipe, peer), Link(pipe, host="devbox") as link:
        await peer.hello(cwd="/" + "x" * 20_000)
        with pytest.raises(ProtocolError, match="20001 characters in 'cwd'"):
            await link.hello()


async def test_bytes_that_were_read_before_belong_to_the_link() -> None:
    line = b"".join(encode_frame(HELLO))
    async with link_pair() as (pipe, peer), Link(pipe, line[:20]) as link:
        await peer.send_bytes(line[20:])
        assert (await link.hello()).pid == HELLO.pid


@pytest.mark.parametrize("version", [wire.PROTOCOL + 1, wire.PROTOCOL + 40])
async def test_an_unknown_version_names_both(version: int) -> None:
    async with link_pair() as (pipe, peer), Link(pipe, host="devbox") as link:
        await peer.hello(protocol=version)
        with pytest.raises(ProtocolError) as caught:
            await link.hello()
    assert all(each in caught.value.what for each in (str(version), str(wire.PROTOCOL), "devbox"))


@pytest.mark.parametrize(
    ("refused", "kind", "part"),
    [
        (wire.Refused("no_such_path", "/srv/ap does not exist", {"near": ["/srv/app"]}), NoSuchPath, "/srv/app"),
        (
            wire.Refused("no_such_path", "gone", {"near": [], "path": "/srv/a b"}),
            NoSuchPath,
            "\nCreate it: mkdir -p '/srv/a b'",
        ),
        (
            wire.Refused("no_such_path", "gone", {"near": ["/srv/app"], "path": "/srv/ap"}),
            NoSuchPath,
            "\nCheck the path, or create it: mkdir -p /srv/ap",
        ),
        (wire.Refused("no_such_path", "gone", {"near": [], "path": "/srv/\nap"}), NoSuchPath, "\nCheck the path."),
        (wire.Refused("not_a_directory", "/etc/passwd is not a directory"), NoSuchPath, "/etc/passwd"),
        (wire.Refused("no_storage", "nothing writable", {"tried": ["/home/u: denied"]}), NoStorage, "denied"),
        (wire.Refused("in_use", "Session ID x is already in use"), UsageError, "in use"),
        (wire.Refused("bad_attach", "not as root"), UsageError, "not as root"),
        (wire.Refused("internal", "boom"), ProtocolError, "boom"),
        (wire.Refused("something_new", "what a later version says"), ProtocolError, "later version"),
    ],
)
async def test_a_refusal_becomes_its_error(refused: wire.Refused, kind: type[CcbError], part: str) -> None:
    async with link_pair() as (pipe, peer), Link(pipe, host="devbox") as link:
        await peer.send(refused)
        with pytest.raises(kind) as caught:
            await link.hello()
    assert part in str(caught.value) and "devbox" in caught.value.what


async def test_what_a_host_says_in_a_refusal_cannot_drive_the_terminal() -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.send(wire.Refused("no_such_path", "\x1b[2J\x07gone", {"near": ["\x1b]0;owned\x07x", "b\r"]}))
        with pytest.raises(NoSuchPath) as caught:
            await link.hello()
    assert not {"\x1b", "\x07", "\r"} & set(str(caught.value))


async def test_a_worker_that_ends_before_its_hello_shows_its_stderr() -> None:
    async with link_pair() as (pipe, peer), Link(pipe, host="devbox") as link:
        pipe.stderr = "Traceback: out of memory\n"
        peer.hang_up()
        with pytest.raises(DeployError) as caught:
            await link.hello()
    assert "out of memory" in caught.value.evidence


async def test_a_worker_that_says_nothing_is_given_up() -> None:
    async with link_pair() as (pipe, _), Link(pipe) as link:
        with pytest.raises(DeployError, match="no hello within"):
            await link.hello(timeout=0.05)


@pytest.mark.parametrize("first", [wire.CallData(0, 1, 0, ""), wire.CallEnd(0, 1)])
async def test_anything_else_first_is_against_the_protocol(first: wire.CallData | wire.CallEnd) -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.send(first)
        with pytest.raises(ProtocolError, match="hello was due"):
            await link.hello()


@pytest.mark.parametrize(
    "noise", [b"Welcome to devbox\x1b[31m!\n", b'{"t":"hello"}\n', b"\x00\xff\xfe\n", b"x" * 300_000]
)
async def test_bytes_that_are_no_frame_are_shown_safely(noise: bytes) -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.send_bytes(noise)
        with pytest.raises(ProtocolError) as caught:
            await link.hello()
    assert "\x1b" not in str(caught.value) and "\x00" not in str(caught.value) and len(str(caught.value)) < 600


async def test_grants_and_fences_of_an_earlier_epoch_are_ignored() -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.hello(epoch=4)
        await link.hello()
        await link.attach(nonce=new_nonce(), options={}, calls=no_calls)
        await peer.send(wire.Fenced(4, "bob"), wire.Attached(4, "viewer", 0, "bob"), wire.Snapshot(4, 9, {}))
        await peer.send(wire.Attached(5, "driver", 0), wire.Event(1, 5, "message", {}), wire.Fenced(6, "bob"))
        frames = link.frames()
        async with asyncio.timeout(60):
            assert [await anext(frames) for _ in range(3)] == [
                wire.Attached(5, "driver", 0), wire.Event(1, 5, "message", {}), wire.Fenced(6, "bob"),
            ]  # fmt: skip
