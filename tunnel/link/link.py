"""Speak the frames of the link over one pipe: hello, attach, events in order. Urgent frames are written first.

A link checks the order of events and acknowledges them, detects a silent peer, and hands the frames of model calls to
the auth proxy. It lives as long as its pipe; the session and the calls in the auth proxy belong to its owner.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, Self

from ..errors import ConnectionLost, DeployError, Dropped, ProtocolError
from ..plain_text import HostText, neutralise
from ..secret import Secret
from ..tasks import cancelled
from ..transports.pipe import Pipe
from ..wire import frames as wire
from ..wire.channels import ChannelFrame
from ..wire.dataclass import dataclass
from ..wire.ndjson import FrameDecoder, encode_frame, is_too_deep
from .liveness import DEAD_AFTER, PING_AFTER, Liveness
from .worker_refusals import is_session_id, refusal_error

ACK_EVENTS = 64  # after how many events an acknowledgement is sent at the latest
ACK_SECONDS = 1.0  # after how many seconds an event is acknowledged at the latest
MAX_NOTES = 20
MAX_NOTE = 1_000  # characters of a note
MAX_TEXT = 16 * 1024  # characters of any other text. A directory on Linux has at most 4,096 bytes.
_MAX_CAPABILITIES = 100


@dataclass(frozen=True)
class Greeting(wire.Hello):
    """A hello as the laptop reads it: what the worker says in words has the type that marks it."""

    cwd: HostText  # type: ignore[assignment]
    python: HostText  # type: ignore[assignment]
    platform: HostText  # type: ignore[assignment]
    sandbox: HostText = HostText("")  # type: ignore[assignment]
    node: HostText = HostText("")  # type: ignore[assignment]
    notes: list[HostText] = field(default_factory=list)  # type: ignore[assignment]


def limited_hello(hello: wire.Hello, host: str) -> Greeting:
    """Return `hello` with at most MAX_NOTES notes, without last records that are nested too deeply. Raise ProtocolError
    for a text that no worker sends, or a session that is no ID."""
    for each in fields(hello):
        value = getattr(hello, each.name)
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise ProtocolError(f"{host} sent a hello with {len(value)} characters in {each.name!r}")
    if not is_session_id(hello.session):
        raise ProtocolError(f"{host} sent a hello of the session {HostText(hello.session)}, which is no ID")
    last = {} if is_too_deep(hello.last) else hello.last
    notes = [note if len(note) <= MAX_NOTE else f"{note[:MAX_NOTE]}…" for note in hello.notes[:MAX_NOTES]]
    more = len(hello.notes) - len(notes)
    if more > 0:
        notes.append(f"… and {more} more notes")
    limited = {"capabilities": hello.capabilities[:_MAX_CAPABILITIES], "last": last, "notes": [*map(HostText, notes)]}
    words = {name: HostText(getattr(hello, name)) for name in ("cwd", "python", "platform", "sandbox", "node")}
    return Greeting(**{**hello.__dict__, **limited, **words})


log = logging.getLogger(__name__)

HELLO_TIMEOUT = 30.0  # seconds from the start of the worker to its hello

_Answer = wire.Applied | wire.Attached | wire.Past | wire.NamesFound | wire.OutputRead | wire.Fenced
_Passed = wire.Progress | _Answer | wire.Listening | ChannelFrame
SessionFrame = wire.Event | wire.Snapshot | wire.Bye | _Passed  # what a link hands to its owner

StreamFrame = wire.CallOpen | wire.CallData | wire.CallEnd | wire.Credit | wire.Cancel  # the frames of model calls

HandleCalls = Callable[[StreamFrame], Awaitable[None]]
"""Handles a frame of a model call. It must not wait for the provider."""


def new_nonce() -> Secret:
    return Secret(secrets.token_urlsafe(32))


_READ = 256 * 1024
_BATCH = 64 * 1024  # bytes for one write of the pipe
_MAX_INPUTS = 64  # frames
_MAX_DATA = 8  # frames of at most CHUNK bytes
_MAX_URGENT = 4096  # frames; beyond that, answers to a peer that floods us are dropped, and credit waits


class FrameWriter:
    """Owns the task that writes to `pipe`. `failed` gets the reason as its result once writing is impossible."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._urgent: deque[bytes] = deque()
        self._inputs: deque[list[bytes]] = deque()
        self._data: deque[list[bytes]] = deque()
        self._changed = asyncio.Condition()
        self._news = asyncio.Event()
        self._part_ids = itertools.count()
        self._lines: Iterator[bytes] = iter(())
        self._busy = False
        self._task: asyncio.Task[None] | None = None
        self.failed: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="link writer")

    async def close(self) -> None:
        await cancelled(self._task)
        await self._fail(ConnectionLost("the connection is closed"))

    async def send(self, frame: wire.Frame) -> None:
        """Queue `frame`. But for the end of a channel, wait while its queue is full. Raise ConnectionLost, or
        FrameError if it is too large."""
        if isinstance(frame, wire.Credit):  # never dropped: its stream would stand still for good
            await self._when(lambda: len(self._urgent) < _MAX_URGENT)
            self.send_soon(frame)
            return
        lines = encode_frame(frame, next(self._part_ids))
        answers = isinstance(frame, wire.CallHead | wire.CallData | wire.CallEnd | ChannelFrame)
        lane, limit = (self._data, _MAX_DATA) if answers else (self._inputs, _MAX_INPUTS)
        ends = isinstance(frame, wire.ChannelEnd)  # one for each channel: who leaves a shell waits for no network
        await self._when(lambda: ends or len(lane) < limit)
        lane.append(lines)
        self._news.set()

    async def _when(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: condition() or self.failed.done())
        if self.failed.done():
            raise self.failed.result()

    def send_soon(self, frame: wire.Frame) -> None:
        """Queue a small frame in front of everything else."""
        if len(self._urgent) < _MAX_URGENT and not self.failed.done():
            self._urgent.append(encode_frame(frame)[0])
            self._news.set()

    async def flush(self) -> None:
        """Wait until nothing is queued. Raise ConnectionLost."""
        await self._when(self._idle)

    def _idle(self) -> bool:
        return not (self._busy or self._urgent or self._inputs or self._data)

    async def _run(self) -> None:
        try:
            while True:
                batch = self._next_batch()
                if batch:
                    await self._pipe.write(batch)
                async with self._changed:
                    self._changed.notify_all()
                self._news.clear()
                if self._idle():
                    await self._news.wait()
        except ConnectionLost as error:
            await self._fail(error)

    def _next_batch(self) -> bytes:
        batch = bytearray()
        while len(batch) < _BATCH:
            if self._urgent:
                batch += self._urgent.popleft()
                continue
            line = next(self._lines, None)
            lane = self._inputs or self._data
            if line is not None:
                batch += line
            elif lane:
                self._lines = iter(lane.popleft())
            else:
                break
        self._busy = bool(batch)
        return bytes(batch)

    async def _fail(self, error: ConnectionLost) -> None:
        if not self.failed.done():
            self.failed.set_result(error)
        async with self._changed:
            self._changed.notify_all()


class Link:
    """Speaks frames over `pipe`, of which `rest` was read before. Use as a context, which closes the pipe. Call
    `hello`, then `attach`, then iterate over `frames` in one task. Any task may `send`."""

    def __init__(
        self,
        pipe: Pipe,
        rest: bytes = b"",
        *,
        host: str = "the host",
        ping_after: float = PING_AFTER,
        dead_after: float = DEAD_AFTER,
    ) -> None:
        self._pipe = pipe
        self._host = host
        self._decoder = FrameDecoder()
        self._decoded = self._decoder.feed(rest)
        self._writer = FrameWriter(pipe)
        self._calls: HandleCalls | None = None
        self.liveness = Liveness(
            lambda number: self._writer.send_soon(wire.Ping(self.epoch, number)),
            lambda silence: self.drop(f"{self._host} has not answered for {silence:.0f} s", silent=True),
            ping_after,
            dead_after,
        )
        self.last_seq = 0  # the number of the last event that has arrived
        self._acked = 0
        self._ack_timer: asyncio.TimerHandle | None = None
        self._dead: asyncio.Future[ConnectionLost] | None = None
        self._hello: Greeting | None = None
        self.epoch = 0  # that this connection holds
        self._least_epoch = 0  # frames with a lower epoch are about an earlier connection
        self.silent = False  # it died of silence: a new channel over the same SSH connection would be silent, too

    async def __aenter__(self) -> Self:
        self._dead = asyncio.get_running_loop().create_future()
        self._writer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._decoder.drop()
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        await self.liveness.close()
        await self._writer.close()
        await self._pipe.close()

    @property
    def memory(self) -> int:
        """How many bytes the frame that `frames` yielded last may take in memory, at most."""
        return self._decoder.memory

    async def hello(self, timeout: float = HELLO_TIMEOUT) -> Greeting:
        """Wait for the worker's first frame and check its version. Raise what `refusal_error` returns, DeployError if
        the worker ends first, and ProtocolError."""
        try:
            async with asyncio.timeout(timeout):
                frame = await self._next_frame()
        except TimeoutError:
            raise DeployError(
                f"the worker on {self._host} started but sent no hello within {timeout:g} s",
                evidence=self._stderr(),
                do="Try again. If it happens again, run with --debug and check the load of the host.",
            ) from None
        except ConnectionLost as error:
            said = self._stderr()
            raise (DeployError if said else Dropped)(  # a worker that fails by itself says why
                f"the worker on {self._host} ended before its hello",
                evidence=said or str(error),
                do="Run again with --debug, and report this if it happens again.",
            ) from error
        if isinstance(frame, wire.Refused):
            raise refusal_error(frame, self._host)
        if not isinstance(frame, wire.Hello):
            raise ProtocolError(f"{self._host} sent a {frame.t!r} frame where its hello was due")
        if frame.protocol not in (wire.PROTOCOL, wire.PROTOCOL - 1):
            newer = frame.protocol > wire.PROTOCOL
            raise ProtocolError(
                f"the worker on {self._host} speaks version {frame.protocol} of the link, this ccb {wire.PROTOCOL}",
                do="Upgrade ccb on this machine."
                if newer
                else "Stop the old session on the host, then start it again.",
            )
        self._hello = limited_hello(frame, self._host)
        return self._hello

    async def attach(
        self,
        *,
        role: str = "driver",
        have: int = 0,
        nonce: Secret,
        options: Mapping[str, object],
        calls: HandleCalls | None,
        tail: int = 0,
        channels: Sequence[int] = (),
    ) -> None:
        """Ask for the next epoch and everything after event `have`; with `tail`, for a snapshot and about `tail` bytes
        of events behind it. Frames of model calls go to `calls` (None for a viewer). Raise ConnectionLost."""
        assert self._hello is not None, "hello comes first"
        self.epoch = self._hello.epoch + 1
        self._least_epoch = self.epoch if role == "driver" else self._hello.epoch
        self.last_seq = self._acked = have
        self._calls = calls
        shown = nonce.reveal() if calls is not None else ""
        await self.send(wire.Attach(self.epoch, role, have, shown, dict(options), tail, True, True, list(channels)))
        self.liveness.start()

    async def send(self, frame: wire.Frame) -> None:
        """Queue a frame. Wait while the queue is full. Raise ConnectionLost."""
        await self._writer.send(frame)

    def drop(self, reason: str, *, silent: bool = False) -> None:
        """Give the connection up. `frames` raises ConnectionLost once the frames that were read before were taken."""
        self.silent = self.silent or silent
        if self._dead is not None and not self._dead.done():
            self._dead.set_result(ConnectionLost(reason))

    async def flush(self) -> None:
        await self._writer.flush()

    async def frames(self) -> AsyncIterator[SessionFrame]:
        """Yield the session's frames in order, without gaps, up to `bye`. A slow consumer slows the host down. Raise
        ConnectionLost, ProtocolError, and what `refusal_error` returns."""
        while True:
            frame = await self._next_frame()
            match frame:
                case wire.Event():
                    if frame.seq > self.last_seq:  # otherwise the event was replayed twice around an attach
                        self._arrived(frame.seq, self.last_seq + 1)
                        yield frame
                case wire.Attached() | wire.Snapshot() | wire.Fenced() if frame.epoch < self._least_epoch:
                    log.info("a %s frame of an earlier connection is ignored", frame.t)
                case wire.Snapshot():
                    if frame.seq < self.last_seq:
                        raise ProtocolError(f"{self._host} sent a snapshot of events that have already arrived")
                    self._arrived(frame.seq, frame.seq)  # the snapshot stands for all events up to it
                    yield frame
                case wire.Bye():
                    yield frame
                    return
                case wire.Ping():
                    self._writer.send_soon(wire.Pong(self.epoch, frame.n))
                case wire.CallOpen() | wire.CallData() | wire.CallEnd() | wire.Credit() | wire.Cancel():
                    if self._calls is None:
                        raise ProtocolError(f"{self._host} sent a {frame.t!r} frame to a client that only watches")
                    await self._calls(frame)
                case wire.Refused():
                    raise refusal_error(frame, self._host)
                case wire.Pong():
                    self.liveness.answered(frame.n)
                case _ if isinstance(frame, _Passed):
                    yield frame
                case _ if not isinstance(frame, wire.Hello):
                    raise ProtocolError(f"{self._host} sent a {frame.t!r} frame, which only a laptop may send")

    def _arrived(self, seq: int, expected: int) -> None:
        """Note that an event has arrived, and acknowledge it soon. Raise ProtocolError if it is not `expected`."""
        if seq != expected:
            raise ProtocolError(
                f"events {expected} to {seq - 1} of the session are missing",
                do="Attach again. If it happens again, run with --debug and report it.",
            )
        self.last_seq = seq
        if seq - self._acked >= ACK_EVENTS:
            self._acknowledge()
        elif self._ack_timer is None:
            self._ack_timer = asyncio.get_running_loop().call_later(ACK_SECONDS, self._acknowledge)

    def _acknowledge(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        self._acked = self.last_seq
        self._writer.send_soon(wire.Ack(self.epoch, self.last_seq))

    async def _next_frame(self) -> wire.Frame:
        """Return the next frame. Raise ConnectionLost at the end, ProtocolError, and what `_read` raises."""
        try:
            while (frame := next(self._decoded, None)) is None:  # one at a time: together they could take much memory
                data = await self._read()
                if not data:
                    ended, said = f"the connection to {self._host} ended", self._pipe.stderr_tail().strip()
                    raise ConnectionLost(ended, evidence=said, do="Connect again.")
                self._decoded = self._decoder.feed(data)
        except wire.FrameError as error:
            raise ProtocolError(
                f"{self._host} sent bytes that are not a frame: {error.reason}",
                evidence=error.sample.decode("utf-8", "backslashreplace"),
                do="Something on the host may write into the channel. Run with --debug and report it.",
            ) from None
        return frame

    async def _read(self) -> bytes:
        assert self._dead is not None
        read = asyncio.ensure_future(self._pipe.read(_READ))
        self.liveness.reading = True
        try:
            waiting: set[asyncio.Future[Any]] = {read, self._dead, self._writer.failed}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._dead.done():
                raise self._dead.result()
            if read.done():
                data = read.result()
                if data:
                    self.liveness.heard()
                return data
            raise self._writer.failed.result()
        finally:
            self.liveness.reading = False
            if not read.done():
                await cancelled(read)

    def _stderr(self) -> str:
        return neutralise(self._pipe.stderr_tail().strip())
