"""A command's channel, on which the server may send only as much as was read.

asyncssh opens the whole window again when it hands over one packet of what it holds. While a reader is slow, each of
its reads then lets the server send another window, and what nobody has read grows without end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import asyncssh
from asyncssh.channel import SSHChannel, SSHClientChannel
from asyncssh.constants import MSG_CHANNEL_WINDOW_ADJUST
from asyncssh.packet import UInt32

if TYPE_CHECKING:
    from ..pipelining.connection import PipelinedConnection

_JOINED = 4096
"""Bytes up to which small packets are kept as one. Each object costs some hundred bytes, and a packet may hold a
single byte."""


class CommandProcess(asyncssh.SSHClientProcess[bytes]):
    """A command whose unread output stays in the channel, but for a quarter of the window."""

    def connection_made(self, chan: SSHChannel[bytes]) -> None:
        super().connection_made(chan)
        self._limit = chan.get_recv_window() // 4

    @property
    def unread(self) -> int:
        """How many bytes wait for a reader."""
        return self._recv_buf_len

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        super().data_received(data, datatype)
        held = self._recv_buf[datatype]
        if len(held) > 1:
            before, last = held[-2:]
            if isinstance(before, bytes) and isinstance(last, bytes) and len(before) + len(last) <= _JOINED:
                held[-2:] = [before + last]


class CommandChannel(SSHClientChannel[bytes]):
    """A channel that holds at most its window.

    The process buffers at most a quarter of the window. The channel grants new window when half of it has been read.
    """

    def __init__(self, connection: PipelinedConnection, window: int) -> None:
        options = connection.options
        super().__init__(
            connection,
            asyncio.get_running_loop(),
            options.utf8_decode_errors,
            None,
            "strict",
            window,
            options.max_pktsize,
        )
        if hasattr(connection, "_update_recv_pktlen"):  # older versions of asyncssh take packets of any length
            connection._update_recv_pktlen(options.max_pktsize)
        self._ssh = connection
        self._granted = window
        self._received = 0
        self._delivered = 0

    async def run(self, command: str) -> CommandProcess:
        """Open the channel and run `command` on it. Raise what `create_process` of asyncssh raises."""
        variables = cast(dict[str, str], self._ssh.options.env or {})
        env = {name.encode(): value.encode() for name, value in variables.items()}
        process = await self.create(
            CommandProcess, command, None, env, False, None, None, {}, False, None, None, False, False
        )
        assert isinstance(process, CommandProcess)
        await process.redirect(asyncssh.PIPE, asyncssh.PIPE, asyncssh.PIPE)
        return process

    def _accept_data(self, data: bytes, datatype: asyncssh.DataType = None) -> None:
        """Take a packet. Join small ones that are held, of each of the two streams."""
        self._received += len(data)
        before = len(self._recv_buf)
        super()._accept_data(data, datatype)
        self._recv_window = self._granted - self._received  # asyncssh 2.24.0 counts only what it has handed over
        held = self._recv_buf
        if len(held) <= before:
            return
        for at in range(len(held) - 2, max(len(held) - 4, -1), -1):
            if held[at][1] == datatype:
                if len(held[at][0]) + len(data) <= _JOINED:
                    held[at] = (held[at][0] + data, datatype)
                    held.pop()
                return

    def _deliver_data(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self._delivered += len(data)
        if self._session is not None:
            self._session.data_received(data, datatype)
        self._grant()

    def _flush_recv_buf(self, exc: Exception | None = None) -> None:
        super()._flush_recv_buf(exc)
        self._grant()

    def _grant(self) -> None:
        """Open the window for what was read, once that is half of it."""
        unread = self._session.unread if isinstance(self._session, CommandProcess) else 0
        room = self._init_recv_window + self._delivered - unread - self._granted
        if room >= self._init_recv_window // 2 and self._recv_state == "open":
            self._granted += room
            self._recv_window = self._granted - self._received
            self.send_packet(MSG_CHANNEL_WINDOW_ADJUST, UInt32(room))

    def _flush_send_buf(self) -> None:
        """Send what the window allows, unless the connection cannot take it. It calls this again when it can."""
        if self._send_buf and self._ssh.congested:
            self._pause_resume_writing()
        else:
            super()._flush_send_buf()
