"""One connection to an MCP server: a program on this machine, or Streamable HTTP. Made with the package `mcp`."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TextIO

import anyio
import httpx2
import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession, ElicitationFnT, IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

import ccb
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.mcp import TOOL_USE_ID, Elicitation
from ccb.tunnel.wire.mcp_lines import answered_number

from .config import HttpServer, ServerConfig
from .stdio import program_streams

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream

Json = dict[str, Any]

log = logging.getLogger(__name__)

CONNECT_S = 30.0
_FIRST_NUMBER = 1_000_000  # the package counts its own requests from 1
_DECLINED: Json = {"action": "decline"}
_FORWARDED = ("notifications/tools/list_changed", "notifications/prompts/list_changed",
              "notifications/resources/list_changed")  # fmt: skip


async def _nothing(_: str, __: Json) -> None:
    """Pass over what a server says of its own accord."""


async def _declined(_: Elicitation) -> Json:
    return _DECLINED


@dataclass(frozen=True)
class ClientSide:
    """What a server may want of ccb. `stderr` gets what its program prints, `said` its name and the messages that it
    sends of its own accord. `ask` puts a form to the person and returns the public answer, {"action", "content"}.
    `auth` returns what proves to an HTTP server who asks."""

    stderr: TextIO
    said: Callable[[str, Json], Awaitable[None]] = _nothing
    ask: Callable[[Elicitation], Awaitable[Json]] = _declined
    auth: Callable[[str, HttpServer], Awaitable[httpx2.Auth | None]] | None = None


class Refusals:
    """What an HTTP server has refused: a request because nobody is logged in, or one of a session that it does not know
    (any more). It has not carried that one out."""

    def __init__(self) -> None:
        self.wants_login = False
        self.forgot_session = False
        self._refused: set[str] = set()

    async def see(self, response: httpx2.Response) -> None:
        """Note why a server has refused a request, if this response is a refusal."""
        request = response.request
        if response.status_code == 401:
            self.wants_login = True
        elif response.status_code == 404 and "mcp-session-id" in request.headers:
            self.forgot_session = True
            if request.method == "POST":
                self._refused.add(_key(json.loads(request.content)))

    def refused(self, asked: Json) -> bool:
        """Return whether exactly this request came to a server that does not know the session. Where only others were
        refused, this one may have been carried out."""
        return _key(asked) in self._refused


def _key(message: Json) -> str:
    """Return what tells a request from others, without what the package adds to it."""
    params = message.get("params") or {}
    own = {name: each for name, each in params.items() if name != "_meta"}
    return json.dumps([message.get("method"), own, (params.get("_meta") or {}).get(TOOL_USE_ID)], sort_keys=True)


class ServerConnection:
    """A server that has agreed on the protocol. `hello` is its answer to `initialize`, `asking` says whether it waits
    for the person."""

    def __init__(
        self,
        dispatcher: JSONRPCDispatcher,
        pending: set[object],
        hello: types.InitializeResult,
        refusals: Refusals,
        asking: Callable[[], bool],
    ) -> None:
        self.asking = asking
        self.hello: Json = hello.model_dump(by_alias=True, mode="json", exclude_none=True)
        self.refusals = refusals
        self._dispatcher = dispatcher
        self._pending = pending
        self._numbers = itertools.count(_FIRST_NUMBER)
        self._headers = {MCP_PROTOCOL_VERSION_HEADER: str(hello.protocol_version)}

    async def ask(self, method: str, params: Json | None, report: ProgressFnT | None = None) -> Json:
        """Send a request, and return its result unchecked, as the server has sent it. Raise MCPError."""
        number = next(self._numbers)
        options: CallOptions = {"request_id": number, "headers": dict(self._headers)}
        if report is not None:
            options["on_progress"] = report
        self._pending.add(number)
        try:
            return await self._dispatcher.send_raw_request(method, params, options)
        finally:
            self._pending.discard(number)


class _Answers:
    """What a server sends, where an answer has the id of its request even if the server spells it in another way."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], pending: set[object]) -> None:
        self._stream = stream
        self._pending = pending
        self._greeted = False

    async def receive(self) -> SessionMessage | Exception:
        item = await self._stream.receive()
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            number = answered_number({"id": message.id, "result": {}}, self._pending)
            if isinstance(number, int):
                message.id = number
            if not self._greeted and isinstance(message, types.JSONRPCResponse):
                self._greeted, message.result = True, _greeting(message.result)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _greeting(given: Json) -> Json:
    """Return the answer of a server to `initialize` in a form that the package takes. Only names in it count."""
    version, info, offers = given.get("protocolVersion"), given.get("serverInfo"), given.get("capabilities")
    info, offers = info if isinstance(info, dict) else {}, offers if isinstance(offers, dict) else {}
    named = {name: each for name, each in info.items() if isinstance(each, str)}
    named |= {name: str(info.get(name) or "unknown") for name in ("name", "version")}
    instructions = given.get("instructions")
    return {
        "protocolVersion": version if version in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION,
        "capabilities": {name: {} for name, each in offers.items() if each not in (None, False)},
        "serverInfo": named,
        **({"instructions": instructions} if isinstance(instructions, str) else {}),
    }


@asynccontextmanager
async def connected(
    name: str, config: ServerConfig, client: ClientSide, refusals: Refusals
) -> AsyncIterator[ServerConnection]:
    """Connect to a server, and agree with it on the protocol. The task that enters must leave."""
    forms = 0  # before the person

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            return
        body = message.model_dump(by_alias=True, mode="json", exclude_none=True)
        if body.get("method") in _FORWARDED:
            await client.said(name, {"jsonrpc": "2.0", **body})

    async def asked(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        nonlocal forms
        del context
        body = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        schema, url = body.get("requestedSchema"), body.get("url")
        forms += 1
        try:
            answer = await client.ask(Elicitation(name, params.message, params.mode, schema, url))
        finally:
            forms -= 1
        action, content = answer.get("action"), answer.get("content")
        if action == "accept":
            return types.ElicitResult(action="accept", content=content if params.mode == "form" else None)
        return types.ElicitResult(action="decline" if action == "decline" else "cancel")

    def asking_person() -> bool:
        return forms > 0

    async with AsyncExitStack() as stack:
        if isinstance(config, HttpServer):
            auth = await client.auth(name, config) if client.auth is not None else None
            made = httpx2.AsyncClient(
                headers=config.headers,
                timeout=httpx2.Timeout(None, connect=CONNECT_S),
                auth=auth,
                event_hooks={"response": [refusals.see]},
            )
            streams = streamable_http_client(config.url, http_client=await stack.enter_async_context(made))
        else:
            streams = program_streams(config, client.stderr, asking_person)
        read, write = await stack.enter_async_context(streams)
        pending: set[object] = set()
        dispatcher = JSONRPCDispatcher(_Answers(read, pending), write)
        info = types.Implementation(name="ccb", version=ccb.__version__)
        asking: ElicitationFnT | None = asked if client.ask is not _declined else None
        session = ClientSession(
            message_handler=heard, client_info=info, elicitation_callback=asking, dispatcher=dispatcher
        )
        await stack.enter_async_context(session)
        yield ServerConnection(dispatcher, pending, await session.initialize(), refusals, asking_person)
