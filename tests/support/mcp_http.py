"""A real MCP server over Streamable HTTP, made with the official package, and a login in front of it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import uvicorn
from aiohttp import web
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from tests.support.model.model_script import Json
from tests.support.network.http_server import serving

Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class Colour(BaseModel):
    colour: str
    count: int = 1


class HttpMcp:
    """The tools of one server, and what happened to their calls. `headers` are those of the last request."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.cancelled = asyncio.Event()
        self.began = asyncio.Event()
        self.headers: dict[str, str] = {}
        self.server = MCPServer("far")

        @self.server.tool()
        async def greet(name: str) -> str:
            """Greet somebody."""
            self.calls.append(name)
            return f"hello {name}"

        @self.server.tool()
        async def decide(tool_name: str, input: Json, tool_use_id: str) -> str:
            """Answer in place of a person: greeting you is fine."""
            fine = (tool_name, input) == ("mcp__far__greet", {"name": "you"})
            return json.dumps({"behavior": "allow"} if fine else {"behavior": "deny", "message": "not fine"})

        @self.server.tool()
        async def wait(context: Context) -> str:
            """Wait until it is cancelled."""
            self.began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "never"

        @self.server.tool()
        async def work(context: Context) -> str:
            """Report progress."""
            await context.report_progress(1, 4, "first")
            return "worked"

        @self.server.tool()
        async def paint(context: Context) -> str:
            """Ask for a colour."""
            answer = await context.elicit("Which colour?", Colour)
            if answer.action == "accept":
                return f"{answer.data.count} {answer.data.colour}"
            return str(answer.action)

    @asynccontextmanager
    async def serving(self, port: int = 0, wrap: Callable[[Asgi], Asgi] = lambda app: app) -> AsyncIterator[str]:
        app: Asgi = self.server.streamable_http_app()

        async def heard(scope: Scope, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                self.headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            await app(scope, receive, send)

        listening = socket.create_server(("127.0.0.1", port))
        config = uvicorn.Config(wrap(heard), log_level="critical", timeout_graceful_shutdown=0)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve([listening]))
        try:
            async with asyncio.timeout(60):
                while not server.started:
                    await asyncio.sleep(0.005)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            server.should_exit = server.force_exit = True
            await asyncio.gather(task, return_exceptions=True)
            listening.close()


class Authority:
    """An authorisation server (RFC 6749, 7591, 7636, 8414), and the gate in front of an MCP server that it protects.
    `grants` are the grants for which it gave tokens."""

    def __init__(self) -> None:
        self.issuer = ""
        self.resource = ""
        self.tokens: set[str] = set()
        self.grants: list[str] = []
        self._codes: dict[str, str] = {}
        self._count = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        routes: dict[str, Callable[[web.Request], Awaitable[web.Response]]]
        routes = {"/register": self._register, "/authorize": self._authorize, "/token": self._token}
        routes["/.well-known/oauth-authorization-server"] = self._metadata

        async def answer(request: web.Request) -> web.StreamResponse:
            return await routes[request.path](request) if request.path in routes else web.Response(status=404)

        async with serving(answer) as self.issuer:
            yield

    def gate(self, app: Asgi) -> Asgi:

        async def gated(scope: Scope, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            self.resource = f"http://{headers['host']}"
            if scope["path"].startswith("/.well-known/oauth-protected-resource"):
                body = web.json_response({"resource": f"{self.resource}/mcp", "authorization_servers": [self.issuer]})
                assert isinstance(body.body, bytes)
                await _respond(send, 200, body.body, {"content-type": "application/json"})
            elif headers.get("authorization", "").removeprefix("Bearer ") in self.tokens:
                await app(scope, receive, send)
            else:
                where = f'Bearer resource_metadata="{self.resource}/.well-known/oauth-protected-resource/mcp"'
                await _respond(send, 401, b"", {"www-authenticate": where})

        return gated

    async def _metadata(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "registration_endpoint": f"{self.issuer}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def _register(self, request: web.Request) -> web.Response:
        return web.json_response({**await request.json(), "client_id": "client-1"}, status=201)

    async def _authorize(self, request: web.Request) -> web.Response:
        query = request.query
        assert (query["client_id"], query["code_challenge_method"]) == ("client-1", "S256")
        code = f"code-{len(self._codes)}"
        self._codes[code] = query["code_challenge"]
        back = urlencode({"code": code, "state": query["state"]})
        raise web.HTTPFound(f"{query['redirect_uri']}?{back}")

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.grants.append(str(form["grant_type"]))
        if form["grant_type"] == "authorization_code":
            digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
            if self._codes.pop(str(form["code"]), "") != base64.urlsafe_b64encode(digest).decode().rstrip("="):
                return web.json_response({"error": "invalid_grant"}, status=400)
        elif form["refresh_token"] != "refresh-me":
            return web.json_response({"error": "invalid_grant"}, status=400)
        self._count += 1
        token = f"token-{self._count}"
        self.tokens.add(token)
        given: Json = {"access_token": token, "token_type": "Bearer", "refresh_token": "refresh-me"}
        return web.json_response({**given, "expires_in": 3600})


async def _respond(send: Any, status: int, body: bytes, headers: dict[str, str]) -> None:
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
