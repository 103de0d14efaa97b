"""The front for agents that speak HTTP. Their connections come over channels of the link, so it listens nowhere.

A request is one of a closed list, behind the token of the relay on the host. Each becomes a call of the auth proxy. The
errors of the laptop have the shape of the API in which was asked."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from ..heavy_imports import load_aiohttp
from ..providers.api_errors import Refusal
from ..providers.foreign_api import GEMINI, ForeignCall
from ..providers.json_fields import dump
from ..providers.provider import ROUTES, ProviderError
from ..secret import Secret
from ..wire.channels import BLOCK
from .auth_proxy import AuthProxy
from .foreign_requests import foreign_call
from .policy import NonceGuard, RequestHead
from .proxied_call import CallReader, Superseded

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)

_CLOSE_S = 0.1
_AHEAD = 64 * 1024  # bytes of an answer ahead of its agent: a lost connection is never resumed
_IDLE_S = 75.0  # after which a connection without a call is closed


class HttpFront:
    """Serves the connections of a relay. `warn` tells the person of requests without its token. A context: on leaving,
    the connections are closed and their calls aborted."""

    def __init__(self, proxy: AuthProxy, warn: Callable[[str], None] = log.warning) -> None:
        self._proxy = proxy
        self._guard = NonceGuard(Secret(""))
        self._warn = warn
        self._warned = False
        self._server: web.Server | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.shutdown(_CLOSE_S)

    def expect(self, token: Secret) -> None:
        """Take requests with this token in front of their paths."""
        self._guard = NonceGuard(token)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the client's end of a new connection."""
        if self._server is None:
            await asyncio.to_thread(load_aiohttp)  # only now: most sessions have no such agent
        if self._server is None:
            from aiohttp import web

            self._server = web.Server(
                self._handle, handler_cancellation=True, access_log=None, keepalive_timeout=_IDLE_S
            )
        near, far = socket.socketpair()
        for end in (near, far):
            end.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(self._server, far)
        return await asyncio.open_connection(sock=near, limit=BLOCK)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        from aiohttp import web

        target, _, query = request.raw_path.partition("?")
        _, token, path = (*target.split("/", 2), "", "")[:3]
        path = f"/{path}"
        if not (target.startswith("/") and self._guard.matches(token)):
            log.warning("a request without the token of the model relay")
            if not self._warned:
                self._warned = True
                self._warn("A request without the right token came to the model relay of the host, not by your agent.")
            return web.Response(status=404)
        if (request.method, path) == ("HEAD", "/"):  # Claude Code looks whether there is somebody
            return web.Response()
        headers = {name.lower(): value for name, value in request.headers.items()}
        messages = (request.method, path) in ROUTES and (request.method == "POST" or "anthropic-version" in headers)
        call = None if messages else foreign_call(request.method, path, query)
        if call is None and not messages:
            return web.Response(status=404, text="the auth proxy does not serve this method, path or query")
        size = request.content_length
        if request.method == "POST" and (size is None or "content-encoding" in headers):
            return web.Response(status=411, text="the auth proxy takes plain bodies of announced length only")
        own_path = f"{path}?{query}" if messages and query else path
        head = RequestHead(f"http-{uuid4().hex}", token, request.method, own_path, headers, size or 0, foreign=call)
        try:
            async with self._proxy.call(head, request.content.iter_any(), nonce=self._guard) as response:
                return await self._answer(request, call, response)
        finally:
            self._proxy.discard(head.id)  # nobody can ask for it again

    async def _answer(
        self, request: web.BaseRequest, call: ForeignCall | None, response: CallReader
    ) -> web.StreamResponse:
        from aiohttp import web

        headers, refusal = dict(response.headers), response.call.refusal
        response.call.limit(_AHEAD)
        if refusal is not None and call is not None:
            headers.pop("content-length", None)
            return web.Response(status=response.status, headers=headers, body=_error_body(call, refusal))
        answer = web.StreamResponse(status=response.status, headers=headers)
        await answer.prepare(request)
        try:
            while piece := await response.read():
                await answer.write(piece)
                response.ack(response.offset)
        except (Refusal, ProviderError, Superseded) as error:
            log.info("an answer breaks off: %s", error)
            if request.transport is not None:  # an end of the body would make it look whole
                request.transport.abort()
        return answer


def _error_body(call: ForeignCall, refusal: Refusal) -> bytes:
    """Return an error of the laptop in the shape of an API."""
    own = {"code": refusal.status, "status": refusal.kind}
    error = own if call.api is GEMINI else {"code": refusal.kind, "type": refusal.kind, "param": None}
    return dump({"error": {"message": refusal.message, **error}}).encode("utf-8", "replace")
