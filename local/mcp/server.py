"""One MCP server on the laptop, reached with the official `mcp` package."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TextIO

import httpx2
import mcp_types as types
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict, ValidationError

import ccb
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.requests import RequestRefused

from .config import HttpServer, ServerConfig

Json = dict[str, Any]
Said = Callable[[str, Json], Awaitable[None]]
"""Called with the name of a server and a message that it has sent of its own accord."""

log = logging.getLogger(__name__)

START_S = 30.0
"""Seconds for a server to start and to agree on the protocol."""

MAX_REPLY = 8 * 1024 * 1024
"""Characters of a reply. A longer one becomes an error."""

METHODS = frozenset(
    {"tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read", "prompts/list",
     "prompts/get", "ping"}
)  # fmt: skip
"""What the worker may ask of a server, besides the handshake."""

_FORWARDED = ("notifications/tools/list_changed", "notifications/prompts/list_changed",
              "notifications/resources/list_changed")  # fmt: skip
_WAITS_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)


class _Result(BaseModel):
    """Any result, as the server has sent it."""

    model_config = ConfigDict(extra="allow")


class LaptopServer:
    """A server that starts with the first message, and again with the next message after it has ended.

    `stderr` is a file for what its program says. After a start that failed, messages are refused for a while that grows
    from 1 to 30 seconds. `why` is the reason of the last failure, for the person and not for the host. Call `close`.
    """

    def __init__(self, name: str, config: ServerConfig, said: Said, stderr: TextIO) -> None:
        self.name = name
        self._config = config
        self._said = said
        self._stderr = stderr
        self._session: ClientSession | None = None
        self._hello: Json = {}
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._ending = asyncio.Event()
        self._failures = 0
        self._refused_until = 0.0
        self.why = ""

    async def reply(self, message: Json) -> Json:
        """Return the server's reply to a JSON-RPC message of the worker. Raise RequestRefused."""
        method, number = message.get("method"), message.get("id")
        if number is None:
            return {"jsonrpc": "2.0", "result": {}}  # the handshake is made here, so its notifications end here
        session = await self._running()
        if method == "initialize":
            return {"jsonrpc": "2.0", "id": number, "result": self._hello}
        if method not in METHODS:
            raise RequestRefused(f"ccb does not pass {one_line(str(method))[:60]} on to MCP servers")
        params = message.get("params")
        asked = types.Request[Any, Any](method=str(method), params=params if isinstance(params, dict) else None)
        try:
            result = (await session.send_request(asked, _Result)).model_dump(mode="json")
        except MCPError as error:
            if error.error.code == types.CONNECTION_CLOSED:
                await self._end()
                raise RequestRefused(f"the MCP server {self.name} has ended; the next call starts it again") from None
            return {"jsonrpc": "2.0", "id": number, "error": {"code": error.error.code, "message": str(error)}}
        except ValidationError as error:
            raise RequestRefused(
                f"the reply of the MCP server {self.name} is not MCP: {error.error_count()} errors"
            ) from None
        if len(str(result)) > MAX_REPLY:
            raise RequestRefused(f"the reply of the MCP server {self.name} is longer than {MAX_REPLY >> 20} MiB")
        return {"jsonrpc": "2.0", "id": number, "result": result}

    async def close(self) -> None:
        """End the server."""
        async with self._starting:
            await self._end()

    async def _running(self) -> ClientSession:
        async with self._starting:
            if self._session is not None:
                return self._session
            left = self._refused_until - time.monotonic()
            if left > 0:
                raise RequestRefused(f"the MCP server {self.name} does not start; the next try is in {left:.0f} s")
            try:
                return await self._start()
            except RequestRefused:
                self._failures = min(self._failures + 1, len(_WAITS_S) - 1)
                self._refused_until = time.monotonic() + _WAITS_S[self._failures]
                raise

    async def _start(self) -> ClientSession:
        self._ending = asyncio.Event()
        ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready), name=f"MCP server {self.name}")
        try:
            async with asyncio.timeout(START_S):
                self._session = await asyncio.shield(ready)
        except TimeoutError:
            await self._end()
            raise RequestRefused(f"the MCP server {self.name} did not start within {START_S:.0f} s") from None
        except BaseException:
            await self._end()
            raise
        self._failures = 0
        return self._session

    async def _run(self, ready: asyncio.Future[ClientSession]) -> None:
        """Own the connection: the package wants it to be left by the task that has entered it."""
        try:
            async with self._connected() as session:
                ready.set_result(session)
                await self._ending.wait()
        except Exception as error:
            self.why = _reason(error)  # stays here: an address in it may hold a token
            log.warning("the MCP server %s has failed", self.name, exc_info=error)
            if not ready.done():
                ready.set_exception(RequestRefused(f"the MCP server {self.name} cannot be reached"))
        finally:
            self._session = None
            ready.cancel()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[ClientSession]:
        async with AsyncExitStack() as stack:
            config = self._config
            if isinstance(config, HttpServer):
                client = await stack.enter_async_context(httpx2.AsyncClient(headers=config.headers, timeout=None))
                streams = streamable_http_client(config.url, http_client=client)
            else:
                given = StdioServerParameters(command=config.command, args=config.args, env=config.env)
                streams = stdio_client(given, self._stderr)
            read, write = await stack.enter_async_context(streams)
            info = types.Implementation(name="ccb", version=ccb.__version__)
            session = ClientSession(read, write, message_handler=self._heard, client_info=info)
            await stack.enter_async_context(session)
            hello = await session.initialize()
            self._hello = hello.model_dump(by_alias=True, mode="json", exclude_none=True)
            yield session

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            return
        body = message.model_dump(by_alias=True, mode="json", exclude_none=True)
        if body.get("method") in _FORWARDED:
            await self._said(self.name, {"jsonrpc": "2.0", **body})

    async def _end(self) -> None:
        task, self._task = self._task, None
        self._session = None
        if task is not None:
            self._ending.set()
            done, _ = await asyncio.wait({task}, timeout=START_S)
            if not done:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def _reason(error: BaseException) -> str:
    """Return the first cause in a group of errors, as one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return one_line(str(error) or type(error).__name__)[:300]
