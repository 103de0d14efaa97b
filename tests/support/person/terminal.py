"""A program on a pseudo terminal of its own, driven by what it shows."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from tests.support.forking.process import READ_AT_START, start_process

from ccb.local.terminal.keymap import BURST_S

_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")


def without_sequences(written: bytes | bytearray) -> str:
    """Return what a program wrote to a terminal without its escape sequences."""
    return _SEQUENCES.sub("", written.decode(errors="replace"))


class Terminal:
    """`written` is all that the program wrote."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.process = process
        self._master: int | None = master
        self._news = asyncio.Event()
        self.written = bytearray()  # bytes would be copied with each piece
        asyncio.get_running_loop().add_reader(master, self._read)

    @property
    def text(self) -> str:
        """What was written, without escape sequences."""
        return self.text_from(0)

    def text_from(self, start: int) -> str:
        """The same, of what was written after the first `start` bytes."""
        return without_sequences(self.written[start:])

    @property
    def descriptor(self) -> int:
        """Our end of the terminal."""
        assert self._master is not None
        return self._master

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows what is typed, as it does for a shell."""
        assert self._master is not None
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def type(self, keys: str) -> None:
        assert self._master is not None
        os.write(self._master, keys.encode())

    async def answer(self, key: str) -> None:
        """Go to the card of a question and answer it. One that takes the place of another does not listen at once."""
        await self.shows("to answer")
        start = len(self.written)
        while "Esc back" not in self.text_from(start):
            with suppress(AssertionError):
                await self._press("\t", "Esc back", 6)
        await self._press(key)
        await self._press("\r")

    async def _press(self, key: str, shown: str = "", deadline_s: float = 60) -> None:
        """Press a key with the pause of a person before it, and wait until what `shown` means is written."""
        await asyncio.sleep(4 * BURST_S)
        seen = len(self.written)
        self.type(key)
        await self.until(lambda: re.search(shown, self.text_from(seen)), deadline_s)

    async def chord(self, keys: str) -> None:
        """Press a chord such as Alt+R, which counts only if it was pressed alone."""
        await asyncio.sleep(2 * BURST_S)
        self.type(keys)

    async def until(self, condition: Callable[[], object], deadline_s: float = 60) -> None:
        """Wait until `condition` holds, looked at whenever something is written."""
        end = time.monotonic() + deadline_s
        while not condition():
            self._news.clear()
            try:
                async with asyncio.timeout(max(0, end - time.monotonic())):
                    await self._news.wait()
            except TimeoutError:
                raise AssertionError(f"it did not happen; written so far: {self.text[-3000:]}") from None

    async def types(self, keys: str, then: str | Callable[[], object]) -> None:
        """Type keys, and wait until the screen shows a text, or a condition holds."""
        self.type(keys)
        await (self.shows(then) if isinstance(then, str) else self.until(then))

    async def ended_by(self, keys: str) -> int:
        self.type(keys)
        return await self.ended()

    async def shows(self, text: str) -> None:
        await self.until(lambda: text in self.text)

    async def ended(self, deadline_s: float = 60) -> int:
        """Wait for the end; the exit code."""
        try:
            async with asyncio.timeout(deadline_s):
                return await self.process.wait()
        except TimeoutError:
            raise AssertionError(f"it did not end; written so far: {self.text[-3000:]}") from None

    def hang_up(self) -> None:
        if self._master is not None:
            asyncio.get_running_loop().remove_reader(self._master)
            os.close(self._master)
            self._master = None

    def _read(self) -> None:
        assert self._master is not None
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the program has closed its end
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self.written += data
        self._news.set()


def screen_env() -> dict[str, str]:
    """Return the environment for a program that shows the REPL on a session of its own. What Python reads of it at its
    start is as on a laptop, so that it is forked like the runs of ccb: its imports would take a second."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(READ_AT_START)}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "COLORTERM": "truecolor"}


@asynccontextmanager
async def terminal(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    size: tuple[int, int] = (100, 30),
    *,
    term: str = "xterm-256color",
) -> AsyncIterator[Terminal]:
    """Run a program on a terminal of `size` columns and lines; killed on leaving when it has not ended."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    try:
        if list(argv[:2]) in ([sys.executable, "-m"], [sys.executable, "-c"]):
            process = await start_process(
                "ccb", argv[1:], stdin=slave, stdout=slave, stderr=slave, env={**env, "TERM": term}, cwd=cwd,
                new_session=True, terminal=True,
            )  # fmt: skip
        else:
            process = await asyncio.create_subprocess_exec(
                *argv, stdin=slave, stdout=slave, stderr=slave, env={**env, "TERM": term}, cwd=cwd,
                start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )  # fmt: skip
    finally:
        os.close(slave)
    running = Terminal(process, master)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        running.hang_up()
