"""Channels of the link: bytes both ways between the laptop and something on the host, such as a port or a shell.

Both ends use these classes, and only the laptop opens channels. A channel survives a lost connection: each end keeps
what it has sent until the other one has it, and after the reconnect both say how far they are. The end of a direction
counts as one more byte. Each end says up to which byte it takes more, so a slow reader holds up its own channel
only."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import Awaitable
from typing import Callable, Union

from .frames import CHUNK, INITIAL_CREDIT, ChannelCredit, ChannelData, ChannelEnd, ChannelOpen, Json

MAX_CHANNELS = 64  # of one client
_GRANT_AT = 512 * 1024  # bytes that were read since the last grant
BLOCK = 256 * 1024
_MAX_WINDOW = 4 * 1024 * 1024  # bytes under way of one channel that is read: of less, a distant host waits for credit
_ALL_WINDOWS = 16 * 1024 * 1024  # of all channels, as far as they have more than INITIAL_CREDIT each
_RESET = struct.pack("ii", 1, 0)  # closing a socket with this linger resets the connection, see socket(7)

ChannelFrame = Union[ChannelData, ChannelCredit, ChannelEnd]
Send = Callable[[Union[ChannelFrame, ChannelOpen]], Awaitable[None]]
"""Sends a frame over one connection. It waits while that is full, and raises ChannelError once it is lost."""


class ChannelError(Exception):
    """A channel has broken off: the other end refused or closed it, or it did not come back after a lost connection."""


class _Incoming:
    """The bytes that come over a channel."""

    def __init__(self) -> None:
        self.unread = bytearray()
        self.received = 0
        self.allowed = INITIAL_CREDIT  # the byte up to which this end takes more
        self.ended = False  # no more come

    @property
    def have(self) -> int:
        return self.received + self.ended

    def take(self, frame: ChannelData) -> None:
        """Raise ChannelError for bytes that are not due."""
        data = frame.data
        known = self.received - frame.off  # bytes that came before the connection was lost
        if known < 0 or frame.off + len(data) > self.allowed:
            raise ChannelError("the other end sent bytes that are not due")
        self.unread += data[known:] if known else data
        self.received += max(0, len(data) - known)

    def read(self, most: int) -> bytes:
        with memoryview(self.unread) as unread:
            data = bytes(unread[:most])
        del self.unread[:most]
        return data

    def grant(self, window: int) -> bool:
        """Take `window` bytes ahead, if enough was read. Return whether the other end is to hear that."""
        takes = self.received - len(self.unread) + window
        if takes - self.allowed < _GRANT_AT or self.ended:
            return False
        self.allowed = takes
        return True


class _Outgoing:
    """The bytes that go over a channel, kept until the other end has them."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self.arrived = 0  # the byte up to which the other end has all; kept is what follows
        self.sent = 0
        self.up_to = INITIAL_CREDIT  # the byte up to which the other end takes more
        self.end: Json | None = None  # no more are written
        self.end_said = False
        self.end_arrived = False

    @property
    def room(self) -> int:
        """How many bytes may be written. This end keeps as many as the other one takes, within limits."""
        window = min(max(INITIAL_CREDIT, self.up_to - self.arrived), _MAX_WINDOW)
        return window - len(self.kept)

    def there(self, frame: ChannelCredit) -> None:
        """Forget what the other end has. Raise ChannelError if that was never sent, or has come already."""
        self.end_arrived = self.end_arrived or (self.end_said and frame.have == self.sent + 1)
        have = frame.have - self.end_arrived
        if not self.arrived <= have <= self.sent:
            raise ChannelError("the other end has lost or invented bytes")
        del self.kept[: have - self.arrived]
        self.arrived = have
        self.up_to = max(self.up_to, frame.up_to)

    def again(self) -> None:
        """Send what the other end does not have, after a lost connection."""
        self.sent, self.end_said = self.arrived, self.end_arrived

    def next(self, number: int) -> ChannelData | ChannelEnd | None:
        start = self.sent - self.arrived
        with memoryview(self.kept) as kept:
            piece = bytes(kept[start : start + min(CHUNK, self.up_to - self.sent)])
        if piece:
            off, self.sent = self.sent, self.sent + len(piece)
            return ChannelData(number, off, piece)
        if self.end is not None and not self.end_said and start == len(self.kept):
            self.end_said = True
            return ChannelEnd(number, "", self.end)
        return None


class Channel:
    """This end of a channel. One task may read, others write. A context: on leaving, the channel is closed."""

    def __init__(self, number: int, table: Channels, opened: ChannelOpen | None = None) -> None:
        self.number = number
        self.result: Json = {}  # from the worker: how what was opened has ended
        self.table = table  # one for each client
        self._opened = opened  # sent first on each connection; None on the host
        self._open_due = opened is not None
        self._known = False  # the other end has said something about it
        self._in, self._out = _Incoming(), _Outgoing()
        self._credit_due = opened is None  # so that the laptop hears that there is a channel
        self._synchronous = True  # the other end has said how far it is
        self._sending = False
        self._error = ""
        self._refused = False  # the other end has closed it
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()
        self._pump: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Channel:
        self._pump = asyncio.get_running_loop().create_task(self._send_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close("closed")

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    @property
    def is_live(self) -> bool:
        return self.table.is_connected and not self._error

    async def read(self, most: int = BLOCK) -> bytes:
        """Return at most so many bytes, b"" when no more come. Raise ChannelError."""
        while not self._in.unread:
            if self._in.ended:
                return b""
            if self._error:
                raise ChannelError(self._error)
            await self._change()
        data = self._in.read(most)
        if self._in.grant(self.table.window):
            self._credit_due = True
            self._changed.set()
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes, as fast as the other end reads them. Those of several tasks are not mixed. Raise ChannelError."""
        view = memoryview(data)
        async with self._writing:
            while view:
                while self._out.room <= 0 and not self._error:
                    await self._change()
                if self._error or self._out.end is not None:
                    raise ChannelError(self._error or "the channel is closed")
                piece = view[: self._out.room]
                self._out.kept += piece
                view = view[len(piece) :]
                self._changed.set()

    def end(self, result: Json | None = None) -> None:
        """Write no more. What was written still arrives, and the other end may send on."""
        if self._out.end is None:
            self._out.end = result or {}
        self._changed.set()

    @property
    def _ended(self) -> bool:
        return self._in.ended and self._out.end_arrived

    async def over(self) -> None:
        """Wait until both ends have ended, and the other one has all, this end's end too. Raise ChannelError."""
        while not self._ended or self._credit_due or self._sending:
            if self._error:
                raise ChannelError(self._error)
            await self._change()

    async def close(self, error: str) -> None:
        """Close the channel in both directions, and say why to the other end, if it has not said so itself."""
        self.broken(error)  # first: a connection that comes meanwhile is not to have it
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        if not (self._ended or self._refused):
            await self.table.say(ChannelEnd(self.number, self._error))

    def take(self, frame: ChannelFrame) -> None:
        """Take a frame of the other end. Never wait: what is not read yet is bounded."""
        self._known = True
        try:
            if isinstance(frame, ChannelCredit):
                self._out.there(frame)
                if not self._synchronous:
                    self._out.again()
                    self._synchronous = True
            elif isinstance(frame, ChannelEnd) and frame.error:
                self._refused = True
                self.broken(frame.error)
            elif isinstance(frame, ChannelEnd):
                self.result, self._in.ended, self._credit_due = frame.body, True, True
            elif not self._in.ended:
                self._in.take(frame)
        except ChannelError as error:
            self.broken(str(error))
        self._changed.set()

    def broken(self, error: str) -> None:
        """End both directions here. What has arrived is still read."""
        self._error = self._error or error
        self.table.forget(self)
        self._changed.set()

    def connection_lost(self) -> None:
        """Say first on the next connection how far this end is, and send nothing else until the other end has."""
        self._open_due = self._opened is not None
        self._synchronous, self._credit_due = False, True
        self._changed.set()

    async def _send_all(self) -> None:
        while True:
            send = await self.table.connected()
            frame = self._next()
            if frame is None:
                await self._change()
                continue
            self._sending = True
            try:
                await send(frame)
            except ChannelError:  # after the reconnect it is sent again
                self.table.failed(send)
            finally:
                self._sending = False
                self._changed.set()

    def _next(self) -> ChannelFrame | ChannelOpen | None:
        if self._error:
            return None
        if self._opened is not None and self._open_due:
            self._open_due = False
            return ChannelOpen(self.number, self._opened.kind, self._opened.body, self._known)
        if self._credit_due:
            self._credit_due = False
            return ChannelCredit(self.number, self._in.have, self._in.allowed)
        return self._out.next(self.number) if self._synchronous else None


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

    def open(self, kind: str, body: Json) -> Channel:
        """Return a channel that opens as it is entered; without a connection, after the reconnect. Raise ChannelError
        if too many are open."""
        number = next(self._numbers)
        return self.add(number, ChannelOpen(number, kind, body))

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

    def back(self, send: Send) -> None:
        """Continue all channels over a new connection."""
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

    @property
    def is_connected(self) -> bool:
        return self._send is not None

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
    """Carry bytes both ways between a channel and a connection until both are over, and close the connection. Raise
    ChannelError or OSError. Then it is reset, so that its other end does not take what has come for all."""

    async def to_writer() -> None:
        while data := await channel.read():
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def from_reader() -> None:
        while data := await reader.read(BLOCK):
            await channel.write(data)
        channel.end()

    tasks = [asyncio.ensure_future(to_writer()), asyncio.ensure_future(from_reader())]
    try:
        await asyncio.gather(*tasks)
        writer.close()
        await channel.over()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not writer.is_closing():
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
