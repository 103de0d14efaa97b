"""Channels of the link: bytes both ways between the laptop and something on the host, such as a port or a shell.

Both ends use these classes. Only the laptop opens channels. Each end grants credit for what was read, so a slow reader
holds up its own channel and no other, and an end never holds more than INITIAL_CREDIT bytes of a channel."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import Awaitable
from typing import Callable, Union

from .frames import CHUNK, INITIAL_CREDIT, ChannelCredit, ChannelData, ChannelEnd, Json

MAX_CHANNELS = 100  # of one connection
_GRANT_AT = 128 * 1024  # bytes that were read since the last grant

ChannelFrame = Union[ChannelData, ChannelCredit, ChannelEnd]
Send = Callable[[ChannelFrame], Awaitable[None]]
"""Sends a frame. It waits while the link is full."""


class ChannelError(Exception):
    """A channel has broken off: the other end refused or closed it, or its connection was lost."""


class Channel:
    """This end of a channel. One task may read, another one write. A context: on leaving, the channel is closed."""

    def __init__(self, number: int, epoch: int, send: Send, forget: Callable[[Channel], None]) -> None:
        self.number = number
        self.result: Json = {}  # from the worker: how what was opened has ended
        self._epoch = epoch
        self._send = send
        self._forget = forget
        self._buffer = bytearray()
        self._window = INITIAL_CREDIT  # bytes that the other end may still send
        self._credit = INITIAL_CREDIT  # bytes that this end may still send
        self._ungranted = 0
        self._finished = False  # no more bytes come
        self._ended = False  # this end sends no more
        self._error = ""
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not (self._ended and self._finished):
            with contextlib.suppress(ChannelError):  # its connection is lost
                await self.close("closed")

    async def read(self) -> bytes:
        """Return at most CHUNK bytes, b"" when no more come. Raise ChannelError."""
        while not self._buffer:
            if self._error:
                raise ChannelError(self._error)
            if self._finished:
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._buffer[:CHUNK])
        del self._buffer[:CHUNK]
        self._ungranted += len(data)
        if self._ungranted >= _GRANT_AT and not self._finished:
            granted, self._ungranted = self._ungranted, 0
            self._window += granted
            await self._send(ChannelCredit(self._epoch, self.number, granted))
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes, as fast as the other end reads them. Raise ChannelError."""
        view = memoryview(data)
        while view:
            while self._credit <= 0 and not self._error:
                self._room.clear()
                await self._room.wait()
            if self._error or self._ended:
                raise ChannelError(self._error or "the channel is closed")
            piece = view[: min(CHUNK, self._credit)]
            self._credit -= len(piece)
            await self._send(ChannelData(self._epoch, self.number, base64.b64encode(piece).decode("ascii")))
            view = view[len(piece) :]

    async def end(self, result: Json | None = None) -> None:
        """Send no more bytes. What was sent still arrives, and the other end may send on."""
        if not self._ended:
            self._ended = True
            await self._send(ChannelEnd(self._epoch, self.number, "", result or {}))
            self._forget_when_over()

    async def close(self, error: str) -> None:
        """Close the channel in both directions, and say why to the other end."""
        told, self._ended = self._ended and self._finished, True
        self.broken(error)
        if not told:
            await self._send(ChannelEnd(self._epoch, self.number, self._error))

    def take(self, frame: ChannelFrame) -> None:
        """Take a frame of the other end. Never wait: what is not read yet is bounded by the window."""
        if isinstance(frame, ChannelCredit):
            self._credit += frame.bytes
            self._room.set()
        elif isinstance(frame, ChannelEnd):
            self.result = frame.body
            self._finished = True
            if frame.error:
                self._ended = True
                self.broken(frame.error)
        else:
            try:
                data = base64.b64decode(frame.b64, validate=True)
            except (binascii.Error, ValueError):
                self.broken("the other end sent data that cannot be decoded")
                return
            self._window -= len(data)
            if self._window < 0 or self._finished:
                self.broken("the other end sent more than it was granted")
                return
            self._buffer += data
        self._changed.set()
        self._forget_when_over()

    def broken(self, error: str) -> None:
        """End both directions here. What has arrived is still read."""
        self._error = self._error or error
        self._changed.set()
        self._room.set()
        self._forget(self)

    def _forget_when_over(self) -> None:
        if self._ended and self._finished:
            self._forget(self)


class Channels:
    """The channels of one connection."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._open: dict[int, Channel] = {}

    def add(self, number: int, epoch: int) -> Channel:
        """Return a new channel. Raise ChannelError if the number is in use, or too many channels are open."""
        if number in self._open or len(self._open) >= MAX_CHANNELS:
            raise ChannelError(f"channel {number} is in use, or {MAX_CHANNELS} channels are open")
        channel = self._open[number] = Channel(number, epoch, self._send, self._forget)
        return channel

    def take(self, frame: ChannelFrame) -> None:
        """Take a frame. One of a channel that is not open is late, or of a peer that lies: it is ignored."""
        channel = self._open.get(frame.channel)
        if channel is not None:
            channel.take(frame)

    def lost(self, why: str) -> None:
        """Break all channels off: their connection has ended."""
        for channel in list(self._open.values()):
            channel.broken(why)

    def _forget(self, channel: Channel) -> None:
        if self._open.get(channel.number) is channel:
            del self._open[channel.number]
