"""The person's shells: login shells on terminals of this host, which outlive channels and connections. The agent
neither opens one nor sees what is in it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import struct
import sys
import termios
import time

from ccb.tunnel.wire.channels import Channel
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.shell_stream import ShellInputDecoder, TerminalSize

from ..system.deadline import first_of, in_thread, within_while
from ..system.login_shell import argv_of_shell
from ..system.process import Process
from ..tools.tool_contract import ToolContext

MAX_SHELLS = 8
_KEPT = 256 * 1024  # bytes of the output of each
_SLACK = 64 * 1024  # bytes more before something is dropped
_LINES = 100  # of a terminal that shows no full-screen program
_BORDER = re.compile(rb"[\n\x1b]")  # no sequence is cut there
_TO_A_BORDER = 4096  # bytes in which one is looked for: what follows may not have been sent yet
_MODE = re.compile(rb"\x1b\[\?([0-9]{1,4}(?:;[0-9]{1,4}){0,15})([hl])")
_FULL_SCREEN = (b"1049", b"1047", b"47")
_USUALLY_SET = (b"7", b"25")  # wrapping, the cursor
# What a terminal answers: its answer to the second print would be typed into the shell.
_QUESTION = re.compile(
    rb"\x05|\x1bZ|\x1b\[[0-9;<=>?]*[cnx]|\x1b\[>?[0-9]*q|\x1b\[\?u|\x1b\[\??[0-9;]*\$p|\x1b\][^\x07\x1b]*\?(?:\x07|\x1b\\)"
)
_UNREAD = _KEPT // 2  # bytes that an attached client may be behind before the program has to wait
_CHUNK = 65536
_READS_AT_ONCE = 4
_DRAIN_S = 1.0  # seconds for the last output of a shell that has ended
_REDRAW_S = 0.05
_MAX_COMMAND = 64 * 1024
# Makes the terminal on stdin that of a new session, and becomes the program. This process ignores some signals.
_TAKE_TERMINAL = """
import fcntl, os, sys, termios, _signal
os.dup2(0, 1)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
for number in (_signal.SIGHUP, _signal.SIGPIPE, _signal.SIGXFSZ):
    _signal.signal(number, _signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[2:])
"""


class KeptOutput:
    """The last output of a terminal, and what of it brings its screen back on another one. `end` counts all bytes so
    far."""

    def __init__(self) -> None:
        self.end = 0
        self._kept = bytearray()
        self._modes: dict[bytes, bytes] = {}  # set by bytes that were dropped

    def add(self, data: bytes) -> None:
        self._kept += data
        self.end += len(data)
        if len(self._kept) > _KEPT + _SLACK:
            gone = len(self._kept) - _KEPT
            border = _BORDER.search(self._kept, gone, gone + _TO_A_BORDER)
            gone = border.start() if border is not None else gone
            self._modes.update(_modes_in(self._kept[:gone]))
            del self._kept[:gone]

    def since(self, position: int) -> bytes:
        return bytes(self._kept[max(0, len(self._kept) - (self.end - position)) :])

    def replay(self) -> bytes:
        """Return what another terminal has to be sent first: all of a full-screen program, which has no lines."""
        if not self._kept:
            return b""
        modes, kept = {**self._modes, **_modes_in(self._kept)}, bytes(self._kept)
        if not any(modes.get(each) == b"h" for each in _FULL_SCREEN):
            kept = b"\n".join(kept.rsplit(b"\n", _LINES)[-_LINES:])
        changed = [mode for mode in modes.items() if (mode[0] in _USUALLY_SET) != (mode[1] == b"h")]
        set_modes = b"".join(b"\x1b[?%s%s" % mode for mode in changed)
        return b"\x1b[0m" + set_modes + _QUESTION.sub(b"", kept)


def _modes_in(data: bytearray) -> dict[bytes, bytes]:
    return {number: match[2] for match in _MODE.finditer(data) for number in match[1].split(b";")}


class Shell:
    """A program on a terminal. While a client is attached, the program waits when that reads slowly; else its older
    output is forgotten. `code` is the exit code after the end, `used` when a client came or left last."""

    def __init__(self, number: int, master: int, process: Process) -> None:
        self.number = number
        self.process = process
        self._holder: Channel | None = None  # of the client that is attached
        self.used = time.monotonic()
        self.code: int | None = None
        self._master = master
        self._output = KeptOutput()
        self._position = 0  # of the attached client, in the output
        self._news = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._size: TerminalSize | None = None  # since a client came
        self._redraw: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._paused = True  # until somebody holds it
        os.set_blocking(master, False)

    @property
    def is_held(self) -> bool:
        return self._holder is not None and self._holder.is_live

    async def ended(self) -> None:
        """Wait until the program has ended and its output is there."""
        code = await self.process.wait()
        with contextlib.suppress(asyncio.TimeoutError):
            await within_while(_DRAIN_S, lambda: not self._paused, self._hung_up.wait(), every=_DRAIN_S)
        self.hang_up()
        self.code = code if code >= 0 else 128 - code
        self._news.set()

    async def attach(self, channel: Channel, size: TerminalSize) -> None:
        """Let a client hold the shell, in place of the one that does. Return when the shell has ended."""
        while self._holder is not None:
            holder, self._holder = self._holder, None
            await holder.close("the shell was opened in another terminal")
        self._holder, self.used = channel, time.monotonic()
        self._resize(size)
        try:
            for error in await first_of(self._send(channel), self._take(channel)):
                raise error
        finally:
            self.used = time.monotonic()
            if self._holder is channel:
                self._holder = None
                self._resume()

    async def _send(self, channel: Channel) -> None:
        replay, self._position = self._output.replay(), self._output.end
        if replay:
            await channel.write(replay)
        while self._holder is channel:
            data = self._output.since(self._position)
            self._position += len(data)
            self._resume()
            if data:
                await channel.write(data)
            elif self.code is not None:
                channel.end({"code": self.code})
                return
            else:
                self._news.clear()
                await self._news.wait()

    async def _take(self, channel: Channel) -> None:
        decoder = ShellInputDecoder()
        while data := await channel.read():
            for piece in decoder.feed(data):
                if isinstance(piece, bytes):
                    await self._type(piece)
                else:
                    self._resize(piece)
        await asyncio.Event().wait()  # the laptop types no more, and still reads

    async def _type(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._hung_up.is_set():
            try:
                view = view[os.write(self._master, view) :]
            except BlockingIOError:
                room = asyncio.Event()
                self._loop.add_writer(self._master, room.set)
                try:
                    await first_of(room.wait(), self._hung_up.wait())
                finally:
                    if not self._hung_up.is_set():
                        self._loop.remove_writer(self._master)
            except OSError:
                return  # nothing reads what is typed any more

    def _resize(self, size: TerminalSize) -> None:
        """Tell the program the size of the client's terminal. With that of before it is to draw again, so it sees two
        changes."""
        if self._hung_up.is_set():
            return
        if self._redraw is not None:
            self._redraw.cancel()  # this size is the newer one
        if size == self._size:
            self._redraw = self._loop.call_later(_REDRAW_S, self._resize, size)
            size = TerminalSize(max(1, size.rows - 1), size.columns)
        self._size = size
        _set_size(self._master, size)

    def _read(self) -> None:
        for _ in range(_READS_AT_ONCE):
            try:
                data = os.read(self._master, _CHUNK)
            except BlockingIOError:
                return
            except OSError:  # Linux says so when no program has the terminal any more
                data = b""
            if not data:
                self.hang_up()
                return
            self._output.add(data)
            self._news.set()
            if self._holder is not None and self._output.end - self._position >= _UNREAD:
                self._loop.remove_reader(self._master)
                self._paused = True
                return

    def _resume(self) -> None:
        if self._paused and not self._hung_up.is_set():
            self._loop.add_reader(self._master, self._read)
        self._paused = False

    def hang_up(self) -> None:
        """Close the terminal, of which the kernel tells the programs with SIGHUP."""
        if not self._hung_up.is_set():
            self._hung_up.set()
            self._loop.remove_reader(self._master)
            self._loop.remove_writer(self._master)
            os.close(self._master)

    async def close(self) -> None:
        self.hang_up()
        await self.process.stop()


class Shells:
    """The shells of a session, until `close`."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._shells: dict[int, Shell] = {}
        self._watches: dict[asyncio.Task[None], Shell] = {}
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def running(self) -> bool:
        """Whether a shell runs, or something that one has left running."""
        return bool(self._watches)

    async def serve(self, channel: Channel, body: Json, _role: str) -> None:
        """Attach a client to the shell with the number in `body`, or else to the one used last of those that no other
        terminal shows. `command` runs in a new one. Raise ValueError or OSError for what cannot be opened."""
        number, command = body.get("number", 0), body.get("command", "")
        if type(number) is not int or not 0 <= number <= MAX_SHELLS:
            raise ValueError("a shell is a number from 1 to %d" % MAX_SHELLS)
        if not isinstance(command, str) or len(command) > _MAX_COMMAND:
            raise ValueError("this is no command of a shell")
        size = _size_in(body)
        async with self._opening:
            shell = None if command else self._found(number)
            if shell is None:
                shell = await self._start(number or self._free(), command, str(body.get("term", "")), size)
        await shell.attach(channel, size)

    def _found(self, number: int) -> Shell | None:
        if number:
            return self._shells.get(number)
        free = [each for each in self._shells.values() if not each.is_held]
        return max(free, key=lambda each: each.used, default=None)

    def _free(self) -> int:
        free = [number for number in range(1, MAX_SHELLS + 1) if number not in self._shells]
        if not free:
            raise ValueError("%d shells are open" % MAX_SHELLS)
        return free[0]

    async def _start(self, number: int, command: str, term: str, size: TerminalSize) -> Shell:
        if self._closed or number in self._shells:
            raise ValueError("the session ends" if self._closed else "shell %d is open" % number)
        context = self._context
        program, argv = await in_thread(argv_of_shell, os.environ, command)
        env = {**context.login.variables, "TERM": term or "xterm", "SHELL": program}
        master, slave = os.openpty()
        _set_size(master, size)
        try:
            launch = [sys.executable or "python3", "-I", "-S", "-c", _TAKE_TERMINAL, program, *argv]
            process = await context.host.start_attended(launch, context.cwd, env, (slave, slave))
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        shell = self._shells[number] = Shell(number, master, process)
        watch = asyncio.get_running_loop().create_task(self._watch(shell))
        self._watches[watch] = shell
        watch.add_done_callback(lambda done: self._watches.pop(done, None))
        return shell

    async def _watch(self, shell: Shell) -> None:
        await shell.ended()
        del self._shells[shell.number]
        await shell.process.gone()

    async def close(self) -> None:
        """End all shells and what they have started."""
        self._closed = True
        watches = dict(self._watches)
        await asyncio.gather(*(shell.close() for shell in watches.values()))
        if watches:
            await asyncio.wait(watches, timeout=_DRAIN_S)


def _size_in(body: Json) -> TerminalSize:
    rows, columns = body.get("rows"), body.get("columns")
    if type(rows) is not int or type(columns) is not int or not (0 < rows < 1 << 16 and 0 < columns < 1 << 16):
        raise ValueError("the size of a shell's terminal is two numbers")
    return TerminalSize(rows, columns)


def _set_size(terminal: int, size: TerminalSize) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))
