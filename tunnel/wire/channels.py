"""Channels of the link: bytes both ways between the laptop and something on the host, such as a port or a shell.

Both ends use these classes, and only the laptop opens channels. A channel survives a lost connection: each end keeps
what it has sent until the other one has it, and after the reconnect both say how far they are. Each end says up to
which byte it takes more, so a slow reader holds up its own channel only."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import itertools
import socket
import struct
from collections.abc import Awaitable
from typing import Callable, Union

from .frames import CHUNK, INITIAL_CREDIT, ChannelCredit, ChannelData, ChannelEnd, ChannelOpen, Json

MAX_CHANNELS = 64  # of one client
_GRANT_AT = 512 * 1024  # bytes that were read since the last grant
_READ = 256 * 1024
_MAX_WINDOW = 4 * 1024 * 1024  # bytes under way of one channel that is read: of less, a distant host waits for credit
_ALL_WINDOWS = 16 * 1024 * 1024  # of all channels, as far as they have more than INITIAL_CREDIT each

ChannelFrame = Union[ChannelData, ChannelCredit, ChannelEnd]
Send = Callable[[Union[ChannelFrame, ChannelOpen]], Awaitable[None]]
"""Sends a frame over one connection. It waits while that is full, and raises ChannelError once it is lost."""


class ChannelError(Exception):
    """A channel has broken off: the other end refused or closed it, or it did not come back after a lost connection."""


class Channel:
    """This end of a channel. One task may read, another one write. A context: on leaving, the channel is closed."""

    def __init__(self, number: int, table: Channels, opened: ChannelOpen | None = None) -> None:
        self.number = number
        self.result: Json = {}  # from the worker: how what was opened has ended
        self._table = table
        self._opened = opened  # sent again after a lost connection; None on the host
        self._arrived = bytearray()  # and not read yet
        self._received = 0
        self._allowed = INITIAL_CREDIT  # the byte up to which this end takes more
        self._no_more = False  # no more bytes come
        self._kept = bytearray()  # sent or to be sent; up to half of it may be there already
        self._kept_from = 0
        self._there = 0  # the byte up to which the other end has all
        self._sent = 0
        self._up_to = INITIAL_CREDIT  # the byte up to which the other end takes more
        self._ended = False  # no more bytes are written
        self._end_body: Json = {}
        self._end_said = False
        self._sending = False
        self._synchronous = True
        self._credit_due = opened is None  # the opening may come again, and the laptop waits then for how far this is
        self._error = ""
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._work = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Channel:
        self._pump = asyncio.get_running_loop().create_task(self._send_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close("closed")

    async def read(self) -> bytes:
        """Return at most _READ bytes, b"" when no more come. Raise ChannelError."""
        while not self._arrived:
            if self._error:
                raise ChannelError(self._error)
            if self._no_more:
                return b""
            self._news.clear()
            await self._news.wait()
        with memoryview(self._arrived) as arrived:
            data = bytes(arrived[:_READ])
        del self._arrived[:_READ]
        takes = self._received - len(self._arrived) + self._table.window
        if takes - self._allowed >= _GRANT_AT and not self._no_more:
            self._allowed, self._credit_due = takes, True
            self._work.set()
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes, as fast as the other end reads them. Raise ChannelError."""
        view = memoryview(data)
        while view:
            while (room := self._room_left) <= 0 and not self._error:
                self._room.clear()
                await self._room.wait()
            if self._error or self._ended:
                raise ChannelError(self._error or "the channel is closed")
            piece = view[:room]
            self._kept += piece
            view = view[len(piece) :]
            self._work.set()

    @property
    def _room_left(self) -> int:
        """How many bytes this end still keeps: as many as the other one takes, within limits."""
        window = min(max(INITIAL_CREDIT, self._up_to - self._there), _MAX_WINDOW)
        return window - (self._kept_from + len(self._kept) - self._there)

    def end(self, result: Json | None = None) -> None:
        """Write no more. What was written still arrives, and the other end may send on."""
        self._ended = True
        self._end_body = result or {}
        self._work.set()

    async def over(self) -> None:
        """Wait until both ends have ended and know that the other one has all bytes. Raise ChannelError."""
        while not (self._no_more and self._end_said) or self._kept or self._credit_due or self._sending:
            if self._error:
                raise ChannelError(self._error)
            self._news.clear()
            await self._news.wait()

    async def close(self, error: str) -> None:
        """Close the channel in both directions, and say why to the other end, if it has not said so itself."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        over = self._no_more and self._end_said
        self.broken(error)
        if not over:
            await self._table.say(ChannelEnd(self.number, self._error))

    def take(self, frame: ChannelFrame) -> None:
        """Take a frame of the other end. Never wait: what is not read yet is bounded."""
        if isinstance(frame, ChannelCredit):
            self._take_credit(frame)
        elif isinstance(frame, ChannelEnd):
            self.result, self._no_more, self._credit_due = frame.body, True, True
            self._work.set()
            if frame.error:
                self._end_said = True
                self.broken(frame.error)
        elif not self._no_more:
            self._take_data(frame)
        self._news.set()

    def _take_credit(self, frame: ChannelCredit) -> None:
        gone = frame.have - self._kept_from
        if frame.have < self._there or gone > len(self._kept):
            self.broken("the other end has lost or invented bytes")
            return
        self._there = frame.have
        if 2 * gone >= len(self._kept):  # not each time: what stays is copied
            del self._kept[:gone]
            self._kept_from = frame.have
        self._up_to = max(self._up_to, frame.up_to)
        if not self._synchronous:
            self._sent, self._synchronous = frame.have, True
        self._room.set()
        self._work.set()

    def _take_data(self, frame: ChannelData) -> None:
        try:
            data = binascii.a2b_base64(frame.b64)
        except ValueError:
            self.broken("the other end sent data that cannot be decoded")
            return
        known = self._received - frame.off  # bytes that came before the connection was lost
        if known < 0 or frame.off + len(data) > self._allowed:
            self.broken("the other end sent bytes that are not due")
            return
        self._arrived += data[known:] if known else data
        self._received += max(0, len(data) - known)

    def broken(self, error: str) -> None:
        """End both directions here. What has arrived is still read."""
        self._error = self._error or error
        self._table.forget(self)
        for each in (self._news, self._room, self._work):
            each.set()

    def connection_lost(self) -> None:
        """Say first on the next connection how far this end is, and send nothing else until the other end has."""
        self._synchronous, self._credit_due, self._end_said = False, True, False
        self._work.set()

    def opening(self) -> ChannelOpen | None:
        """Return the frame that opens the channel, or continues it over a new connection; None on the host."""
        if self._opened is None:
            return None
        begun = self._received > 0 or self._there > 0 or self._no_more
        return ChannelOpen(self.number, self._opened.kind, self._opened.body, begun)

    async def _send_all(self) -> None:
        while True:
            send = await self._table.connected()
            frame = self._next()
            if frame is None:
                self._work.clear()
                await self._work.wait()
                continue
            self._sending = True
            try:
                await send(frame)
            except ChannelError:  # after the reconnect it is sent again
                self._table.failed(send)
            finally:
                self._sending = False
                self._news.set()

    def _next(self) -> ChannelFrame | None:
        if self._error:
            return None
        if self._credit_due:
            self._credit_due = False
            return ChannelCredit(self.number, self._received, self._allowed)
        if not self._synchronous:
            return None
        start = self._sent - self._kept_from
        with memoryview(self._kept) as kept:
            piece = bytes(kept[start : start + min(CHUNK, self._up_to - self._sent)])
        if piece:
            off, self._sent = self._sent, self._sent + len(piece)
            return ChannelData(self.number, off, base64.b64encode(piece).decode("ascii"))
        if self._ended and not self._end_said and start == len(self._kept):
            self._end_said = True
            return ChannelEnd(self.number, "", self._end_body)
        return None


class Channels:
    """The channels of one client, over all its connections."""

    def __init__(self) -> None:
        self._open: dict[int, Channel] = {}
        self._numbers = itertools.count(1)
        self._send: Send | None = None
        self._up = asyncio.Event()

    def add(self, number: int, opened: ChannelOpen | None = None) -> Channel:
        """Return a new channel. Raise ChannelError if the number is in use, or too many channels are open."""
        if number in self._open or len(self._open) >= MAX_CHANNELS:
            raise ChannelError(f"channel {number} is in use, or {MAX_CHANNELS} channels are open")
        channel = self._open[number] = Channel(number, self, opened)
        return channel

    async def open(self, kind: str, body: Json) -> Channel:
        """Open a channel from the laptop; without a connection, after the reconnect. Raise ChannelError."""
        number = next(self._numbers)
        channel = self.add(number, ChannelOpen(number, kind, body))
        frame = channel.opening()
        if self._send is not None and frame is not None:
            with contextlib.suppress(ChannelError):  # it is lost, and `back` opens the channel
                await self._send(frame)
        return channel

    def get(self, number: int) -> Channel | None:
        return self._open.get(number)

    @property
    def numbers(self) -> list[int]:
        return list(self._open)

    @property
    def window(self) -> int:
        """How many bytes ahead of its reader a channel takes."""
        return min(_MAX_WINDOW, max(INITIAL_CREDIT, _ALL_WINDOWS // max(1, len(self._open))))

    def keep_only(self, numbers: list[int]) -> None:
        """Break off all channels that the laptop has no more."""
        for number in set(self._open).difference(numbers):
            self._open[number].broken("closed")

    def take(self, frame: ChannelFrame) -> None:
        """Take a frame. One of a channel that is not open is late, or of a peer that lies: it is ignored."""
        channel = self._open.get(frame.channel)
        if channel is not None:
            channel.take(frame)

    async def back(self, send: Send) -> None:
        """Continue all channels over a new connection."""
        said: set[int] = set()
        while new := [each for each in self._open.values() if each.number not in said]:
            for channel in new:
                said.add(channel.number)
                frame = channel.opening()
                if frame is not None:
                    try:
                        await send(frame)
                    except ChannelError:  # it is lost already
                        return
        self._send = send
        self._up.set()

    def lost(self) -> None:
        """Note that the connection is lost: the channels wait for the next one."""
        self._send = None
        self._up.clear()
        for channel in self._open.values():
            channel.connection_lost()

    def failed(self, send: Send) -> None:
        """Note that a connection has failed, unless there is a newer one."""
        if self._send is send:
            self.lost()

    def end(self, why: str) -> None:
        """Break all channels off: there will be no other connection."""
        for channel in list(self._open.values()):
            channel.broken(why)

    async def connected(self) -> Send:
        while self._send is None:
            await self._up.wait()
        return self._send

    async def say(self, end: ChannelEnd) -> None:
        """Say that a channel is closed. Without a connection, the next attach says it."""
        if self._send is not None:
            with contextlib.suppress(ChannelError):
                await self._send(end)

    def forget(self, channel: Channel) -> None:
        if self._open.get(channel.number) is channel:
            del self._open[channel.number]


async def carry(channel: Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes between a channel and a socket until both directions have ended. If the channel breaks off, the
    socket is reset: its other end must not take what has come for all. Raise ChannelError, OSError."""

    async def from_channel() -> None:
        while data := await channel.read():
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def to_channel() -> None:
        while data := await reader.read(_READ):
            await channel.write(data)
        channel.end()

    tasks = [asyncio.ensure_future(from_channel()), asyncio.ensure_future(to_channel())]
    try:
        await asyncio.gather(*tasks)
    except ChannelError:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
