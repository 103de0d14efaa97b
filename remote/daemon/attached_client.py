"""One client: its connection, liveness, and pages of earlier events."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Any, Callable

from ccb.tunnel.wire.frames import (
    Attach,
    CallData,
    CallEnd,
    CallHead,
    Credit,
    Detach,
    Fetch,
    FindNames,
    Frame,
    FrameError,
    Input,
    Past,
    Ping,
    Pong,
    Refused,
    Stop,
)
from ccb.tunnel.wire.journal_records import to_page
from ccb.tunnel.wire.ndjson import FrameDecoder, dump, to_bytes

from ..session_store.client_outbox import ClientOutbox
from ..session_store.journal import Journal
from ..system.deadline import first_of
from .model_streams import ModelStreams, StreamLink

Json = dict[str, Any]

log = logging.getLogger(__name__)

PING_AFTER_S = 5.0  # seconds of silence after which a client is sent a ping

SILENT_S = 15.0  # seconds of silence after which a client is detached

STUCK_S = 5.0
"""Seconds within which a former driver that still reads an answer of the model must answer a ping or read on."""

_BATCH = 128 * 1024  # bytes written before the socket is waited for
_MAX_PAGE = 512 * 1024  # bytes
_MAX_PAGES = 32  # pages that one client may ask for before they are sent

Take = Callable[["AttachedClient", Frame], Awaitable[None]]


class AttachedClient:
    """One connection. `run` serves it until it ends. Frames that may change the session go to `take`; those of model
    calls go to `calls`."""

    def __init__(
        self,
        journal: Journal,
        calls: ModelStreams,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        greeting: Json | None,
    ) -> None:
        self.name = ""
        self.outbox = ClientOutbox(journal)
        self.model_link: StreamLink | None = None
        """For model calls. A viewer has one to finish the calls it made as driver."""
        # Inputs that were not applied for lack of room, at most as many as a laptop has unconfirmed, and the stop
        # behind them.
        self.late: list[Input | Stop] = []
        self._journal = journal
        self._calls = calls
        self._reader = reader
        self._writer = writer
        self._greeting = greeting
        writer.transport.set_write_buffer_limits(0)  # so that `drain` returns when everything has left this process
        self._pages: asyncio.Queue[Fetch] = asyncio.Queue(_MAX_PAGES)
        self._heard = time.monotonic()
        self._pings = 0
        self._unanswered_since = 0.0
        """When the ping was sent that tests whether the client is stuck; 0 without such a ping."""

    async def run(self, take: Take) -> None:
        """Serve until the client leaves, falls silent or is closed."""
        loop = asyncio.get_running_loop()
        work = (self._read(take), self._write(), self._watch(), self._send_pages())
        tasks = [loop.create_task(each) for each in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception) and not isinstance(result, (ConnectionError, BrokenPipeError)):
                    log.error("client %s: %r", self.name, result)
            self.outbox.close()
            self._writer.transport.abort()  # free the unsent bytes of a peer that reads nothing

    async def _read(self, take: Take) -> None:
        decoder = FrameDecoder()
        while True:
            data = await self._reader.read(65536)
            if not data:
                return
            self._heard = time.monotonic()
            try:
                for frame in decoder.feed(data):
                    if self._counts(frame):
                        await take(self, frame)
                    if isinstance(frame, Detach):
                        return
            except FrameError as error:
                log.error("the client sent something that is not a frame: %s", error.reason)
                text = "the laptop sent something that is not a frame: %s" % error.reason
                self.outbox.close(Refused("bad_attach", text))
                await asyncio.sleep(1)  # time to write the refusal; the connection ends when either task ends
                return

    def _counts(self, frame: Frame) -> bool:
        """Return whether a frame may change the session: the client has the role for it, and has sent it in the epoch
        in which it was attached. Act on the other frames."""
        role = self.outbox.role
        if isinstance(frame, Attach):
            return not role
        if isinstance(frame, (Detach, FindNames)):
            return bool(role)
        if isinstance(frame, (Input, Stop)):
            return role == "driver" and frame.epoch == self.outbox.epoch
        if isinstance(frame, Ping):
            self.outbox.control(Pong(self.outbox.epoch, frame.n))
        elif isinstance(frame, Pong):
            if frame.n == self._pings:
                self._unanswered_since = 0.0
        elif isinstance(frame, Fetch):
            if role:
                self._fetch(frame)
        elif isinstance(frame, (CallHead, CallData, CallEnd, Credit)) and self.model_link is not None:
            self._unanswered_since = 0.0
            self._calls.handle(self.model_link, frame)
        return False

    def _fetch(self, frame: Fetch) -> None:
        """Send a page. Detach a client that asks for too many pages at once."""
        try:
            self._pages.put_nowait(frame)
        except asyncio.QueueFull:
            log.warning("client %s asked for too many pages of earlier events, and is detached", self.name)
            self.outbox.close()

    async def _send_pages(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            frame = await self._pages.get()
            size = min(frame.most, _MAX_PAGE)
            try:
                records = await loop.run_in_executor(None, self._journal.page, frame.before, size)
            except OSError as error:
                log.error("earlier events cannot be read: %s", error)
                records = []
            await self.outbox.bulk(Past(self.outbox.epoch, frame.request, to_page(records)))

    def _check_stuck(self, now: float) -> None:
        """Take the model calls away from a former driver that still reads an answer of the model but does not react: it
        delays the driver, which then asks the model again. A mere sign of life is not enough, because a laptop sends
        some even when it reads nothing from its link."""
        link = self.model_link
        if self.outbox.role == "driver" or link is None or not self._calls.uses(link):
            self._unanswered_since = 0.0
        elif not self._unanswered_since:
            self._unanswered_since = now
            self._ping()
        elif now - self._unanswered_since >= STUCK_S:
            log.info("client %s reads no more of the model's answer; the driver asks the model again", self.name)
            self._calls.withdraw(link)

    def _ping(self) -> None:
        self._pings += 1
        self.outbox.control(Ping(self.outbox.epoch, self._pings))

    async def _watch(self) -> None:
        """Ping a silent client. Return when it stays silent. A worker that was itself suspended first reads what
        arrived meanwhile."""
        step = PING_AFTER_S / 5
        asked = 0.0
        while True:
            before = time.monotonic()
            await asyncio.sleep(step)
            now = time.monotonic()
            if now - before > step + PING_AFTER_S:
                self._heard = max(self._heard, now - SILENT_S + PING_AFTER_S)
                asked = self._unanswered_since = 0.0
            self._check_stuck(now)
            quiet = now - self._heard
            if quiet >= SILENT_S:
                log.info("client %s was silent for %.0f s and is detached", self.name, quiet)
                return
            if quiet >= PING_AFTER_S and now - asked >= PING_AFTER_S:
                asked = now
                self._ping()

    async def _write(self) -> None:
        if self._greeting is not None:
            self._writer.write(to_bytes(dump(self._greeting)) + b"\n")
        outbox = self.outbox
        while True:
            changed = self._journal.changed
            outbox.wake.clear()
            size = 0
            while size < _BATCH:
                line = outbox.next_line()
                if line is None:
                    break
                self._writer.write(line)
                size += len(line)
            if size:
                await self._writer.drain()
                continue
            if outbox.closing:
                await self._writer.drain()
                return
            await first_of(outbox.wake.wait(), changed.wait())
