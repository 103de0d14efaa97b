"""A ProxyCommand: a child of a shell whose stdin and stdout are the connection. asyncssh's own way of running one takes what
the command says on stderr for bytes of the server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable

from .errors import Unreachable
from .first_words import Overheard
from .plain_text import neutralise
from .ssh_config import HostConfig
from .stderr_tail import StderrTail
from .tcp import open_socket

_MOST_LINE = 2000
_LEAVE_S = 2.0


class FirstLine:
    """The byte stream to the first host on the way: TCP, or the proxy command, which ends with `close`. `notice` shows the
    person what the command says; neutralised."""

    def __init__(self, config: HostConfig, notice: Callable[[str], None]) -> None:
        self._config = config
        self._notice = notice
        self._process: asyncio.subprocess.Process | None = None
        self._tail = StderrTail()
        self._listening: asyncio.Task[None] | None = None

    async def open(self) -> Overheard:
        """A new stream in place of the one before. Raises Unreachable."""
        await self.close()
        if self._config.proxy_command is None:
            return Overheard(await open_socket(self._config))
        ours, its = socket.socketpair()
        try:
            self._process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", self._config.proxy_command,
                stdin=its.fileno(), stdout=its.fileno(), stderr=asyncio.subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            raise Unreachable("the ProxyCommand cannot be started", evidence=str(error), do="Check /bin/sh.") from error
        finally:
            its.close()
        self._tail = StderrTail()
        self._listening = asyncio.create_task(self._listen(self._process), name="stderr of a ProxyCommand")
        return Overheard(ours)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        line = ""
        while data := await process.stderr.read(4096):
            self._tail.feed(data)
            *lines, line = (line + data.decode("utf-8", "replace")).split("\n")
            for each in lines:
                self._notice(neutralise(each[:_MOST_LINE]))
            line = line[:_MOST_LINE]

    async def settle(self) -> bool:
        """After the stream has ended: wait a moment for the command's end and its words; whether it failed."""
        if self._process is None or self._listening is None:
            return False
        await asyncio.wait((self._listening,), timeout=_LEAVE_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _LEAVE_S)
        return self._process.returncode not in (None, 0)

    def last_words(self) -> str:
        """What the command said at the end; neutralised, may be empty."""
        return neutralise(self._tail.text().strip())

    async def close(self) -> None:
        """End the command and what it started."""
        process, self._process = self._process, None
        listening, self._listening = self._listening, None
        if process is not None:
            for sign in (signal.SIGHUP, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, sign)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _LEAVE_S)
                    break
        if listening is not None:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
