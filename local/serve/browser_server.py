"""The web server of `ccb serve`: one page, and one socket through which a browser sees the program and types.

Whoever may use it may do all that ccb may. So a browser needs a key, a cookie that it gets once for the token of a
link that only the person has seen. Every request must name this server as its host and, where a page sent it, as its
origin: pages of others, and names of others that lead here, get nothing.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import json
import secrets
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

from aiohttp import WSMessage, WSMsgType, web
from aiohttp.typedefs import Handler
from aiohttp.web_protocol import RequestHandler
from yarl import URL

from ccb.tunnel.errors import UsageError

from .pty_process import PtyProcess, Window

MAX_CONNECTIONS = 64  # of those that come at the same time, asyncio takes 100 before the first one counts
_NO_WINDOW_S, _HANDSHAKE_S = 30.0, 5.0  # of a connection; a page loads in seconds
_MAX_MESSAGE = 1 << 20  # bytes; a text that is pasted is one message
_BACKLOG = 1 << 20  # bytes that a window may be behind
_MAX_BODY = 1 << 10
_HEARTBEAT_S = 15.0
_LEAST, _MOST = 2, 500  # columns and rows of a screen
_PAGE = Path(__file__).with_name("page")


def page_files() -> dict[str, tuple[str, bytes]]:
    """Return type and compressed content of each file of the page, by path. Those of textual-serve hold xterm.js."""
    try:
        package = files("textual_serve") / "static"
    except ModuleNotFoundError:
        raise UsageError("ccb serve needs the package textual-serve", do="pip install 'ccb[serve]'") from None
    found = {
        "/": ("text/html", _PAGE / "page.html"),
        "/page.js": ("text/javascript", _PAGE / "page.js"),
        "/page.css": ("text/css", _PAGE / "page.css"),
        "/textual.js": ("text/javascript", package / "js" / "textual.js"),
        "/xterm.css": ("text/css", package / "css" / "xterm.css"),
        "/mono.ttf": ("font/ttf", package / "fonts" / "RobotoMono-VariableFont_wght.ttf"),
    }
    return {path: (kind, gzip.compress(file.read_bytes())) for path, (kind, file) in found.items()}


class BrowserServer:
    """Serves `program` to one window of a browser at a time, which calls it `address`; a newer one takes it over."""

    def __init__(
        self, program: PtyProcess, address: URL, tls: ssl.SSLContext | None, pages: Mapping[str, tuple[str, bytes]]
    ) -> None:
        self._program = program
        self._origin, self._netloc = str(address.origin()), address.host_port_subcomponent
        self._tls = tls
        self._pages = pages
        self._cookie = f"{'__Host-' if tls else ''}ccb-{address.port}"  # ports do not divide cookies
        self._token = ""
        self._key = secrets.token_urlsafe(32)
        self._without_window: set[RequestHandler] = set()

    def new_link(self) -> str:
        """Return a link that lets one browser in. The one before counts no more. What is behind # stays in the browser:
        it is in no request, so in no log, and a program that looks at links in advance does not use it up."""
        self._token = secrets.token_urlsafe(32)
        return f"{self._origin}/#{self._token}"

    @asynccontextmanager
    async def listening(self, listener: socket.socket) -> AsyncGenerator[None]:
        app = web.Application(middlewares=[self._guard], client_max_size=_MAX_BODY)
        app.on_response_prepare.append(self._add_headers)
        app.add_routes([web.get(path, self._page) for path in self._pages])
        app.add_routes([web.post("/key", self._give_key), web.get("/socket", self._socket)])
        runner = web.AppRunner(app, handle_signals=False, access_log=None, keepalive_timeout=15, shutdown_timeout=1)
        await runner.setup()
        assert runner.server is not None
        server, loop = runner.server, asyncio.get_running_loop()

        def accept() -> asyncio.BaseProtocol:
            if len(server.connections) >= MAX_CONNECTIONS:
                return _Refused()
            connection = server()
            self._without_window.add(connection)
            loop.call_later(_NO_WINDOW_S, self._end_without_window, connection)
            return connection

        handshake_s = _HANDSHAKE_S if self._tls else None
        listening = await loop.create_server(accept, sock=listener, ssl=self._tls, ssl_handshake_timeout=handshake_s)
        try:
            yield
        finally:
            listening.close()
            await runner.cleanup()

    def _end_without_window(self, connection: RequestHandler) -> None:
        if connection in self._without_window and connection.transport is not None:
            connection.transport.abort()
        self._without_window.discard(connection)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts, origins = request.headers.getall("Host", []), request.headers.getall("Origin", [])
        if not origins and request.path not in ("/key", "/socket"):  # pages of others may link to the page
            origins = [self._origin]
        if (hosts, origins) != ([self._netloc], [self._origin]):
            raise web.HTTPForbidden(text="This is not the address of this server.")
        return await handler(request)

    async def _add_headers(self, _request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(
            {
                "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
                f"font-src 'self'; img-src data:; connect-src 'self' ws{self._origin.removeprefix('http')}; "
                "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                "Cross-Origin-Opener-Policy": "same-origin",
                "Cross-Origin-Resource-Policy": "same-origin",
                "Referrer-Policy": "no-referrer",
                "X-Content-Type-Options": "nosniff",
                "Cache-Control": "no-store",
            }
        )
        response.headers.popall("Server", None)

    async def _page(self, request: web.Request) -> web.Response:
        kind, body = self._pages[request.path]
        return web.Response(body=body, content_type=kind, charset="utf-8", headers={"Content-Encoding": "gzip"})

    async def _give_key(self, request: web.Request) -> web.Response:
        """Take the token of a link, or "" from a browser that only asks whether its key counts."""
        given, response = await request.text(), web.Response(status=204)
        if self._token and _same(given, self._token):
            self._token = ""
            response.set_cookie(
                self._cookie, self._key, path="/", httponly=True, samesite="Strict", secure=self._tls is not None
            )
        elif given or not self._has_key(request):
            raise web.HTTPForbidden(text="This link has been used, or it is not the newest one.")
        return response

    def _has_key(self, request: web.Request) -> bool:
        return _same(request.cookies.get(self._cookie, ""), self._key)

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        if not self._has_key(request):
            raise web.HTTPForbidden(text="This browser has no key.")
        self._without_window.discard(request.protocol)
        ws = web.WebSocketResponse(heartbeat=_HEARTBEAT_S, max_msg_size=_MAX_MESSAGE, writer_limit=_BACKLOG)
        await ws.prepare(request)
        assert request.transport is not None
        window, program, sees = Window(ws, request.transport), self._program, False
        try:
            async for message in ws:
                match _content(message):
                    case ["resize", {"width": int(columns), "height": int(rows)}]:
                        size = [min(max(each, _LEAST), _MOST) for each in (columns, rows)]
                        if sees:
                            program.resize(*size)
                        else:  # what a page says first
                            sees = True
                            await program.view(window, *size)
                    case ["stdin", str(text)] if sees:
                        program.write(text.encode(errors="ignore"))
        finally:
            program.leave(window)
            window.transport.abort()
        return ws


def _content(message: WSMessage) -> object:
    """Return what a message of the page holds: a list with its kind first. None if it is no such thing."""
    try:
        return json.loads(message.data) if message.type is WSMsgType.TEXT else None
    except (ValueError, RecursionError):
        return None


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), secret.encode())


class _Refused(asyncio.Protocol):
    """The end of a connection that comes when there are too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
