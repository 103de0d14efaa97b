"""The local transport: the same pipe as over SSH, with the worker as a child of this process's machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from .errors import ConnectionLost
from .stderr_tail import StderrTail

_READ_LIMIT = 1024 * 1024
_CLOSE_S = 5.0


class LocalPipe:
    """stdin and stdout of one local child."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._tail = StderrTail()
        self._stderr_task = asyncio.create_task(self._tail.drain(process.stderr.read))

    async def read(self, n: int = 65536) -> bytes:
        return await self._stdout.read(n)

    async def write(self, data: bytes) -> None:
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionLost("the local worker closed its input", evidence=self.stderr_tail()) from error

    async def close(self) -> None:
        self._stdin.close()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await self._stdin.wait_closed()
        try:
            await asyncio.wait_for(self._process.wait(), _CLOSE_S)
        except TimeoutError:
            self.kill()
            await self._process.wait()
        self._stderr_task.cancel()
        await asyncio.gather(self._stderr_task, return_exceptions=True)

    def kill(self) -> None:
        """End the child at once."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def exit_status(self) -> int | None:
        status = await self._process.wait()
        return status if status >= 0 else None

    def stderr_tail(self) -> str:
        return self._tail.text()


class LocalTransport:
    """Runs commands under /bin/sh on this machine. `env` replaces the environment when given."""

    def __init__(self, env: dict[str, str] | None = None) -> None:
        self._env = env
        self._pipes: list[LocalPipe] = []

    @property
    def name(self) -> str:
        return "local"

    async def execute(self, command: str) -> LocalPipe:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._env,
            limit=_READ_LIMIT,
            start_new_session=True,
        )
        pipe = LocalPipe(process)
        self._pipes.append(pipe)
        return pipe

    @property
    def alive(self) -> bool:
        return True

    def abort(self) -> None:
        for pipe in self._pipes:
            pipe.kill()

    async def close(self) -> None:
        for pipe in self._pipes:
            await pipe.close()
        self._pipes.clear()
