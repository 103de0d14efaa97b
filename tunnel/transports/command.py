"""The transport over any command that gives a byte pipe to a shell: `docker exec -i NAME`, `kubectl exec -i POD --`, a wrapper
of ssh. Every command on the host starts it again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Callable, Mapping, Sequence

from ..errors import CcbError, ConnectionLost, UsageError
from ..plain_text import neutralise
from .stderr_tail import LAST_WORDS_S, Notice, StderrTail

_READ_LIMIT = 1024 * 1024
_CLOSE_S = 5.0

Failure = Callable[[int | None, str], CcbError | None]
"""From exit code (None: killed) and stderr of a command that ended without a word on stdout to the error it stands for; None
where that is for the caller to say."""


class _Protocol(SubprocessStreamProtocol):
    def __init__(self) -> None:
        super().__init__(limit=_READ_LIMIT, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class Child:
    """A process with a group of its own. Its pipes may outlive it in other hands (a master connection, something it started),
    and then waiting for it would have no end unless they are closed here."""

    def __init__(self, process: Process, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        self.process = process
        self._transport = transport
        self._protocol = protocol

    async def exited(self) -> int:
        """Wait for its end, not for that of its pipes; its exit code, negative for a signal."""
        await self._protocol.exited.wait()
        status = self._transport.get_returncode()
        assert status is not None
        return status

    def kill(self) -> None:
        """End it and what it started, without waiting."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Killed if it still runs; its pipes are closed."""
        self.kill()
        self._transport.close()
        await self.process.wait()


class CommandPipe:
    """stdin and stdout of one child with a process group of its own. `lost_status` is the exit code by which the command says
    that it was cut off."""

    def __init__(
        self,
        name: str,
        child: Child,
        failure: Failure,
        notice: Notice | None = None,
        lost_status: int | None = None,
    ) -> None:
        process = child.process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._name = name
        self._child = child
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._failure = failure
        self._notice = notice
        self._lost_status = lost_status
        self._heard = False
        self._closing = False
        self._killed = False
        self._failed = False
        self._tail = StderrTail()
        draining = self._tail.drain(process.stderr.read, self._say if notice is not None else None)
        self._stderr_task = asyncio.create_task(draining, name="stderr of a command")

    @property
    def failed(self) -> bool:
        """It ended by itself, and not well."""
        return self._failed or (not self._closing and self._process.returncode not in (None, 0))

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
        self._failed = self.failed
        if not self._killed:
            self._closing = True
            self._stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._child.exited(), _CLOSE_S)
        self.kill()
        if self._stdin.transport.get_write_buffer_size():
            self._stdin.transport.abort()  # closing it would wait for a reader that is gone
        await self._child.end()
        self._stderr_task.cancel()
        await asyncio.gather(self._stderr_task, return_exceptions=True)

    def kill(self) -> None:
        """End the child and what it started at once."""
        self._closing = self._killed = True
        self._child.kill()

    async def exit_status(self) -> int | None:
        status = await self._child.exited()
        await asyncio.wait({self._stderr_task}, timeout=LAST_WORDS_S)
        return None if status < 0 or status == self._lost_status else status

    def stderr_tail(self) -> str:
        return self._tail.text()

    async def _status_soon(self) -> int | None:
        """The exit code, once stderr was read to its end where that does not take long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._stderr_task), LAST_WORDS_S)
        try:
            status = await asyncio.wait_for(self._child.exited(), LAST_WORDS_S)
        except TimeoutError:
            return None
        return status if status >= 0 else None

    def _say(self, line: str) -> None:
        """What it says while it connects."""
        if self._notice is not None and not self._heard:
            self._notice(line)


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
        child = await start(
            self._argv(command),
            self._shown,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._env,
        )
        pipe = CommandPipe(self._name, child, self._failure, self._notice, self._lost_status)
        self._pipes = [each for each in self._pipes if not each.closed or each.failed] + [pipe]
        return pipe

    @property
    def alive(self) -> bool:
        return not self._given_up and not any(pipe.failed for pipe in self._pipes)

    @property
    def warm(self) -> bool:
        """Nobody knows what the command does before there is a shell."""
        return False

    def abort(self) -> None:
        self._given_up = True
        for pipe in self._pipes:
            pipe.kill()

    async def close(self) -> None:
        self._given_up = True
        for pipe in self._pipes:
            await pipe.close()
        self._pipes.clear()


async def start(argv: Sequence[str], shown: str, *, stdin: int, stdout: int, env: Mapping[str, str]) -> Child:
    """A child without the terminal, its stderr a pipe. Raises UsageError when there is no such command here."""
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            _Protocol,
            *argv,
            stdin=stdin,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
            env=dict(env),
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
    return Child(Process(transport, protocol, loop), transport, protocol)


async def said_by(argv: Sequence[str], *, env: Mapping[str, str], deadline_s: float) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command that asks nothing. Raises UsageError when there is no such command, and
    TimeoutError once it is ended, with what it started."""
    pipe = asyncio.subprocess.PIPE
    child = await start(argv, " ".join(argv), stdin=asyncio.subprocess.DEVNULL, stdout=pipe, env=env)
    try:
        out, err = await asyncio.wait_for(child.process.communicate(), deadline_s)
    finally:
        await child.end()
    return child.process.returncode or 0, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
