"""One connection to an MCP server: a program on this machine, or Streamable HTTP. Made with the package `mcp`."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TextIO

import httpx2
import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession, ElicitationFnT, IncomingMessage
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

import ccb
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.mcp import TOOL_USE_ID, Elicitation

from .config import HttpServer, ServerConfig

Json = dict[str, Any]

log = logging.getLogger(__name__)

CONNECT_S = 30.0
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


@dataclass(frozen=True)
class ServerConnection:
    """A server that has agreed on the protocol. `hello` is its answer to `initialize`."""

    session: ClientSession
    hello: Json
    refusals: Refusals


@asynccontextmanager
async def connected(
    name: str, config: ServerConfig, client: ClientSide, refusals: Refusals
) -> AsyncIterator[ServerConnection]:
    """Connect to a server, and agree with it on the protocol. The task that enters must leave."""

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            return
        body = message.model_dump(by_alias=True, mode="json", exclude_none=True)
        if body.get("method") in _FORWARDED:
            await client.said(name, {"jsonrpc": "2.0", **body})

    async def asked(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        body = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        schema, url = body.get("requestedSchema"), body.get("url")
        answer = await client.ask(Elicitation(name, params.message, params.mode, schema, url))
        action, content = answer.get("action"), answer.get("content")
        if action == "accept":
            return types.ElicitResult(action="accept", content=content if params.mode == "form" else None)
        return types.ElicitResult(action="decline" if action == "decline" else "cancel")

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
            given = StdioServerParameters(command=config.command, args=config.args, env=config.env)
            streams = stdio_client(given, client.stderr)
        read, write = await stack.enter_async_context(streams)
        info = types.Implementation(name="ccb", version=ccb.__version__)
        asking: ElicitationFnT | None = asked if client.ask is not _declined else None
        session = ClientSession(read, write, message_handler=heard, client_info=info, elicitation_callback=asking)
        await stack.enter_async_context(session)
        hello = await session.initialize()
        yield ServerConnection(session, hello.model_dump(by_alias=True, mode="json", exclude_none=True), refusals)
