"""One MCP server on the laptop: it starts when it is needed, and again after it has ended."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict, ValidationError

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.kinds.mcp import WANTS_LOGIN
from ccb.tunnel.wire.requests import RequestRefused

from .config import ServerConfig
from .connection import ClientSide, Refusals, ServerConnection, connected

Json = dict[str, Any]
Progress = Callable[[Json], None]
"""Gets {"progress", "total", "message"} of a call that runs."""

log = logging.getLogger(__name__)

START_S = 30.0
"""Seconds for a server to start and to agree on the protocol."""

HEALTHY_S = 30.0
"""Seconds after its last answer in which a server is taken to be alive. Later it is asked first."""

_PING_S = 10.0
_PROGRESS_S = 0.1  # at the least between two reports of a call

MAX_REPLY = 8 * 1024 * 1024
"""Characters of a reply. A longer one becomes an error."""

METHODS = frozenset(
    {"tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read", "prompts/list",
     "prompts/get", "ping"}
)  # fmt: skip
"""What the worker may ask of a server, besides the handshake."""

_WAITS_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)


class _Result(BaseModel):
    """Any result, as the server has sent it."""

    model_config = ConfigDict(extra="allow")


class LaptopServer:
    """A server that starts with the first message, and again with the next message after it has ended.

    After a start that failed, messages are refused for a while that grows from 1 to 30 seconds. `why` is the reason of
    the last failure, for the person and not for the host. Call `close`.
    """

    def __init__(self, name: str, config: ServerConfig, client: ClientSide) -> None:
        self.name = name
        self.why = ""
        self._config = config
        self._client = client
        self._connection: ServerConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._ending = asyncio.Event()
        self._failures = 0
        self._refused_until = 0.0
        self._heard_at = 0.0

    @property
    def running(self) -> bool:
        """Whether the server has been started and has not been seen to end."""
        return self._connection is not None

    @property
    def retry_s(self) -> float:
        """Seconds until the server may be started again."""
        return max(0.0, self._refused_until - time.monotonic())

    async def reply(self, message: Json, progress: Progress | None = None) -> Json:
        """Return the server's reply to a JSON-RPC message of the worker. Cancelling it cancels the request on the
        server. Raise RequestRefused."""
        method, number = message.get("method"), message.get("id")
        if number is None:
            return {"jsonrpc": "2.0", "result": {}}  # the handshake is made here, so its notifications end here
        connection = await self._running()
        if method == "initialize":
            return {"jsonrpc": "2.0", "id": number, "result": connection.hello}
        if method not in METHODS:
            raise RequestRefused(f"ccb does not pass {one_line(str(method))[:60]} on to MCP servers")
        params = message.get("params")
        asked = types.Request[Any, Any](method=str(method), params=params if isinstance(params, dict) else None)
        try:
            found = await self._exchange(connection, asked, _reporter(progress))
        except MCPError as error:
            return {"jsonrpc": "2.0", "id": number, "error": {"code": error.error.code, "message": str(error)}}
        except ValidationError as error:
            raise RequestRefused(
                f"the reply of the MCP server {self.name} is not MCP: {error.error_count()} errors"
            ) from None
        self._heard_at = time.monotonic()
        result = found.model_dump(mode="json")
        if len(str(result)) > MAX_REPLY:
            raise RequestRefused(f"the reply of the MCP server {self.name} is longer than {MAX_REPLY >> 20} MiB")
        return {"jsonrpc": "2.0", "id": number, "result": result}

    async def _exchange(self, connection: ServerConnection, asked: types.Request[Any, Any], report: Any) -> _Result:
        """Send a request. A server that has refused it because it has forgotten the session has not carried it out: it
        gets it again in a new one. Raise MCPError, RequestRefused."""
        try:
            return await connection.session.send_request(asked, _Result, progress_callback=report)
        except MCPError as error:
            refused = connection.refusals.refused({"method": asked.method, "params": asked.params})
            if not refused and error.error.code != types.CONNECTION_CLOSED:
                raise
            if self._connection is connection:  # else another call has ended it already, and perhaps begun the next
                await self._end()
            if not refused:
                effect = "Whether this call had any effect is not known: check that before you try again. "
                raise RequestRefused(
                    f"the MCP server {self.name} has ended before it answered. "
                    f"{effect if asked.method == 'tools/call' else ''}The next call starts it again."
                ) from None
        again = await self._running()
        return await again.session.send_request(asked, _Result, progress_callback=report)

    async def restart(self) -> None:
        """End the server if it runs, and start it at once. Raise RequestRefused."""
        await self.close()
        self._failures, self._refused_until = 0, 0.0
        await self._running()

    async def close(self) -> None:
        """End the server."""
        async with self._starting:
            await self._end()

    async def _running(self) -> ServerConnection:
        async with self._starting:
            if self._connection is not None and await self._is_healthy(self._connection):
                return self._connection
            if self.retry_s > 0:
                raise RequestRefused(
                    f"the MCP server {self.name} does not start; the next try is in {self.retry_s:.0f} s"
                )
            try:
                return await self._start()
            except RequestRefused:
                self._failures = min(self._failures + 1, len(_WAITS_S) - 1)
                self._refused_until = time.monotonic() + _WAITS_S[self._failures]
                raise

    async def _is_healthy(self, connection: ServerConnection) -> bool:
        """Return whether a server still answers. Asked before a message is sent: a server that has ended unnoticed can
        then be started again, and the message goes to it once."""
        if time.monotonic() - self._heard_at < HEALTHY_S:
            return True
        try:
            async with asyncio.timeout(_PING_S):
                await connection.session.send_ping()
        except MCPError as error:
            if _is_gone(connection, error):
                await self._end()
                return False
        except TimeoutError:
            log.info("the MCP server %s does not answer a ping", self.name)
        self._heard_at = time.monotonic()
        return True

    async def _start(self) -> ServerConnection:
        self._ending = asyncio.Event()
        ready: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready), name=f"MCP server {self.name}")
        try:
            async with asyncio.timeout(START_S):
                self._connection = await asyncio.shield(ready)
        except TimeoutError:
            await self._end()
            self.why = f"it did not start within {START_S:.0f} s"
            raise RequestRefused(f"the MCP server {self.name} did not start within {START_S:.0f} s") from None
        except BaseException:
            await self._end()
            raise
        self._failures, self.why = 0, ""
        self._heard_at = time.monotonic()
        return self._connection

    async def _run(self, ready: asyncio.Future[ServerConnection]) -> None:
        """Open the connection, keep it and close it, all in this task: the package requires that."""
        refusals = Refusals()
        try:
            async with connected(self.name, self._config, self._client, refusals) as connection:
                ready.set_result(connection)
                await self._ending.wait()
        except Exception as error:
            self.why = reason_of(error)  # stays here: an address in it may hold a token
            log.warning("the MCP server %s has failed", self.name, exc_info=error)
            told = f"the MCP server {self.name} cannot be reached"
            if refusals.wants_login:
                told = f"the MCP server {self.name} {WANTS_LOGIN}: `ccb mcp login {self.name}` on the laptop"
                self.why = f"it wants a login: ccb mcp login {self.name}"
            if not ready.done():
                ready.set_exception(RequestRefused(told))
        finally:
            self._connection = None
            ready.cancel()

    async def _end(self) -> None:
        task, self._task = self._task, None
        self._connection = None
        if task is not None:
            self._ending.set()
            done, _ = await asyncio.wait({task}, timeout=START_S)
            if not done:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def _reporter(progress: Progress | None) -> Any:
    """Return a callback for the package that hands on progress, not too often."""
    if progress is None:
        return None
    reported_at = -_PROGRESS_S

    async def report(done: float, total: float | None, message: str | None) -> None:
        nonlocal reported_at
        now = time.monotonic()
        if now - reported_at >= _PROGRESS_S:
            reported_at = now
            progress({"progress": done, "total": total, "message": message})

    return report


def _is_gone(connection: ServerConnection, error: MCPError) -> bool:
    """Return whether the connection, or the session on an HTTP server, has ended."""
    return error.error.code == types.CONNECTION_CLOSED or connection.refusals.forgot_session


def reason_of(error: BaseException) -> str:
    """Return the first cause in a group of errors, as one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return one_line(str(error) or type(error).__name__)[:300]
