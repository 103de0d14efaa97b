"""One command on a connection: an exec channel."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import ConnectionLost
from ...transports.stderr_tail import LAST_WORDS_S, StderrTail

if TYPE_CHECKING:
    import asyncssh

_CLOSE_S = 5.0


class SshPipe:
    """The pipe of one command. It can be read, or hand over what arrives."""

    def __init__(self, name: str, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._name = name
        self._process = process
        self._tail = StderrTail()
        self._stderr_task = asyncio.create_task(self._drain_stderr())

    async def _drain_stderr(self) -> None:
        import asyncssh

        with contextlib.suppress(asyncssh.Error, OSError):
            await self._tail.drain(self._process.stderr.read)

    async def read(self, n: int = 65536) -> bytes:
        import asyncssh

        try:
            return await self._process.stdout.read(n)
        except (asyncssh.Error, OSError) as error:
            raise lost(self._name, error) from error

    def hand_over(self, take: Callable[[bytes], None]) -> None:
        """See HandsOver."""
        taker = _Taker(take)
        self._process.set_writer(taker, True, None)
        self._process.feed_recv_buf(None, taker)

    def hold(self) -> None:
        """See HandsOver."""
        self._process.pause_feeding(None)

    def release(self) -> None:
        """See HandsOver."""
        self._process.resume_feeding(None)

    async def write(self, data: bytes) -> None:
        import asyncssh

        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (asyncssh.Error, OSError) as error:
            raise lost(self._name, error) from error

    def end_input(self) -> None:
        """Send end of file: nothing more will be written."""
        with contextlib.suppress(OSError):
            self._process.stdin.write_eof()

    async def close(self) -> None:
        self._process.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._process.wait_closed()
        self._stderr_task.cancel()
        await asyncio.gather(self._stderr_task, return_exceptions=True)

    async def exit_status(self) -> int | None:
        await self._process.wait_closed()
        await asyncio.wait({self._stderr_task}, timeout=LAST_WORDS_S)
        status = self._process.exit_status
        return status if status is not None and status >= 0 else None  # asyncssh gives -1 for a signal

    def stderr_tail(self) -> str:
        return self._tail.text()


class _Taker:
    """What asyncssh writes the output of a command to, as if it were a file."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def write(self, data: bytes) -> None:
        if data:
            self._take(data)

    def write_exception(self, exc: Exception) -> None:
        self.write_eof()

    def write_eof(self) -> None:
        self._take(b"")

    def close(self) -> None:
        """Nothing: the end was told."""


def lost(name: str, error: Exception) -> ConnectionLost:
    """Return the error for a connection that broke."""
    return ConnectionLost(f"the connection to {name} was lost", evidence=str(error) or type(error).__name__)
