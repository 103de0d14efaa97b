"""One attached client: liveness, the order of what it is sent, and long events."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ccb.remote.daemon import clients as client_module
from ccb.remote.daemon.clients import AttachedClient
from ccb.remote.daemon.model_streams import ModelStreams, StreamLink
from ccb.remote.session_store.client_outbox import ClientOutbox
from ccb.remote.session_store.journal import Journal
from ccb.tunnel.wire.frames import Attach, CallData, Event, Frame, Ping, Pong, Progress
from ccb.tunnel.wire.journal_records import MessageRecord
from ccb.tunnel.wire.ndjson import FrameDecoder, encode_frame

DEADLINE_S = 60.0


class Daemon(ModelStreams):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.journal = Journal(str(directory / "journal.jsonl"))
        self.gone = asyncio.Event()

    async def take(self, client: AttachedClient, frame: Frame) -> None:
        assert isinstance(frame, Attach), f"nobody sends a {frame.t}"
        client.outbox.admit(frame.role, frame.epoch, frame.have)
        client.model_link = StreamLink(1, "", "n", client.outbox.control, client.outbox.bulk)

    async def serve(self, client: AttachedClient) -> None:
        await client.run(self.take)
        self.gone.set()


class Wire:
    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._decoder = FrameDecoder()
        self.lines = b""

    async def send(self, frame: Frame) -> None:
        for line in encode_frame(frame):
            await asyncio.get_running_loop().sock_sendall(self._end, line)

    async def read(self) -> list[Frame]:
        data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self._end, 65536), DEADLINE_S)
        assert data, "the connection has ended"
        self.lines += data
        return list(self._decoder.feed(data))

    async def frames(self, count: int) -> list[Frame]:
        frames: list[Frame] = []
        while len(frames) < count:
            frames += await self.read()
        return frames


@pytest.fixture
async def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path)


@asynccontextmanager
async def served(daemon: Daemon) -> AsyncIterator[tuple[AttachedClient, Wire]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    client = AttachedClient(daemon.journal, daemon, reader, writer, None, lambda frame: {})
    task = asyncio.ensure_future(daemon.serve(client))
    try:
        yield client, Wire(theirs)
    finally:
        theirs.close()
        await asyncio.wait_for(task, DEADLINE_S)
        await daemon.journal.close()


@asynccontextmanager
async def attached(daemon: Daemon) -> AsyncIterator[tuple[AttachedClient, Wire]]:
    async with served(daemon) as (client, wire):
        await wire.send(Attach(1, "driver", 0, "n"))
        await wire.send(Ping(1, 1))
        await wire.frames(1)
        yield client, wire


async def test_a_silent_client_is_asked_and_then_left(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PING_AFTER_S", 0.05)
    monkeypatch.setattr(client_module, "SILENT_S", 0.2)
    async with served(daemon) as (_, wire):
        assert isinstance((await wire.frames(1))[0], Ping)
        await asyncio.wait_for(daemon.gone.wait(), DEADLINE_S)


@pytest.mark.parametrize("still_s", [0.0, pytest.param(2.0, marks=pytest.mark.programs)])
async def test_a_client_that_answers_stays_also_after_the_process_was_stopped(
    daemon: Daemon, still_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that stands still for longer than the silence allowed, as with SIGSTOP."""
    monkeypatch.setattr(client_module, "PING_AFTER_S", 0.1 + still_s / 5)
    monkeypatch.setattr(client_module, "SILENT_S", 1.5)
    async with served(daemon) as (_, wire):
        assert isinstance((await wire.frames(1))[0], Ping)
        time.sleep(still_s)
        for _ in range(4 if still_s else 20):
            for frame in await wire.frames(1):
                assert isinstance(frame, Ping)
                await wire.send(Pong(0, frame.n))
        assert not daemon.gone.is_set()


async def test_progress_comes_after_the_event_it_follows_and_only_its_newest(daemon: Daemon) -> None:
    async with attached(daemon) as (client, wire):
        daemon.journal.append(MessageRecord({"n": 1}))
        client.outbox.progress(1, "tool", {"shown": "old"})
        client.outbox.progress(1, "tool", {"shown": "new"})
        client.outbox.progress(1, "", {"shown": "a"})
        client.outbox.progress(1, "", {"shown": "b"})
        await daemon.journal.commit()
        frames = await wire.frames(4)
        assert isinstance(frames[0], Event)
        assert [frame.body["shown"] for frame in frames[1:] if isinstance(frame, Progress)] == ["new", "a", "b"]


async def test_control_goes_between_the_parts_of_a_long_event(daemon: Daemon) -> None:
    async with attached(daemon) as (client, wire):
        daemon.journal.append(MessageRecord({"text": "x" * 8_000_000}))
        daemon.journal.append(MessageRecord({"text": "after"}))
        await daemon.journal.commit()
        await wire.read()
        client.outbox.control(Pong(1, 5))
        frames = await wire.frames(3)
        assert [frame.t for frame in frames] == ["pong", "event", "event"]
        assert wire.lines.index(b'"t":"pong"') < wire.lines.rindex(b'"t":"part"')
        event = frames[1]
        assert isinstance(event, Event)
        assert len(event.body["text"]) == 8_000_000


async def test_data_waits_for_events_and_is_bounded(daemon: Daemon) -> None:
    async with attached(daemon) as (client, wire):

        async def upload() -> None:
            for number in range(60):
                await client.outbox.bulk(CallData(1, 1, number, "A" * 100_000))

        sending = asyncio.ensure_future(upload())
        await wire.read()
        assert not sending.done()
        daemon.journal.append(MessageRecord({}))
        await daemon.journal.commit()
        seen = 0
        while True:
            frames = await wire.frames(1)
            seen += sum(isinstance(frame, CallData) for frame in frames)
            if any(isinstance(frame, Event) for frame in frames):
                break
        assert seen < 40
        while seen < 60:
            seen += sum(isinstance(frame, CallData) for frame in await wire.frames(1))
        await asyncio.wait_for(sending, DEADLINE_S)


def test_no_piece_of_an_answer_is_missing_when_a_client_reads_slowly() -> None:
    """Clients count the characters of a block: with a piece less, its rest would begin in a wrong place."""
    outbox = ClientOutbox(Journal(""))
    outbox.admit("driver", 1, 0)
    told: dict[object, str] = {None: "", "toolu_1": ""}
    for number in range(6_000):
        agent_id, piece = list(told)[number % 2], f"{number} "
        told[agent_id] += piece
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        outbox.progress(0, "", {"type": "stream_event", "event": delta, "parent_tool_use_id": agent_id})
        outbox.progress(0, f"slot {number % 9}", {"type": "tool_progress"})
    decoder = FrameDecoder()
    frames = [frame for line in iter(outbox.next_line, None) for frame in decoder.feed(line)]
    bodies = [frame.body for frame in frames if isinstance(frame, Progress)]
    assert len(bodies) <= 2_000
    for agent_id, text in told.items():
        own = [each["event"]["delta"]["text"] for each in bodies if each.get("parent_tool_use_id", 0) == agent_id]
        assert "".join(own) == text
