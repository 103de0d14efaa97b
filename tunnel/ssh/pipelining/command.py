"""Commands on a connection. The first one may be sent right behind the request for its channel."""

from __future__ import annotations

import asyncio

import asyncssh
from asyncssh.packet import SSHPacket

from ..channel.window import CommandChannel
from .connection import PipelinedConnection

OPEN_S = 10.0
"""Seconds for the server to open the channel."""


class GuessedWrongError(Exception):
    """The server gave the channel another number, ended the connection, or was silent."""


class ChannelRefusedError(asyncssh.ChannelOpenError):
    """The server opens no channel. It may have closed the connection because of the command that came behind."""


async def start_command(
    connection: asyncssh.SSHClientConnection, command: str, guess: int
) -> asyncssh.SSHClientProcess[bytes]:
    """Run `command` on a channel to which the server will give the number `guess`.

    Raise GuessedWrongError, ChannelRefusedError, and what `create_process` of asyncssh raises.
    """
    assert isinstance(connection, PipelinedConnection)
    channel = _AheadChannel(connection, guess)
    limit = asyncio.get_running_loop().call_later(OPEN_S, channel.give_up)
    try:
        return await channel.run(command)
    except (asyncssh.Error, OSError) as error:
        if channel.refusal is not None:
            raise channel.refusal from error
        if not channel.opened:
            raise GuessedWrongError(str(error)) from error
        raise
    finally:
        limit.cancel()
        await channel.end_opening()


async def start_waiting(
    connection: asyncssh.SSHClientConnection, command: str, window: int | None = None
) -> asyncssh.SSHClientProcess[bytes]:
    """Run `command` on a channel, once the server has opened it. Raise what `create_process` of asyncssh raises."""
    assert isinstance(connection, PipelinedConnection)
    return await CommandChannel(connection, window or connection.options.window).run(command)


def number_of(process: asyncssh.SSHClientProcess[bytes]) -> int | None:
    """Return the number that the server gave to the channel of `process`, None if asyncssh does not tell."""
    number = getattr(process.channel, "_send_chan", None)
    return number if isinstance(number, int) else None


class _AheadChannel(CommandChannel):
    """A channel whose requests do not wait for its number.

    `opened`: the server gave it the number that was guessed. `refusal`: the server did not open it.
    """

    def __init__(self, connection: PipelinedConnection, guess: int) -> None:
        super().__init__(connection, connection.options.window)
        self.opened = False
        self.refusal: ChannelRefusedError | None = None
        self._guess = guess
        self._opening: asyncio.Task[SSHPacket] | None = None

    async def _open(self, chantype: bytes, *args: bytes) -> SSHPacket:
        """Ask for the channel. Return before the answer what a session's answer contains: nothing."""
        self._opening = asyncio.create_task(super()._open(chantype, *args), name="open a channel")
        await asyncio.sleep(0)  # the request is sent in the first step of the task
        self._send_chan = self._guess
        return SSHPacket(b"")

    def process_open_confirmation(self, send_chan: int, send_window: int, send_pktsize: int, packet: SSHPacket) -> None:
        if send_chan != self._guess:
            raise asyncssh.ProtocolError(f"The server gave the first channel the number {send_chan}.")
        self.opened = True
        super().process_open_confirmation(send_chan, send_window, send_pktsize, packet)

    def process_open_failure(self, code: int, reason: str, lang: str) -> None:
        self.refusal = ChannelRefusedError(code, reason, lang)
        super().process_open_failure(code, reason, lang)

    def give_up(self) -> None:
        """End the connection if the server has not answered."""
        if not self.opened and self.refusal is None:
            self.get_connection().abort()

    async def end_opening(self) -> None:
        """End the task that waits for the answer."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
