"""Run one MCP server of this laptop, and pass the requests of the worker on to it."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from typing import TextIO

import httpx2
import mcp_types as types
from mcp.client.extension import NotificationBinding
from mcp.client.session import ClientRequestContext, ClientSession, ElicitationFnT, IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

import ccb
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.control_protocol import RequestRefused
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.mcp_messages import SAY_LIMIT_S, WANTS_LOGIN, Elicitation, too_long
from ccb.tunnel.wire.outside_messages import PUSHED, pushed_text

from .mcp_config import HttpServer, ServerConfig
from .server_stdio import program_streams

log = logging.getLogger(__name__)

CONNECT_S = 30.0
_FORWARDED = tuple(f"notifications/{each}/list_changed" for each in ("tools", "prompts", "resources"))


@dataclass(frozen=True)
class ClientSide:
    """What a server may want of ccb. `stderr` gets what its program prints, `said` the messages that it sends of its
    own accord. `ask` puts a form to the person, and `auth` returns the login at an HTTP server. `pushed` gets the
    messages of a channel."""

    stderr: TextIO
    said: Callable[[str, Json], Awaitable[None]] | None = None
    ask: Callable[[Elicitation], Awaitable[Json]] | None = None
    auth: Callable[[str, HttpServer], Awaitable[httpx2.Auth | None]] | None = None
    pushed: Callable[[str, str], Awaitable[None]] | None = None


class _Pushed(types.NotificationParams, extra="allow"):
    """A message of a channel, unread."""


class ServerConnection:
    """A connection. `hello`: the answer to `initialize`. It may want a login, or have forgotten its session."""

    def __init__(self, name: str, config: ServerConfig, client: ClientSide) -> None:
        self.hello: Json = {}
        self.wants_login = self.forgot_session = False
        self._name = name
        self._config = config
        self._client = client
        self._forms = 0  # before the person
        self._dispatcher: JSONRPCDispatcher | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Connect, and agree on the protocol. The task that enters must leave."""
        config, client = self._config, self._client
        async with AsyncExitStack() as stack:
            if isinstance(config, HttpServer):
                auth = await client.auth(self._name, config) if client.auth is not None else None
                timeout, hooks = httpx2.Timeout(None, connect=CONNECT_S), {"response": [self._see]}
                made = httpx2.AsyncClient(headers=config.headers, timeout=timeout, auth=auth, event_hooks=hooks)
                streams = streamable_http_client(config.url, http_client=await stack.enter_async_context(made))
            else:
                streams = program_streams(config, client.stderr)
            asked: ElicitationFnT | None = self._asked if client.ask is not None else None
            info = types.Implementation(name="ccb", version=ccb.__version__)
            self._dispatcher = JSONRPCDispatcher(*await stack.enter_async_context(streams))
            channel = NotificationBinding(method=PUSHED, params_type=_Pushed, handler=self._pushed)
            session = ClientSession(
                message_handler=self._heard,
                client_info=info,
                elicitation_callback=asked,
                notification_bindings=[channel] if client.pushed is not None else None,
                dispatcher=self._dispatcher,
            )
            await stack.enter_async_context(session)
            self.hello = (await session.initialize()).model_dump(by_alias=True, mode="json", exclude_none=True)
            yield

    def asking(self) -> bool:
        return self._forms > 0

    async def ask(self, method: str, params: Json | None, report: ProgressFnT | None = None) -> Json:
        """Send a request, and return its result unchecked, as the server has sent it. Raise MCPError."""
        assert self._dispatcher is not None
        options: CallOptions = {"headers": {MCP_PROTOCOL_VERSION_HEADER: str(self.hello["protocolVersion"])}}
        if report is not None:
            options["on_progress"] = report
        return await self._dispatcher.send_raw_request(method, params, options)

    async def _see(self, response: httpx2.Response) -> None:
        request = response.request
        if response.status_code == 401:
            self.wants_login = True
        elif response.status_code == 404 and request.method == "POST" and "mcp-session-id" in request.headers:
            self.forgot_session = True

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            return
        body = message.model_dump(by_alias=True, mode="json", exclude_none=True)
        if body.get("method") in _FORWARDED and self._client.said is not None:
            await self._client.said(self._name, {"jsonrpc": "2.0", **body})

    async def _pushed(self, message: _Pushed) -> None:
        assert self._client.pushed is not None
        await self._client.pushed(self._name, pushed_text(message.model_dump()))

    async def _asked(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert self._client.ask is not None
        body = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        form = Elicitation(self._name, params.message, params.mode, body.get("requestedSchema"), body.get("url"))
        self._forms += 1
        try:
            answer = await self._client.ask(form)
        finally:
            self._forms -= 1
        if answer.get("action") == "accept":
            return types.ElicitResult(action="accept", content=answer.get("content") if params.mode == "form" else None)
        return types.ElicitResult(action="decline" if answer.get("action") == "decline" else "cancel")


Progress = Callable[[Json], None]  # gets {"progress", "total", "message"} of a call that runs
START_S = 30.0  # for a server to start and to agree on the protocol
HEALTHY_S = 30.0  # after its last answer, in which a server is taken to be alive; later it is asked first
CLOSE_S = 1.0  # for an HTTP server to hear of the end; a program gets its own time from its keeper
_PING_S = 10.0
_LOOK_S = 1.0  # between two looks whether the person is being asked
_PROGRESS_S = 0.1  # at the least between two reports of a call

MAX_REPLY = 8 * 1024 * 1024  # characters; a longer one becomes an error

METHODS = frozenset(
    {"tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read", "prompts/list",
     "prompts/get", "ping"}
)  # fmt: skip
"""What the worker may ask of a server, besides the handshake."""

_UNKNOWN = "Whether this call had any effect is not known: check that before you try again."
_LONGEST_WAIT_S = 30.0  # before the next start, after several that have failed


@dataclass(eq=False, repr=False)  # the configuration may hold tokens
class LaptopServer:
    """A server that starts with the first message, and again with the next one after its end. After a start that
    failed, messages are refused for up to 30 seconds; `why` is the reason, for the person only. `_patient`: a
    tool may ask somebody, so that its calls have no limit. Call `close`: after it, only `restart` starts the server."""

    name: str
    _config: ServerConfig
    _client: ClientSide
    _patient: Callable[[str], bool] = lambda tool: False
    why: str = ""
    _connection: ServerConnection | None = None
    _task: asyncio.Task[None] | None = None
    _ready: asyncio.Future[ServerConnection] | None = None
    _stopped: bool = False
    _calls: int = 0  # that it has not answered
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _ending: asyncio.Event = field(default_factory=asyncio.Event)
    _wait_s: float = 0.0
    _refused_until: float = 0.0
    _heard_at: float = 0.0

    async def reply(self, message: Json, progress: Progress | None = None) -> Json:
        """Return the server's reply. Cancelling this cancels the request on the server. Raise RequestRefused."""
        method, number = message.get("method"), message.get("id")
        if number is None:
            return {"jsonrpc": "2.0", "result": {}}  # the handshake is made here, so its notifications end here
        connection = await self._running()
        if method == "initialize":
            return {"jsonrpc": "2.0", "id": number, "result": connection.hello}
        if method not in METHODS:
            raise RequestRefused(f"ccb does not pass {one_line(str(method))[:60]} on to MCP servers")
        params = message.get("params")
        try:
            given = params if isinstance(params, dict) else None
            result = await self._asked(connection, str(method), given, progress)
        except MCPError as error:
            if not connection.forgot_session and error.error.code != types.CONNECTION_CLOSED:
                return {"jsonrpc": "2.0", "id": number, "error": {"code": error.error.code, "message": str(error)}}
            await self._end()
            unknown = f"{_UNKNOWN} " if method == "tools/call" else ""
            raise RequestRefused(
                f"the MCP server {self.name} has ended before it answered. {unknown}The next call starts it again."
            ) from None
        self._heard_at = time.monotonic()
        try:
            size = len(json.dumps(result, ensure_ascii=False, allow_nan=False))
        except (ValueError, RecursionError):
            raise RequestRefused(f"the reply of the MCP server {self.name} is not JSON that can be passed on") from None
        if size > MAX_REPLY:
            raise RequestRefused(f"the reply of the MCP server {self.name} is longer than {MAX_REPLY >> 20} MiB")
        return {"jsonrpc": "2.0", "id": number, "result": result}

    async def _asked(self, far: ServerConnection, method: str, params: Json | None, show: Progress | None) -> Json:
        """Send a request once. The limit of a call begins again with each sign of life, and when a person is asked."""
        limited = method == "tools/call" and not self._patient(str((params or {}).get("name")))
        limit = self._config.call_s if limited else math.inf  # the worker limits the others
        heard_at, shown_at = time.monotonic(), 0.0

        async def heard(progress: float, total: float | None, message: str | None) -> None:
            nonlocal heard_at, shown_at
            heard_at = time.monotonic()
            if show is not None and heard_at - shown_at >= _PROGRESS_S:
                shown_at = heard_at
                show({"progress": progress, "total": total, "message": message})

        asking = asyncio.ensure_future(far.ask(method, params, heard))
        self._calls += 1
        try:
            while not asking.done():
                left = heard_at + limit - time.monotonic()
                if left <= 0:
                    raise RequestRefused(f"the MCP server {self.name} gives {too_long(limit)}. {_UNKNOWN}")
                await asyncio.wait({asking}, timeout=min(left, _LOOK_S))
                if far.asking():
                    heard_at = time.monotonic()
                elif show is not None and limited and not shown_at and time.monotonic() > heard_at + SAY_LIMIT_S:
                    shown_at = heard_at
                    show({"message": f"no answer yet, limit {limit:g} s"})
            return asking.result()
        finally:
            self._calls -= 1
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})

    async def restart(self) -> None:
        await self.close()
        self._stopped, self._wait_s, self._refused_until = False, 0.0, 0.0
        await self._running()

    async def close(self) -> None:
        self._stopped = True
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(RequestRefused(f"the MCP server {self.name} is being stopped"))
        async with self._starting:
            await self._end()

    async def _running(self) -> ServerConnection:
        async with self._starting:
            if self._stopped:
                raise RequestRefused(f"the MCP server {self.name} is being stopped")
            if self._connection is not None and await self._is_healthy(self._connection):
                return self._connection
            if (left := self._refused_until - time.monotonic()) > 0:
                again = f"the next try is in {left:.0f} s"
                raise RequestRefused(f"the MCP server {self.name} does not start; {again}")
            try:
                return await self._start()
            except RequestRefused:
                self._wait_s = min(max(1.0, 2 * self._wait_s), _LONGEST_WAIT_S)
                self._refused_until = time.monotonic() + self._wait_s
                raise

    async def _is_healthy(self, connection: ServerConnection) -> bool:
        """Return whether a server still answers. One that has ended unnoticed can be started before a message goes."""
        if time.monotonic() - self._heard_at < HEALTHY_S:
            return True
        try:
            async with asyncio.timeout(_PING_S):
                await connection.ask("ping", None)
        except MCPError as error:
            if error.error.code == types.CONNECTION_CLOSED or connection.forgot_session:
                await self._end()
                return False
        except TimeoutError:
            log.info("the MCP server %s does not answer a ping", self.name)
            if not self._calls:
                await self._end()
                return False
        self._heard_at = time.monotonic()
        return True

    async def _start(self) -> ServerConnection:
        self._ending = asyncio.Event()
        ready: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()
        self._ready = ready
        self._task = asyncio.create_task(self._run(ready), name=f"MCP server {self.name}")
        try:
            async with asyncio.timeout(START_S):
                self._connection = await asyncio.shield(ready)
        except TimeoutError:
            self.why = f"it did not start within {START_S:.0f} s"
            raise RequestRefused(f"the MCP server {self.name} did not start within {START_S:.0f} s") from None
        finally:
            if self._connection is None:
                await self._end()
        self._wait_s, self.why, self._heard_at = 0.0, "", time.monotonic()
        return self._connection

    async def _run(self, ready: asyncio.Future[ServerConnection]) -> None:
        """Open the connection, keep it and close it, all in this task: the package requires that."""
        connection = ServerConnection(self.name, self._config, self._client)
        try:
            async with connection.opened():
                if not ready.done():
                    ready.set_result(connection)
                    await self._ending.wait()
        except Exception as error:
            self.why = reason_of(error)  # stays here: an address in it may hold a token
            log.warning("the MCP server %s has failed", self.name, exc_info=error)
            told = f"the MCP server {self.name} cannot be reached"
            if connection.wants_login:
                told = f"the MCP server {self.name} {WANTS_LOGIN}: `ccb mcp login {self.name}` on the laptop"
                self.why = f"it wants a login: ccb mcp login {self.name}"
            if not ready.done():
                ready.set_exception(RequestRefused(told))
        finally:
            self._connection = None
            ready.cancel()

    async def _end(self) -> None:
        """End the connection. What a server that is still starting does is broken off."""
        task, self._task = self._task, None
        was_up, self._connection = self._connection is not None, None
        if task is None:
            return
        self._ending.set()
        if not was_up:
            task.cancel()
        while not task.done():  # closing may wait for the server in its turn
            await asyncio.wait({task}, timeout=CLOSE_S)
            task.cancel()


def reason_of(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return one_line(str(error) or type(error).__name__)[:300]
