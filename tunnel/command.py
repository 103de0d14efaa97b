"""The transport over any command that gives a byte pipe to a shell: `docker exec -i NAME`, `kubectl exec -i POD --`, a wrapper
of ssh. Every command on the host starts it again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from .errors import CcbError, ConnectionLost, UsageError
from .plain_text import neutralise
from .stderr_tail import StderrTail

_READ_LIMIT = 1024 * 1024
_MOST_LINE = 2000
_CLOSE_S = 5.0
_LAST_WORDS_S = 2.0

Failure = Callable[[int | None, str], CcbError | None]
"""From exit code (None: killed) and stderr of a command that ended without a word on stdout to the error it stands for; None
where that is for the caller to say."""

Notice = Callable[[str], None]
"""Shows the person what a command says on stderr while it connects; neutralised already."""


class CommandPipe:
    """stdin and stdout of one child with a process group of its own. `lost_status` is the exit code by which the command says
    that it was cut off."""

    def __init__(
        self,
        name: str,
        process: asyncio.subprocess.Process,
        failure: Failure,
        notice: Notice | None = None,
        lost_status: int | None = None,
    ) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._name = name
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr = process.stderr
        self._failure = failure
        self._notice = notice
        self._lost_status = lost_status
        self._heard = False
        self._closing = False
        self._tail = StderrTail()
        self._stderr_task = asyncio.create_task(self._drain_stderr(), name="stderr of a command")

    @property
    def failed(self) -> bool:
        """It ended by itself, and not well."""
        return not self._closing and self._process.returncode not in (None, 0)

    @property
    def closed(self) -> bool:
        """`close` was called."""
        return self._closing

    async def read(self, n: int = 65536) -> bytes:
        """As `Pipe.read`; a command that ends without a word raises the error it stands for."""
        data = await self._stdout.read(n)
        if data:
            self._heard = True
        elif not self._heard and not self._closing:
            error = self._failure(await self._status_soon(), neutralise(self.stderr_tail().strip()))
            if error is not None:
                raise error
        return data

    async def write(self, data: bytes) -> None:
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionLost(
                f"the connection to {self._name} was lost", evidence=neutralise(self.stderr_tail().strip())
            ) from error

    async def close(self) -> None:
        self._closing = True
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
        """End the child and what it started at once."""
        self._closing = True
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def exit_status(self) -> int | None:
        status = await self._process.wait()
        return None if status < 0 or status == self._lost_status else status

    def stderr_tail(self) -> str:
        return self._tail.text()

    async def _status_soon(self) -> int | None:
        """The exit code, once stderr was read to its end where that does not take long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._stderr_task), _LAST_WORDS_S)
        try:
            status = await asyncio.wait_for(self._process.wait(), _LAST_WORDS_S)
        except TimeoutError:
            return None
        return status if status >= 0 else None

    async def _drain_stderr(self) -> None:
        line = ""
        while data := await self._stderr.read(4096):
            self._tail.feed(data)
            if self._notice is None or self._heard:
                continue
            *lines, line = (line + data.decode("utf-8", "replace")).split("\n")
            for each in lines:
                self._notice(neutralise(each[:_MOST_LINE]))
            line = line[:_MOST_LINE]


class CommandTransport:
    """Starts `argv(command line)` for each command, in a session of its own: it can neither take the terminal nor be ended by
    the person's Ctrl+C. `name` is how messages call the host, `shown` how they call the command, `notice` shows the person what
    it says while it connects."""

    def __init__(
        self,
        name: str,
        shown: str,
        argv: Callable[[str], Sequence[str]],
        failure: Failure,
        *,
        env: Mapping[str, str],
        notice: Notice | None = None,
        lost_status: int | None = None,
    ) -> None:
        self._name = name
        self._shown = shown
        self._argv = argv
        self._failure = failure
        self._env = dict(env)
        self._notice = notice
        self._lost_status = lost_status
        self._pipes: list[CommandPipe] = []
        self._given_up = False

    @property
    def name(self) -> str:
        return self._name

    async def execute(self, command: str) -> CommandPipe:
        process = await start(
            self._argv(command),
            self._shown,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._env,
        )
        pipe = CommandPipe(self._name, process, self._failure, self._notice, self._lost_status)
        self._pipes = [each for each in self._pipes if not each.closed or each.failed] + [pipe]
        return pipe

    @property
    def alive(self) -> bool:
        return not self._given_up and not any(pipe.failed for pipe in self._pipes)

    def abort(self) -> None:
        self._given_up = True
        for pipe in self._pipes:
            pipe.kill()

    async def close(self) -> None:
        self._given_up = True
        for pipe in self._pipes:
            await pipe.close()
        self._pipes.clear()


async def start(
    argv: Sequence[str], shown: str, *, stdin: int, stdout: int, env: Mapping[str, str]
) -> asyncio.subprocess.Process:
    """A child without the terminal, its stderr a pipe. Raises UsageError when there is no such command here."""
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=stdin,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
            env=dict(env),
            limit=_READ_LIMIT,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise UsageError(
            f"this machine has no command {neutralise(argv[0])[:80]!r}",
            evidence=f"It was to be started as: {shown}",
            do="Install it, put it on the PATH, or name another way to the host.",
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the command {neutralise(argv[0])[:80]!r} cannot be started",
            evidence=neutralise(str(error)),
            do=f"Make this work in a terminal first: {shown}",
        ) from error
