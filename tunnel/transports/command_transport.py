"""Run commands through any local command that leads to a shell, or on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shlex
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process, SubprocessStreamProtocol
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import PurePath

from ..errors import CcbError, ConnectionLost, UsageError
from ..plain_text import neutralise
from ..tasks import cancelled
from ..wire.dataclass import dataclass
from .pipe import THIS_MACHINE, Transport

_READ_LIMIT = 1024 * 1024
_CLOSE_S = 5.0

Env = Mapping[str, str]
Failure = Callable[[int | None, str], CcbError | None]
"""Takes the exit code (None: killed by a signal) and stderr of a command that ended without any output. Returns the
error that this means, or None if the caller has to decide."""


@dataclass(frozen=True)
class PipeCommand:
    """A local command that leads to a shell on the host `name`; messages show it as `shown`. `argv` returns the words
    that run a line there. `lost_status` is its exit code for a connection that was cut off."""

    name: str
    shown: str
    argv: Callable[[str], Sequence[str]]
    failure: Failure
    lost_status: int | None = None


class _Protocol(SubprocessStreamProtocol):
    def __init__(self) -> None:
        super().__init__(limit=_READ_LIMIT, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class TransportProcess:
    """A process with a group of its own. Its pipes may stay open in other processes, for which asyncio would wait."""

    def __init__(self, process: Process, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        self.process = process
        self._transport = transport
        self._protocol = protocol

    async def exited(self) -> int:
        """Wait for the end of the process, not of its pipes. Return its exit code, negative for a signal."""
        await self._protocol.exited.wait()
        status = self._transport.get_returncode()
        assert status is not None
        return status

    def kill(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self) -> None:
        self.kill()
        stdin = self.process.stdin
        if stdin is not None and stdin.transport.get_write_buffer_size():
            stdin.transport.abort()  # closing it would wait for a reader that has ended
        self._transport.close()
        await self.process.wait()
        if stdin is not None:
            with contextlib.suppress(OSError):  # else asyncio logs how it broke
                await stdin.wait_closed()


class CommandPipe:
    """stdin and stdout of one started command. `notice` shows the person what it says while it connects."""

    def __init__(self, command: PipeCommand, child: TransportProcess, notice: Notice | None = None) -> None:
        process = child.process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self._command = command
        self._child = child
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._notice = notice
        self.answered = False  # the command has written something to stdout
        self._first = b""
        self.closed = False
        self._killed = False
        self._failed = False
        self._tail = StderrTail()
        draining = self._tail.drain(process.stderr.read, self._say if notice is not None else None)
        self._stderr_task = asyncio.create_task(draining, name="stderr of a command")

    @property
    def failed(self) -> bool:
        return self._failed or (not self.closed and self._child.process.returncode not in (None, 0))

    async def answers(self) -> bool:
        """Wait for the first output, and leave it to `read`. Return False at the end of the stream. Raise as `read`."""
        self._first = await self.read()
        return bool(self._first)

    async def read(self, n: int = 65536) -> bytes:
        """See `Pipe.read`. Raise what `PipeCommand.failure` returns if the command ends without any output."""
        if self._first:
            data, self._first = self._first[:n], self._first[n:]
            return data
        data = await self._stdout.read(n)
        if data:
            self.answered = True
        elif not self.answered and not self.closed:
            error = self._command.failure(await self._status_soon(), neutralise(self.stderr_tail().strip()))
            if error is not None:
                raise error
        return data

    async def write(self, data: bytes) -> None:
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionLost(
                f"the connection to {self._command.name} was lost", evidence=self.stderr_tail().strip()
            ) from error

    async def close(self) -> None:
        self._failed = self.failed
        if not self._killed:
            self.closed = True
            self._stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._child.exited()
        self.kill()
        await self._child.end()
        await cancelled(self._stderr_task)

    def kill(self) -> None:
        self.closed = self._killed = True
        self._child.kill()

    async def exit_status(self) -> int | None:
        status = await self._child.exited()
        await asyncio.wait({self._stderr_task}, timeout=LAST_WORDS_S)
        return None if status < 0 or status == self._command.lost_status else status

    def stderr_tail(self) -> str:
        return self._tail.text()

    async def _status_soon(self) -> int | None:
        await asyncio.wait({self._stderr_task}, timeout=LAST_WORDS_S)
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                status = await self._child.exited()
        except TimeoutError:
            return None
        return status if status >= 0 else None

    def _say(self, line: str) -> None:
        if self._notice is not None and not self.answered:  # not connected yet
            self._notice(line)


class CommandTransport(Transport):
    """Starts `command` once for each line, without the terminal and the person's Ctrl+C. `notice` shows what a child
    says while it connects. `stack` is closed with the transport."""

    warm = False  # the command may log in before it gives a shell

    def __init__(
        self, command: PipeCommand, *, env: Env, notice: Notice | None = None, stack: AsyncExitStack | None = None
    ) -> None:
        self.name = command.name
        self._command = command
        self._env = dict(env)
        self._notice = notice
        self._stack = stack or AsyncExitStack()
        self._pipes: list[CommandPipe] = []
        self._given_up = self._failed = False

    async def execute(self, command: str) -> CommandPipe:
        argv = self._command.argv(command)
        child = await start(argv, self._command.shown, stdin=PIPE, stdout=PIPE, env=self._env)
        started = CommandPipe(self._command, child, self._notice)
        self._failed = self._failed or any(pipe.failed for pipe in self._pipes)
        self._pipes = [each for each in self._pipes if not each.closed] + [started]
        return started

    @property
    def alive(self) -> bool:
        return not (self._given_up or self._failed or any(pipe.failed for pipe in self._pipes))

    def abort(self) -> None:
        self._given_up = True
        for pipe in self._pipes:
            pipe.kill()

    async def close(self) -> None:
        self._given_up = True
        for pipe in self._pipes:
            await pipe.close()
        self._pipes.clear()
        await self._stack.aclose()


async def start(argv: Sequence[str], shown: str, *, stdin: int, stdout: int, env: Env) -> TransportProcess:
    """Start a child without the terminal, with a pipe for stderr. Raise UsageError if it cannot be started."""
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            _Protocol, *argv, stdin=stdin, stdout=stdout, stderr=PIPE, env=dict(env), start_new_session=True
        )
    except FileNotFoundError:
        raise UsageError(
            f"this machine has no command {argv[0][:80]!r}",
            evidence=f"It is needed to run: {shown}",
            do="Install it, put it on the PATH, or choose another transport.",
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the command {argv[0][:80]!r} cannot be started", evidence=str(error), do=f"Make this work first: {shown}"
        ) from error
    return TransportProcess(Process(transport, protocol, loop), transport, protocol)


async def said_by(
    argv: Sequence[str], *, env: Env, deadline_s: float, data: bytes | None = None
) -> tuple[int, str, str]:
    """Run a command with `data` on stdin and return its exit code, stdout and stderr. Raise UsageError, and
    TimeoutError after `deadline_s`; then it was killed with its children."""
    child = await start(argv, " ".join(argv), stdin=DEVNULL if data is None else PIPE, stdout=PIPE, env=env)
    try:
        async with asyncio.timeout(deadline_s):
            out, err = await child.process.communicate(data)
    finally:
        await child.end()
    return child.process.returncode or 0, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


HOST = "{host}"
COMMAND = "{command}"

_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh")
_TAKES_A_LINE = re.compile(r"-[il]{0,2}c|--command")


def words_of(text: str, option: str) -> tuple[str, ...]:
    """Split `text` into words as a shell does, without expanding anything. Raise UsageError naming `option`."""
    if "\0" in text or "\n" in text:
        raise UsageError(f"{option} must be one line", do=f"Write {option} 'COMMAND ARGUMENTS…'.")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} cannot be read: {error}", evidence=text[:200], do="Close the quotes.") from None
    if not words or not words[0]:
        raise UsageError(f"{option} names no command", do=f"Write {option} 'COMMAND ARGUMENTS…'.")
    return tuple(words)


def shell_argv(words: Sequence[str], line: str) -> list[str]:
    """Return `words` with `line` for a shell: in place of `{command}`, behind `-c`, as `-c LINE` or `sh -c LINE`."""
    if any(COMMAND in word for word in words):
        return [word.replace(COMMAND, line) for word in words]
    takes_a_line = len(words) > 1 and _TAKES_A_LINE.fullmatch(words[-1])
    if takes_a_line or PurePath(words[0]).name == "ssh":
        return [*words, line]
    if PurePath(words[-1]).name in _SHELLS:
        return [*words, "-c", line]
    return [*words, "sh", "-c", line]


def wrapper_argv(words: Sequence[str], login: str, line: str) -> list[str]:
    """Return the words of a wrapper of ssh that run `line` on `login`, at `{host}` and `{command}`, or last."""
    if tuple(words[:1]) == ("gcloud",) and words[-1] == "ssh":
        return [*words, login, "--command", line]
    argv = [word.replace(HOST, login).replace(COMMAND, line) for word in words]
    if not any(HOST in word for word in words):
        argv.append(login)
    if not any(COMMAND in word for word in words):
        argv.append(line)
    return argv


def is_openssh(words: Sequence[str]) -> bool:
    return PurePath(words[0]).name == "ssh" and not any(mark in word for word in words for mark in (HOST, COMMAND))


class LocalTransport(CommandTransport):
    """Runs commands with /bin/sh on this machine. `python` is for the worker; without one, PATH is searched."""

    warm = True

    def __init__(self, env: Env | None = None, python: str = "") -> None:
        self.python = python
        shell = PipeCommand(THIS_MACHINE, "sh", lambda line: ("/bin/sh", "-c", line), lambda status, said: None)
        super().__init__(shell, env=os.environ if env is None else env)

    @property
    def alive(self) -> bool:
        return not self._given_up


log = logging.getLogger(__name__)

LIMIT = 8 * 1024
LAST_WORDS_S = 2.0  # seconds to wait for the end of stderr after the command has ended
_MAX_LINE = 2000
_QUIET_S = 1.0
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\r?\n(?:[ \t].*\n)+", re.MULTILINE)

Notice = Callable[[str], None]  # shows the person a line that a command wrote to stderr. It is neutralised already.


class StderrTail:
    def __init__(self) -> None:
        self._data = b""

    async def drain(self, read: Callable[[int], Awaitable[bytes]], notice: Notice | None = None) -> None:
        """Read stderr to its end. Give each line to `notice`, also one without a newline after a moment: a question."""
        line = ""  # the unfinished one, as far as `notice` has not received it
        while True:
            reading = asyncio.ensure_future(read(4096))
            try:
                if line and notice is not None and not (await asyncio.wait({reading}, timeout=_QUIET_S))[0]:
                    notice(neutralise(line))
                    line = ""
                data = await reading
            finally:
                reading.cancel()
            if not data:
                break
            self.feed(data)
            if notice is not None:
                *lines, line = (line + data.decode("utf-8", "replace")).split("\n")
                for each in lines:
                    notice(neutralise(each[:_MAX_LINE].rstrip("\r")))
                line = line[:_MAX_LINE]
        if line and notice is not None:
            notice(neutralise(line))

    def feed(self, data: bytes) -> None:
        self._data = (self._data + data)[-LIMIT:]

    def text(self) -> str:
        """Return the end of stderr. Of a Python traceback only its last line is left; the log has all of it."""
        text = self._data.decode("utf-8", "replace")
        short = _TRACEBACK.sub("", text)
        if short != text:
            log.info("stderr of a command: %s", neutralise(text))
        return short
