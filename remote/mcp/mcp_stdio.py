"""An MCP server that runs on this host: JSON-RPC in lines over stdin and stdout of a child process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import field
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.mcp_messages import CALL_S, LineReader
from ccb.tunnel.wire.ndjson import dump_line, to_bytes

from ..system.deadline import within
from ..system.host import Host
from ..system.process import Process
from .mcp_client import FORMS, STARTS_AGAIN, UNKNOWN, Ask, Incoming, Json, McpChannel, McpError

START_S = 30.0
"""Seconds for a server to start and to agree on the protocol."""
MAX_MESSAGE = 8 * 1024 * 1024
"""Bytes of a message, and of all messages that a server has not read yet."""
_MAX_LOGGED = 64 * 1024  # bytes of what one process says on stderr
_GRACE_S = 0.3  # between the end of stdin and SIGTERM
_REFUSED_S = 10.0  # after a start that failed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerCommand:
    """How a server is started. `env` is added to the environment of children. `call_s` is the limit of its calls."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    call_s: float = CALL_S


class StdioChannel(McpChannel):
    """Starts its server with a handshake, and again with the next message after it has ended. After `close` only
    another handshake starts it. After a start that failed, messages are refused for some seconds. `heard` gets what
    the server says of its own accord, `ask` puts a form to the person."""

    offers = FORMS

    def __init__(self, name: str, command: ServerCommand, host: Host, heard: Callable[[Json], None], ask: Ask) -> None:
        self._name = name
        self._command = self.reaches = command
        self.call_s = command.call_s
        self._host = host
        self._heard = heard
        self._ask = ask
        self._child: _Child | None = None
        self._hello: Json = {}
        self._starting = asyncio.Lock()
        self._refused_until = 0.0

    async def exchange(self, message: Json) -> Json:
        if message.get("method") == "initialize":
            self._hello = message
        return await (await self._running(message)).exchange(message)

    @property
    def asking(self) -> bool:
        return self._child is not None and self._child.asking

    async def close(self) -> None:
        async with self._starting:
            child, self._child, self._refused_until = self._child, None, 0.0
            if child is not None:
                await child.close()

    async def _running(self, message: Json) -> _Child:
        async with self._starting:
            if self._child is not None and not self._child.why_ended:
                return self._child
            if self._child is None and message is not self._hello:
                raise McpError("it is not connected")
            left = self._refused_until - time.monotonic()
            if left > 0:
                raise McpError(f"it does not start; the next try is in {left:.0f} s")
            self._refused_until = time.monotonic() + _REFUSED_S
            self._child = await self._started(again=message is not self._hello)
            self._refused_until = 0.0
            return self._child

    async def _started(self, *, again: bool) -> _Child:
        try:
            child = await _Child.start(self._name, self._command, self._host, self._heard, self._ask)
        except (OSError, ValueError) as error:
            raise McpError(f"{self._command.argv[0]} cannot be started: {getattr(error, 'strerror', error)}") from None
        is_ready = False
        try:
            if again:
                await within(START_S, child.exchange({**self._hello, "id": 0}))
                await child.exchange({"method": "notifications/initialized"})
                self._heard({"method": "notifications/tools/list_changed"})
            is_ready = True
        except asyncio.TimeoutError:
            raise McpError(f"it did not start within {START_S:g} s") from None
        finally:
            if not is_ready:
                await child.close()
        return child


class _Child(asyncio.Protocol):
    """One process of a server, and the reader of its stderr. `why_ended` is "" while it runs."""

    _stdin: asyncio.WriteTransport
    _stderr: asyncio.ReadTransport
    _process: Process
    _watch: asyncio.Task[None]

    def __init__(self, name: str, heard: Callable[[Json], None], ask: Ask) -> None:
        self.why_ended = ""
        self._name = name
        self._incoming = Incoming(heard, ask, self._send)
        self._replies: dict[object, asyncio.Future[Json]] = {}
        self._line = bytearray()
        self._said = b""  # the end of stderr
        self._logged = 0
        self._quiet: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # the end of stderr has come
        self._reader = LineReader(self._cannot_be_read, lambda: self.asking)

    @staticmethod
    async def start(name: str, command: ServerCommand, host: Host, heard: Callable[[Json], None], ask: Ask) -> _Child:
        """Start the process. Raise OSError, or ValueError for text that no process can be given."""
        child, loop = _Child(name, heard, ask), asyncio.get_running_loop()
        (given, stdin), (stderr, said) = os.pipe(), os.pipe()
        child._stdin, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(stdin, "wb", 0))
        child._stderr, _ = await loop.connect_read_pipe(lambda: child, os.fdopen(stderr, "rb", 0))
        redirect, process = (given, said), None
        try:
            process = await host.start(command.argv, command.cwd, child._take, command.env, redirect=redirect)
        finally:
            os.close(given)
            os.close(said)
            if process is None:
                child._stdin.close()
                child._stderr.close()
        child._process = process
        child._watch = asyncio.ensure_future(child._watched())
        return child

    async def exchange(self, message: Json) -> Json:
        number = message.get("id")
        if number is None:
            self._send(message)
            return {}
        reply: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        self._reader.sent(message)
        try:
            self._send(message)
            return await reply
        except asyncio.CancelledError:
            with contextlib.suppress(McpError):
                self._send({"method": "notifications/cancelled", "params": {"requestId": number}})
            raise
        finally:
            del self._replies[number]
            self._reader.done(number)

    @property
    def asking(self) -> bool:
        return self._incoming.asking

    async def close(self) -> None:
        """End the process: its stdin ends, then come SIGTERM and SIGKILL."""
        self._end("it is being stopped")
        self._stdin.close()
        await asyncio.wait({self._watch}, timeout=_GRACE_S)
        await self._process.stop()
        await asyncio.wait({self._watch})

    def _send(self, message: Json) -> None:
        data = to_bytes(dump_line({"jsonrpc": "2.0", **message})) + b"\n"
        if self.why_ended:
            raise McpError(self.why_ended)
        waiting = self._stdin.get_write_buffer_size()
        if waiting + len(data) > MAX_MESSAGE:
            raise McpError(f"it does not read what it is sent: {waiting} bytes wait")
        self._stdin.write(data)

    def _take(self, data: bytes) -> None:
        if self.why_ended:
            return
        *lines, last = data.split(b"\n")
        for line in lines:
            self._hear(bytes(self._line + line))
            self._line.clear()
        self._line += last
        if len(self._line) > MAX_MESSAGE:
            self._end(f"it was stopped, because it has sent a message of more than {MAX_MESSAGE >> 20} MiB")
            self._process.kill()

    def _hear(self, line: bytes) -> None:
        found = self._reader.read(line)
        if not found and line.strip():
            self._log(line)
        for message in found:
            if "method" in message:
                self._incoming.hear(message)
            elif not self._replies[message["id"]].done():
                self._replies[message["id"]].set_result(message)

    def _cannot_be_read(self, number: object, why: str) -> None:
        if not self._replies[number].done():
            self._replies[number].set_exception(McpError(why + UNKNOWN))

    async def _watched(self) -> None:
        code = await self._process.wait()
        await self._process.stop()
        await asyncio.wait({self._quiet}, timeout=_GRACE_S)
        said = self._said.decode("utf-8", "replace").strip().rpartition("\n")[2][-300:]
        self._end(f"it has ended with exit code {code}{said and ': ' + said}{STARTS_AGAIN}")
        self._stdin.close()
        self._stderr.close()

    def _end(self, why: str) -> None:
        self.why_ended = self.why_ended or why
        self._line.clear()
        self._incoming.end()
        self._reader.close()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(McpError(self.why_ended + UNKNOWN))

    def data_received(self, data: bytes) -> None:
        self._said = (self._said + data)[-2000:]
        self._log(data)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._quiet.done():
            self._quiet.set_result(None)

    def _log(self, data: bytes) -> None:
        text = data[: max(0, _MAX_LOGGED - self._logged)].decode("utf-8", "replace").rstrip()
        self._logged += len(data)
        if text:
            log.info("the MCP server %s says: %s", self._name, text)
