"""The pipe of one command."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ..errors import ConnectionLost
from ..tasks import cancelled
from ..transports.command_transport import LAST_WORDS_S, StderrTail

if TYPE_CHECKING:
    import asyncssh


_CLOSE_S = 5.0


class SshPipe:
    def __init__(self, name: str, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._name = name
        self._process = process
        self._tail = StderrTail()
        self._stderr_task = asyncio.create_task(self._tail.drain(process.stderr.read))

    async def read(self, n: int = 65536) -> bytes:
        import asyncssh

        try:
            return await self._process.stdout.read(n)
        except (asyncssh.Error, OSError) as error:
            raise lost(self._name, error) from error

    async def write(self, data: bytes) -> None:
        import asyncssh

        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (asyncssh.Error, OSError) as error:
            raise lost(self._name, error) from error

    async def close(self) -> None:
        self._process.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._process.wait_closed()
        await cancelled(self._stderr_task)

    async def exit_status(self) -> int | None:
        await self._process.wait_closed()
        await asyncio.wait({self._stderr_task}, timeout=LAST_WORDS_S)
        status = self._process.exit_status
        return status if status is not None and status >= 0 else None  # asyncssh gives -1 for a signal

    def stderr_tail(self) -> str:
        return self._tail.text()


def lost(name: str, error: Exception) -> ConnectionLost:
    return ConnectionLost(f"the connection to {name} was lost", evidence=str(error) or type(error).__name__)
