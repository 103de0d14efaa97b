"""An MCP server that runs on this host: JSON-RPC in lines over stdin and stdout of a child process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import field
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import FrameError
from ccb.tunnel.wire.mcp_messages import CALL_S, LineReader
from ccb.tunnel.wire.ndjson import LineSplitter, dump_line, to_bytes

from ..system.deadline import within
from ..system.host import Host
from ..system.stdio_process import StdioProcess, TalkRules
from .mcp_client import FORMS, STARTS_AGAIN, UNKNOWN, Ask, Incoming, Json, McpChannel, McpError

START_S = 30.0
"""Seconds for a server to start and to agree on the protocol."""
MAX_MESSAGE = 8 * 1024 * 1024
"""Bytes of a message."""
_REFUSED_S = 10.0  # after a start that failed


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
            argv, cwd, env = self._command.argv, self._command.cwd, self._command.env
            rules = TalkRules(f"the MCP server {self._name}", MAX_MESSAGE)
            process = await StdioProcess.start(rules, argv, cwd, env, self._host)
        except (OSError, ValueError) as error:
            raise McpError(f"{self._command.argv[0]} cannot be started: {getattr(error, 'strerror', error)}") from None
        child = _Child(process, self._heard, self._ask)
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


class _Child:
    """One process of a server. `why_ended` is "" while it runs."""

    def __init__(self, process: StdioProcess, heard: Callable[[Json], None], ask: Ask) -> None:
        self.why_ended = ""
        self._process = process
        self._incoming = Incoming(heard, ask, self._send)
        self._replies: dict[object, asyncio.Future[Json]] = {}
        self._reader = LineReader(self._cannot_be_read)
        self._serving = asyncio.get_running_loop().create_task(self._serve())

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
        self._end("it is being stopped")
        await self._process.close()
        await asyncio.wait({self._serving})

    def _send(self, message: Json) -> None:
        if self.why_ended:
            raise McpError(self.why_ended)
        try:
            self._process.send(to_bytes(dump_line({"jsonrpc": "2.0", **message})) + b"\n")
        except OSError as error:
            raise McpError(str(error)) from None

    async def _serve(self) -> None:
        """Take lines until the server ends."""
        lines = LineSplitter(MAX_MESSAGE)
        try:
            while data := await self._process.read():
                for line in lines.feed(data):
                    self._hear(line)
        except FrameError:
            self._process.kill(f"it has sent a message of more than {MAX_MESSAGE >> 20} MiB")
        self._end(f"it {await self._process.ended()}{STARTS_AGAIN}")

    def _hear(self, line: bytes) -> None:
        if self.why_ended:
            return
        found = self._reader.read(line)
        if not found and line.strip():
            self._process.log(line)
        for message in found:
            if "method" in message:
                self._incoming.hear(message)
            elif not self._replies[message["id"]].done():
                self._replies[message["id"]].set_result(message)

    def _cannot_be_read(self, number: object, why: str) -> None:
        if not self._replies[number].done():
            self._replies[number].set_exception(McpError(why + UNKNOWN))

    def _end(self, why: str) -> None:
        self.why_ended = self.why_ended or why
        self._incoming.end()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(McpError(self.why_ended + UNKNOWN))
