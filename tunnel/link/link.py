"""The link: frames of one connection over a pipe, with acknowledgement, liveness, and model calls split off.

A link lives as long as its pipe. What outlives it (the session, the calls in the auth proxy) belongs to its owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol, Self

from ..errors import ConnectionLost, DeployError, Dropped, ProtocolError
from ..plain_text import neutralise
from ..secret import Secret
from ..transports.pipe import Pipe
from ..wire import (
    PROTOCOL,
    Ack,
    Applied,
    Attach,
    Attached,
    Bye,
    Cancel,
    Credit,
    Data,
    End,
    Event,
    Fenced,
    Frame,
    FrameDecoder,
    FrameError,
    Hello,
    Open,
    Past,
    Ping,
    Pong,
    Progress,
    Refused,
    Snapshot,
)
from .frame_writer import FrameWriter
from .refusals import refusal_error

log = logging.getLogger(__name__)

PING_AFTER = 5.0
"""Seconds of silence before a ping."""

DEAD_AFTER = 15.0
"""Seconds of silence after which the connection counts as dead. Anything that is heard breaks the silence."""

PROBE_S = 3.0
"""Seconds for a sign of life when there is a reason to doubt the connection."""

HELLO_TIMEOUT = 30.0
"""Seconds from the start of the worker to its hello."""

ACK_EVENTS = 64
ACK_SECONDS = 1.0

SessionFrame = Attached | Snapshot | Event | Progress | Applied | Past | Fenced | Bye
"""What a link hands to its owner; everything else it deals with itself."""


class StreamHandler(Protocol):
    """Takes the frames of model calls (the auth proxy's in-band front). Must not wait for the provider."""

    async def handle(self, frame: Open | Data | End | Credit | Cancel) -> None: ...


def new_nonce() -> Secret:
    """A nonce for one connection."""
    return Secret(secrets.token_urlsafe(32))


class Link:
    """Speaks frames over `pipe`, of which `rest` was read before. Use as a context: entering starts the writer, leaving
    closes the pipe. Order: `hello`, `attach`, then `frames` in one task while any task may `send`."""

    def __init__(
        self,
        pipe: Pipe,
        rest: bytes = b"",
        *,
        host: str = "the host",
        ping_after: float = PING_AFTER,
        dead_after: float = DEAD_AFTER,
        ack_seconds: float = ACK_SECONDS,
    ) -> None:
        self._pipe = pipe
        self._rest = rest
        self._host = host
        self._ping_after = ping_after
        self._dead_after = dead_after
        self._ack_seconds = ack_seconds
        self._decoder = FrameDecoder()
        self._decoded: list[Frame] = []
        self._writer = FrameWriter(pipe)
        self._streams: StreamHandler | None = None
        self._watch: asyncio.Task[None] | None = None
        self._dead: asyncio.Future[ConnectionLost] | None = None
        self._hello: Hello | None = None
        self._epoch = 0
        self._least_epoch = 0  # of what the host says about this connection
        self._seq = 0
        self._acked = 0
        self._ack_timer: asyncio.TimerHandle | None = None
        self._heard = time.monotonic()
        self._reading = False
        self._pings = 0
        self._silent = False

    async def __aenter__(self) -> Self:
        self._dead = asyncio.get_running_loop().create_future()
        self._writer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self._writer.close()
        await self._pipe.close()

    @property
    def epoch(self) -> int:
        """The epoch this connection holds; 0 before `attach`."""
        return self._epoch

    @property
    def last_seq(self) -> int:
        """The last event that arrived."""
        return self._seq

    async def hello(self, timeout: float = HELLO_TIMEOUT) -> Hello:
        """Wait for the worker's first frame and check its version.

        Raises NoSuchPath, NoStorage, UsageError (what the worker refused), DeployError (it ended first), ProtocolError.
        """
        try:
            async with asyncio.timeout(timeout):
                frame = await self._next_frame()
        except TimeoutError:
            raise DeployError(
                f"the worker on {self._host} started but said no hello within {timeout:g} s",
                evidence=self._stderr(),
                do="Try again; if it stays, run with --debug and look at the load of the host.",
            ) from None
        except ConnectionLost as error:
            said = self._stderr()
            raise (DeployError if said else Dropped)(  # one that fails by itself says why
                f"the worker on {self._host} ended before its hello",
                evidence=said or str(error),
                do="Run again with --debug and report this if it stays.",
            ) from error
        if isinstance(frame, Refused):
            raise refusal_error(frame, self._host)
        if not isinstance(frame, Hello):
            raise ProtocolError(f"{self._host} sent a {frame.t!r} frame where its hello was due")
        if frame.protocol not in (PROTOCOL, PROTOCOL - 1):
            newer = frame.protocol > PROTOCOL
            raise ProtocolError(
                f"the worker on {self._host} speaks version {frame.protocol} of the link, this ccb {PROTOCOL}",
                do="Upgrade ccb on this machine."
                if newer
                else "Stop the old session on the host, then start it again.",
            )
        self._hello = frame
        return frame

    async def attach(
        self,
        *,
        role: str = "driver",
        have: int = 0,
        nonce: Secret,
        options: Mapping[str, object],
        streams: StreamHandler | None,
        tail: int = 0,
    ) -> None:
        """Ask for the next epoch and everything after event `have`, or only about `tail` bytes of it behind a snapshot; model
        calls go to `streams` (None for a viewer that has none of its own any more). Liveness is watched from here on."""
        assert self._hello is not None, "hello comes first"
        self._epoch = self._hello.epoch + 1
        self._least_epoch = self._epoch if role == "driver" else self._hello.epoch
        self._seq = self._acked = have
        self._streams = streams
        shown = nonce.reveal() if streams is not None else ""
        await self.send(Attach(self._epoch, role, have, shown, dict(options), tail))
        self._heard = time.monotonic()
        self._watch = asyncio.create_task(self._watch_liveness(), name="link liveness")

    @property
    def next_epoch(self) -> int:
        """The epoch that `attach` will ask for."""
        assert self._hello is not None, "hello comes first"
        return self._hello.epoch + 1

    async def send(self, frame: Frame) -> None:
        """Queue a frame; waits while the queue is full. Raises ConnectionLost."""
        await self._writer.send(frame)

    def probe(self) -> None:
        """Doubt the connection: it is dead unless something is heard within PROBE_S."""
        self._heard = min(self._heard, time.monotonic() - self._dead_after + PROBE_S)
        self._ping()

    def drop(self, reason: str, *, silent: bool = False) -> None:
        """Give the connection up, as `silent` or not: `frames` raises ConnectionLost once what was read before has been taken."""
        self._silent = self._silent or silent
        if self._dead is not None and not self._dead.done():
            self._dead.set_result(ConnectionLost(reason))

    @property
    def silent(self) -> bool:
        """Declared dead for its silence: a new channel over the same connection would be as silent."""
        return self._silent

    async def flush(self) -> None:
        """Wait until everything queued is with the transport. Raises ConnectionLost."""
        await self._writer.flush()

    async def frames(self) -> AsyncIterator[SessionFrame]:
        """The session's frames in order, checked for gaps; ends after `bye`. While the consumer holds a frame nothing is
        read, so a slow consumer slows the host down.

        Raises ConnectionLost, ProtocolError, and what `refusal_error` gives when the attach was refused.
        """
        while True:
            frame = await self._next_frame()
            match frame:
                case Event():
                    if frame.seq <= self._seq:
                        continue  # replayed twice around an attach
                    if frame.seq != self._seq + 1:
                        raise ProtocolError(
                            f"events {self._seq + 1} to {frame.seq - 1} of the session are missing",
                            do="Attach again; if it stays, run with --debug and report it.",
                        )
                    self._seq = frame.seq
                    self._note_arrival()
                    yield frame
                case Attached() | Snapshot() | Fenced() if frame.epoch < self._least_epoch:
                    log.info("a %s frame of an earlier connection is ignored", frame.t)
                case Progress() | Applied() | Attached() | Past() | Fenced():
                    yield frame
                case Snapshot():
                    if frame.seq < self._seq:
                        raise ProtocolError(f"{self._host} sent a snapshot of events that are there already")
                    self._seq = frame.seq
                    self._note_arrival()
                    yield frame
                case Bye():
                    yield frame
                    return
                case Ping():
                    self._writer.send_soon(Pong(self._epoch, frame.n))
                case Open() | Data() | End() | Credit() | Cancel():
                    if self._streams is None:
                        raise ProtocolError(f"{self._host} sent a {frame.t!r} frame to a client that only watches")
                    await self._streams.handle(frame)
                case Refused():
                    raise refusal_error(frame, self._host)
                case Pong() | Hello():
                    pass
                case _:
                    raise ProtocolError(f"{self._host} sent a {frame.t!r} frame, which only a laptop may send")

    def _note_arrival(self) -> None:
        if self._seq - self._acked >= ACK_EVENTS:
            self._acknowledge()
        elif self._ack_timer is None:
            self._ack_timer = asyncio.get_running_loop().call_later(self._ack_seconds, self._acknowledge)

    def _acknowledge(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        self._acked = self._seq
        self._writer.send_soon(Ack(self._epoch, self._seq))

    async def _next_frame(self) -> Frame:
        while not self._decoded:
            data = self._rest or await self._read()
            self._rest = b""
            if not data:
                raise ConnectionLost(
                    f"the connection to {self._host} ended", evidence=self._stderr(), do="Connect again."
                )
            self._heard = time.monotonic()
            try:
                self._decoded = list(self._decoder.feed(data))[::-1]
            except FrameError as error:
                raise ProtocolError(
                    f"{self._host} sent bytes that are no frame: {neutralise(error.reason)}",
                    evidence=neutralise(error.sample.decode("utf-8", "backslashreplace")),
                    do="Something on the host may write into the channel; run with --debug and report it.",
                ) from None
        return self._decoded.pop()

    async def _read(self) -> bytes:
        """The next bytes, or the failure that the writer or the watch found first."""
        assert self._dead is not None
        read = asyncio.ensure_future(self._pipe.read())
        self._reading = True
        try:
            waiting: set[asyncio.Future[Any]] = {read, self._dead, self._writer.failed}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._dead.done():
                raise self._dead.result()
            if read.done():
                return read.result()
            raise self._writer.failed.result()
        finally:
            self._reading = False
            if not read.done():
                read.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionLost):
                    await read

    def _ping(self) -> None:
        self._pings += 1
        self._writer.send_soon(Ping(self._epoch, self._pings))

    async def _watch_liveness(self) -> None:
        """Ping in silence, and end a connection that stays silent. Our own pauses do not count: a consumer that holds a frame
        (meanwhile only the host is told that we live), a process that was stopped. Both first read what has come meanwhile."""
        step = self._ping_after / 5
        asked = 0.0
        held = False
        while True:
            before = time.monotonic()
            await asyncio.sleep(step)
            now = time.monotonic()
            if now - before > step + self._ping_after or (held and self._reading):
                self._heard = max(self._heard, now - self._dead_after + min(PROBE_S, self._ping_after))
                asked = 0.0
            held = not self._reading
            quiet = now - self._heard
            if quiet < self._ping_after:
                continue
            if quiet >= self._dead_after and not held:
                self.drop(f"{self._host} has not answered for {quiet:.0f} s", silent=True)
                return
            if now - asked >= self._ping_after:
                asked = now
                self._ping()

    def _stderr(self) -> str:
        return neutralise(self._pipe.stderr_tail().strip())
