"""The front for programs that speak HTTP: a unix socket that only this user can open. Each request needs the nonce too.

The nonce comes in the header `x-auth-nonce`, or in the path as `/n/<nonce>/v1/…` for clients that cannot set headers.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

from aiohttp import ClientError, web

from ..errors import ConfigError
from ..secret import Secret
from .core import AuthProxy, ProxiedResponse
from .guards.nonce import NonceGuard
from .policy import RequestHead
from .providers.provider import ProviderError
from .upload import BodyLost

NONCE_HEADER = "x-auth-nonce"
SOCKET_NAME = "model.sock"
_MAX_SOCKET_PATH = 100  # sun_path is 104 bytes on macOS, 108 on Linux


class HttpFront:
    """Serves HTTP on a socket in `directory` while its context is open. A call ends when its client disconnects.

    The directory is made with mode 0700 if it is missing. Entering raises ConfigError if others can reach it.
    """

    def __init__(self, proxy: AuthProxy, nonce: Secret, directory: Path) -> None:
        self._proxy = proxy
        self._nonce = NonceGuard(nonce)
        self._directory = directory
        self._runner: web.AppRunner | None = None

    @property
    def socket_path(self) -> Path:
        """The path of the socket."""
        return self._directory / SOCKET_NAME

    async def __aenter__(self) -> Self:
        _own_directory(self._directory)
        if len(os.fsencode(self.socket_path)) > _MAX_SOCKET_PATH:
            raise ConfigError(
                f"The path of the proxy socket is too long: {self.socket_path}", do="Set a shorter TMPDIR."
            )
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.5)
        try:
            await self._runner.setup()
            await web.UnixSite(self._runner, str(self.socket_path)).start()
            self.socket_path.chmod(0o600)
        except BaseException:
            await self._runner.cleanup()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self.socket_path.unlink(missing_ok=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        nonce, path = _nonce_and_path(request)
        head = RequestHead("", nonce, request.method, path, dict(request.headers), _announced_size(request))
        async with self._proxy.call(head, _body(request), nonce=self._nonce) as response:
            return await self._stream(request, response)

    async def _stream(self, request: web.Request, response: ProxiedResponse) -> web.StreamResponse:
        out = _Answer(status=response.status, headers=dict(response.headers))
        writer = await out.prepare(request)
        if writer is not None and not response.has_more:
            writer.send_headers()
        if request.method == "HEAD":
            return out
        try:
            async for chunk in response.body():
                await out.write(chunk)
        except ProviderError:
            # An incomplete body must not look complete, so the connection breaks off.
            if request.transport is not None:
                request.transport.abort()
            return out
        await out.write_eof()
        return out


class _Answer(web.StreamResponse):
    """Sends its head together with the first bytes of the body, if they are there."""

    _send_headers_immediately = False


def _nonce_and_path(request: web.Request) -> tuple[str, str]:
    path = request.raw_path
    if path.startswith("/n/"):
        nonce, slash, rest = path[3:].partition("/")
        return nonce, slash + rest
    return request.headers.get(NONCE_HEADER, ""), path


def _announced_size(request: web.Request) -> int | None:
    return request.content_length if request.can_read_body else 0


async def _body(request: web.Request) -> AsyncIterator[bytes]:
    try:
        async for chunk in request.content.iter_any():
            yield chunk
    except (ClientError, web.RequestPayloadError, ConnectionError, asyncio.IncompleteReadError) as error:
        raise BodyLost from error


def _own_directory(directory: Path) -> None:
    """Make `directory` with mode 0700. Raise ConfigError if it exists and is not ours or is open to others."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise ConfigError(
            f"The directory for the proxy socket cannot be made: {directory}", evidence=str(error)
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigError(
            f"Other users can reach the directory of the proxy socket: {directory}",
            do=f"Remove it, or: chmod 700 {directory}",
        )
