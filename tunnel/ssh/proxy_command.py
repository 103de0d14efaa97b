"""What carries an SSH connection: TCP, a ProxyCommand, or the connection to a jump host.

A ProxyCommand is a child of the person's shell. Its stdin and stdout are the connection, or it hands over an open one.
asyncssh could run one itself, but it treats the command's stderr as bytes from the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from ..errors import Unreachable, UsageError
from ..login.prompter import Prompts
from ..login.server_messages import Overheard
from ..plain_text import neutralise
from ..ssh_config.host_config import HostConfig
from ..ssh_config.target import SshTarget
from ..transports.command import TransportProcess, start
from ..transports.environment import without_secrets
from ..transports.stderr_tail import StderrTail
from .tcp import open_socket

if TYPE_CHECKING:
    import asyncssh

_EXIT_S = 2.0
"""Seconds for the command to end after its stream has."""

_HAND_OVER_S = 300.0
"""Seconds for the command to hand over a connection. It may have to ask the person first."""


class FirstStream:
    """The byte stream to the first host on the way: TCP, or a ProxyCommand, which `close` ends.

    `prompts` shows what the command says; an ssh in the command asks its questions through it.
    """

    def __init__(self, config: HostConfig, prompts: Prompts) -> None:
        self._config = config
        self._prompts = prompts
        self._child: TransportProcess | None = None
        self._tail = StderrTail()
        self._listening: asyncio.Task[None] | None = None
        self._askpass = AsyncExitStack()

    async def open(self) -> Overheard:
        """Close the stream before, if any, and return a new one. Raise Unreachable."""
        await self.close()
        route = self._config.route
        if route.proxy_command is None:
            return Overheard(await open_socket(self._config))
        from ..login.askpass import Askpass, private_directory

        env = without_secrets(os.environ)
        directory = private_directory(env)
        self._askpass.callback(shutil.rmtree, directory, ignore_errors=True)
        askpass = await self._askpass.enter_async_context(Askpass(directory, self._prompts))
        ours, its = socket.socketpair()
        try:
            with its:
                await self._start(route.proxy_command, its, {**env, **askpass.variables})
            return Overheard(await self._handed_over(ours) if route.passes_socket else ours)
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

    async def _handed_over(self, ours: socket.socket) -> socket.socket:
        """Return the connection that the command sends over `ours` (ProxyUseFdpass)."""
        ours.setblocking(False)
        loop, sent = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(ours, sent.set)
        try:
            async with asyncio.timeout(_HAND_OVER_S):
                await sent.wait()
            descriptors = socket.recv_fds(ours, 1, 1)[1]
        except TimeoutError:
            descriptors = []
        finally:
            loop.remove_reader(ours)
        if not descriptors:
            await self.command_failed()
            raise Unreachable(
                "the ProxyCommand did not hand over a connection (ProxyUseFdpass)",
                evidence=self.command_output(),
                do="Correct the ProxyCommand until it connects.",
            )
        ours.close()
        return socket.socket(fileno=descriptors[0])

    async def command_failed(self) -> bool:
        """After the end of the stream: wait a moment for the command to end. Return whether it failed."""
        if self._child is None or self._listening is None:
            return False
        await asyncio.wait((self._listening,), timeout=_EXIT_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_S):
                await self._child.exited()
        return self._child.process.returncode not in (None, 0)

    @property
    def runs_command(self) -> bool:
        """Whether a ProxyCommand carries the stream."""
        return self._child is not None

    def command_output(self) -> str:
        """Return the last lines that the command wrote to stderr, neutralised; "" if none."""
        return neutralise(self._tail.text().strip())

    async def close(self) -> None:
        """End the command and what it has started."""
        child, self._child = self._child, None
        listening, self._listening = self._listening, None
        try:
            if child is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.process.pid, signal.SIGHUP)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EXIT_S):
                        await child.exited()
        finally:
            if child is not None:
                await child.end()
            if listening is not None:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
            await self._askpass.aclose()


class Carrier:
    """What carries one login:

    `sock`, which `stream` has opened, or `tunnel`, the connection to the jump host `through`.
    """

    def __init__(
        self,
        *,
        stream: FirstStream | None = None,
        sock: Overheard | None = None,
        tunnel: asyncssh.SSHClientConnection | None = None,
        through: SshTarget | None = None,
    ) -> None:
        self.sock = sock
        self.tunnel = tunnel
        self.through = through
        self._stream = stream

    async def reopen(self) -> None:
        """Open a new stream for another attempt. A tunnel can be used again as it is. Raise Unreachable."""
        if self._stream is not None:
            self.sock = await self._stream.open()

    def abandon(self) -> None:
        """Close the socket after a login that failed."""
        if self.sock is not None:
            self.sock.close()

    async def command_failed(self) -> bool:
        """Return whether the ProxyCommand failed; False without one."""
        return self._stream is not None and await self._stream.command_failed()

    @property
    def runs_command(self) -> bool:
        return self._stream is not None and self._stream.runs_command

    def command_output(self) -> str:
        return self._stream.command_output() if self._stream is not None else ""
