"""The person's shells on the host: the terminal of this machine is that of the shell until the person leaves."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ccb.tunnel.plain_text import HostText
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.channels import Channel, ChannelError
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.shell_stream import TerminalSize, encode_size, encode_typed

from ..session.remote_session import RemoteSession
from ..session.session_client import Json, LinkState
from .output_filter import ENTER, KEEP_TITLE, TITLE_BACK, OutputFilter, last_command
from .stdio import Writer

_READ = 64 * 1024
_MAX_AHEAD = 4096  # reads of the terminal, of 4 KiB at most, that the host has not taken
_LAST_KEYS_S = 0.5
_KEPT = 256 * 1024  # characters of the output, for `/shell send`
_MAX_SENT = 8 * 1024  # characters
_LEAVES = re.compile(rb"\x1d|\x1b\[93;5(?::1)?u|\x1b\[27;5;93~")  # Ctrl+], also as Kitty and xterm may write it
_FIRST_LINE = "\x1b[2m[ccb: {}; Ctrl+] leaves it, {}]\x1b[0m\r\n"
_OF_SHELL, _OF_COMMAND = ("a shell on the host", "exit ends it"), ("on the host", "/shell returns to it")
_AWAY = {
    LinkState.RECONNECTING: "the connection is lost; what you type is sent when it is there again",
    LinkState.NEEDS_PERSON: "the connection is lost, and the login asks something: leave with Ctrl+]",
}
_HERE = (LinkState.CONNECTED, LinkState.FENCED)


@dataclass(frozen=True)
class ShellLeft:
    """How the person came back. `code`: the shell has ended with it; None: it stays, unless there is an `error`."""

    code: int | None = None
    error: str = ""


class PersonShells:
    """Shows shells of a session on this terminal, one at a time."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._seen = ""

    def last_command(self) -> str:
        """Return the last command that was typed into a shell here and its output, "" for none. A long one is cut."""
        text = "\n".join(last_command(self._seen))
        return text if len(text) <= _MAX_SENT else f"…{text[-_MAX_SENT:]}"

    async def show(self, number: int = 0, command: str = "") -> ShellLeft:
        """Open a shell, or return to one, until it ends or the person leaves it. Needs a terminal of its own."""
        try:
            with _raw_terminal():
                return await _Relay(self._session, self._keep).run({"number": number, "command": command})
        except (ChannelError, OSError, ValueError, termios.error) as error:
            return ShellLeft(error=HostText(str(error)).cell)

    def _keep(self, shown: str) -> None:
        self._seen = (self._seen + shown)[-_KEPT:]


class _Relay:
    """Carries keys and output between this terminal and a shell. Needs it in raw mode."""

    def __init__(self, session: RemoteSession, keep: Callable[[str], None]) -> None:
        self.size = _size()
        self._session, self._keep = session, keep
        self._filter = OutputFilter()
        self._writer = Writer(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
        self._keys: asyncio.Queue[bytes] = asyncio.Queue(_MAX_AHEAD)
        self._changed = asyncio.Event()  # the size of the terminal, or the state of the connection

    async def run(self, body: Json) -> ShellLeft:
        loop = asyncio.get_running_loop()
        told = self._session.tell_state(self._changed.set)
        loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
        where = {"term": os.environ.get("TERM", ""), "rows": self.size.rows, "columns": self.size.columns}
        try:
            first = _FIRST_LINE.format(*(_OF_COMMAND if body["command"] else _OF_SHELL))
            await self._write(f"{KEEP_TITLE}{first}")
            async with await self._session.open_channel("shell", {**where, **body}) as channel:
                return await self._until_left(channel)
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            told()
            await self._write(f"{self._filter.reset}{TITLE_BACK}\r\n")
            await self._writer.drain()

    async def _until_left(self, channel: Channel) -> ShellLeft:
        """Return what the first direction to end says."""
        ways: list[Coroutine[Any, Any, ShellLeft]] = [
            self._show(channel), self._read_keys(), self._send_keys(channel), self._follow_changes(channel)
        ]  # fmt: skip
        tasks = [asyncio.create_task(way, name="shell") for way in ways]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(task for task in tasks if task in done).result()
        finally:
            await cancelled(*tasks)

    async def _show(self, channel: Channel) -> ShellLeft:
        while data := await channel.read(_READ):
            text = self._filter.feed(data)
            self._keep(text)
            await self._write(text)
            await self._writer.drain()
        code = channel.result.get("code")
        return ShellLeft(code if type(code) is int else 0)

    async def _read_keys(self) -> ShellLeft:
        """Read ahead of the host, so that Ctrl+] is seen behind a paste that it does not take."""
        while data := await _typed():
            leaves = _LEAVES.search(data)
            typed = data[: leaves.start()] if leaves else data
            if typed:
                self._keep(ENTER if b"\r" in typed else "")
                await self._keys.put(typed)
            if leaves:
                break
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_KEYS_S):
                await self._keys.join()
        return ShellLeft()

    async def _send_keys(self, channel: Channel) -> ShellLeft:
        while True:
            await channel.write(encode_typed(await self._keys.get()))
            self._keys.task_done()

    async def _follow_changes(self, channel: Channel) -> ShellLeft:
        state = self._session.state
        while True:
            await self._changed.wait()
            self._changed.clear()
            size, before = _size(), self.size
            self.size = size
            before_state, state = state, self._session.state
            back = before_state in _AWAY and state in _HERE
            if back or (state in _AWAY and state is not before_state):
                await self._write(f"\r\n[ccb: {_AWAY.get(state, 'connected again')}]\r\n")
            if size != before or (back and self._filter.full_screen):  # with the same size it draws again
                await channel.write(encode_size(size))

    async def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        if data := data[self._writer.write_few(data) :]:
            await self._writer.write(data)


@contextmanager
def _raw_terminal() -> Iterator[None]:
    stdin = _stdin()
    before = termios.tcgetattr(stdin)
    tty.setraw(stdin)
    try:
        yield
    finally:
        with suppress(OSError, termios.error):  # the window may be closed
            termios.tcsetattr(stdin, termios.TCSADRAIN, before)


async def _typed() -> bytes:
    """Return what the person has typed, b"" if the window is closed. Nothing is read ahead."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(_stdin(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(_stdin())
    try:
        return os.read(_stdin(), _READ)
    except OSError:
        return b""


def _stdin() -> int:
    return sys.__stdin__.fileno() if sys.__stdin__ is not None else 0


def _size() -> TerminalSize:
    try:
        columns, rows = os.get_terminal_size(_stdin())
    except OSError:
        columns, rows = 80, 24
    return TerminalSize(max(1, rows), max(1, columns))
