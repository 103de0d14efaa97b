"""A ProxyCommand: a child of the person's shell whose stdin and stdout are the connection, or which passes an open one on.
asyncssh's own way of running one takes what the command says on stderr for bytes of the server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from contextlib import AsyncExitStack

from ..errors import Unreachable, UsageError
from ..login.prompter import Prompts
from ..login.server_messages import Overheard
from ..plain_text import neutralise
from ..ssh_config.resolve import HostConfig
from ..transports.command import Child, start
from ..transports.environment import without_secrets
from ..transports.stderr_tail import StderrTail
from .tcp import open_socket

_LEAVE_S = 2.0
_PASS_S = 300.0  # it may have to ask first


class FirstLine:
    """The byte stream to the first host on the way: TCP, or the proxy command, which ends with `close`. What the command says
    is shown by `prompts`, and an ssh in it asks through them."""

    def __init__(self, config: HostConfig, prompts: Prompts) -> None:
        self._config = config
        self._prompts = prompts
        self._child: Child | None = None
        self._tail = StderrTail()
        self._listening: asyncio.Task[None] | None = None
        self._asking = AsyncExitStack()

    async def open(self) -> Overheard:
        """A new stream in place of the one before. Raises Unreachable."""
        await self.close()
        if self._config.proxy_command is None:
            return Overheard(await open_socket(self._config))
        from ..login.askpass import Askpass, private_directory

        env = without_secrets(os.environ)
        directory = private_directory(env)
        self._asking.callback(shutil.rmtree, directory, ignore_errors=True)
        askpass = await self._asking.enter_async_context(Askpass(directory, self._prompts))
        ours, its = socket.socketpair()
        try:
            with its:
                await self._start(self._config.proxy_command, its, {**env, **askpass.variables})
            return Overheard(await self._passed(ours) if self._config.proxy_passes else ours)
        except BaseException:
            ours.close()
            raise

    async def _start(self, command: str, stream: socket.socket, env: dict[str, str]) -> None:
        argv = (env.get("SHELL") or "/bin/sh", "-c", command)  # as ssh does
        try:
            child = await start(argv, command, stdin=stream.fileno(), stdout=stream.fileno(), env=env)
        except UsageError as error:
            raise Unreachable(
                "the ProxyCommand cannot be started", evidence=error.evidence or error.what, do=f"Check {argv[0]}."
            ) from error
        assert child.process.stderr is not None
        self._child, self._tail = child, StderrTail()
        listening = self._tail.drain(child.process.stderr.read, self._prompts.banner)
        self._listening = asyncio.create_task(listening, name="stderr of a ProxyCommand")

    async def _passed(self, ours: socket.socket) -> socket.socket:
        """The connection that the command sends over `ours`."""
        ours.setblocking(False)
        loop, sent = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(ours, sent.set)
        try:
            await asyncio.wait_for(sent.wait(), _PASS_S)
            descriptors = socket.recv_fds(ours, 1, 1)[1]
        except TimeoutError:
            descriptors = []
        finally:
            loop.remove_reader(ours)
        if not descriptors:
            await self.settle()
            raise Unreachable(
                "the ProxyCommand passed no connection on (ProxyUseFdpass)",
                evidence=self.last_words(),
                do="Mend the ProxyCommand until it connects.",
            )
        ours.close()
        return socket.socket(fileno=descriptors[0])

    async def settle(self) -> bool:
        """After the stream has ended: wait a moment for the command's end and its words; whether it failed."""
        if self._child is None or self._listening is None:
            return False
        await asyncio.wait((self._listening,), timeout=_LEAVE_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._child.exited(), _LEAVE_S)
        return self._child.process.returncode not in (None, 0)

    @property
    def runs(self) -> bool:
        """The stream is that of a command."""
        return self._child is not None

    def last_words(self) -> str:
        """What the command said at the end; neutralised, may be empty."""
        return neutralise(self._tail.text().strip())

    async def close(self) -> None:
        """End the command and what it started."""
        child, self._child = self._child, None
        listening, self._listening = self._listening, None
        try:
            if child is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.process.pid, signal.SIGHUP)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(child.exited(), _LEAVE_S)
        finally:
            if child is not None:
                await child.end()
            if listening is not None:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
            await self._asking.aclose()
