"""A program on a pseudo terminal that runs on without a window, as in tmux. A new window is sent its screen."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import signal
import termios
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from aiohttp import web

from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.dataclass import dataclass

_READ_BYTES = 1 << 16
_KEPT_BYTES = 1 << 15  # lines that a window gets that comes while no full-screen program has the terminal
_MAX_UNREAD = 1 << 20  # bytes that were typed and the program has not read
_HANGUP_S, _LAST_S, _BEHIND_S = 5.0, 2.0, 1.0
_FULL_SCREEN, _BACK = b"1049", b"\x1b[?1049l"
_MODE = re.compile(rb"\x1b\[\?([0-9;]{1,40})([hl])")
_LASTING = (_FULL_SCREEN, b"1", b"1000", b"1002", b"1003", b"1006", b"2004")  # arrows, mouse, pastes: set once
ENDED, TAKEN = 4000, 4001
"""Codes that tell a page why its socket was closed: the program has ended, or another window has come."""


@dataclass(frozen=True)
class Window:
    """A window of a browser, by its socket."""

    socket: web.WebSocketResponse
    transport: asyncio.Transport

    async def show(self, data: bytes) -> None:
        """A window that is far behind loses its connection: the program must not wait for it."""
        try:
            async with asyncio.timeout(_BEHIND_S):
                await self.socket.send_bytes(data)
        except OSError:  # also a TimeoutError
            self.transport.abort()

    async def end(self, code: int) -> None:
        with suppress(OSError):
            async with asyncio.timeout(_LAST_S):
                await self.socket.close(code=code)
        self.transport.abort()


class _Output(asyncio.StreamReaderProtocol):
    """The end of a terminal is an error (EIO), for which its reader would drop what it has not given yet."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None)


class PtyProcess:
    """Starts `argv` for the first window, and again for one that comes after its end. Only the newest window sees it.
    `watched` hears whether anybody looks."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], watched: Callable[[bool], None]) -> None:
        self._argv = argv
        self._environ = environ
        self._watched = watched
        self._process: Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._terminal = -1
        self._typed: asyncio.WriteTransport | None = None
        self._window: Window | None = None
        self._changing = asyncio.Lock()
        self._modes: set[bytes] = set()
        self._kept = b""

    async def view(self, window: Window, columns: int, rows: int) -> None:
        """Show the program in a window, in whose size it draws from now on."""
        async with self._changing:
            before, self._window = self._window, window
            self._watched(True)
            if self._terminal < 0:
                await self._start(columns, rows)
            else:
                self.resize(columns, rows)
                await self._show_all(window)
            if before is not None:
                await before.end(TAKEN)

    def leave(self, window: Window) -> None:
        if self._window is window:
            self._window = None
            self._watched(False)

    def resize(self, columns: int, rows: int) -> None:
        if self._terminal >= 0:
            termios.tcsetwinsize(self._terminal, (rows, columns))

    def write(self, data: bytes) -> None:
        """Type `data`, unless the program does not read what was typed before."""
        if self._typed is not None and self._typed.get_write_buffer_size() < _MAX_UNREAD:
            self._typed.write(data)

    async def close(self) -> None:
        """End the program as a closed window does."""
        for number in (signal.SIGHUP, signal.SIGKILL):
            if self._process is not None and self._running is not None and not self._running.done():
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                await asyncio.wait([self._running], timeout=_HANGUP_S)

    async def _start(self, columns: int, rows: int) -> None:
        terminal, slave = os.openpty()
        termios.tcsetwinsize(terminal, (rows, columns))
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env={**self._environ, "SSH_TTY": os.ttyname(slave)},
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )
        except BaseException:
            os.close(terminal)
            raise
        finally:
            os.close(slave)
        self._terminal, self._modes, self._kept = terminal, set(), b""
        loop, output = asyncio.get_running_loop(), asyncio.StreamReader()
        read, write = (os.fdopen(os.dup(terminal), mode, buffering=0) for mode in ("rb", "wb"))
        reading, _ = await loop.connect_read_pipe(lambda: _Output(output), read)
        self._typed, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, write)
        ends = reading.close, self._typed.abort, partial(os.close, terminal)
        self._running = asyncio.create_task(self._run(self._process, output, ends))

    async def _run(self, process: Process, output: asyncio.StreamReader, ends: Sequence[Callable[[], object]]) -> None:
        showing = asyncio.create_task(self._show(output))
        await process.wait()
        await asyncio.wait([showing], timeout=_LAST_S)  # its last words
        await cancelled(showing)
        for end in ends:
            end()
        self._terminal = -1
        if self._window is not None:
            await self._window.end(ENDED)

    async def _show(self, output: asyncio.StreamReader) -> None:
        """Return when nobody has the terminal any more."""
        while data := await output.read(_READ_BYTES):
            cut = self._kept[-48:] + data  # also a mode of which the last read had a part
            for numbers, change in _MODE.findall(cut):
                changed = {each for each in numbers.split(b";") if each in _LASTING}
                self._modes = self._modes | changed if change == b"h" else self._modes - changed
            self._kept = (self._kept + data).rpartition(_BACK)[2][-_KEPT_BYTES:]
            if self._window is not None:
                await self._window.show(data)

    async def _show_all(self, window: Window) -> None:
        """Show lines as they were, and let a full-screen program draw anew: ccb does so with the modes of the terminal
        when it is continued, editors do when the size may be another."""
        modes = b"".join(b"\x1b[?%bh" % each for each in _LASTING if each in self._modes)
        full_screen = _FULL_SCREEN in self._modes
        await window.show(modes if full_screen else modes + self._kept)
        for number in (signal.SIGCONT, signal.SIGWINCH) if full_screen else ():
            with suppress(OSError):
                os.killpg(os.tcgetpgrp(self._terminal), number)
