"""The front for programs that speak HTTP: a unix socket that only this user can open. Each request needs the nonce too.

The nonce comes in the header `x-auth-nonce`, or in the path as `/n/<nonce>/v1/…` for clients that cannot set headers.
"""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Self

from ...errors import ConfigError
from ...secret import Secret
from ..core import AuthProxy
from ..guards.nonce import NonceGuard
from ..policy import RequestHead
from .answer import Answering, HttpAnswer
from .connection import HttpConnection
from .request import HttpRequest

NONCE_HEADER = "x-auth-nonce"
SOCKET_NAME = "model.sock"
_MAX_SOCKET_PATH = 100  # sun_path is 104 bytes on macOS, 108 on Linux
_MAX_CONNECTIONS = 256
_LOOKS_EVERY_S = 5.0  # for connections that wait too long


class HttpFront:
    """Serves HTTP on a socket in `directory` while its context is open. A call ends when its client disconnects. After
    ten requests with a wrong nonce there is no socket any more.

    The directory is made with mode 0700 if it is missing. Entering raises ConfigError if others can reach it.
    """

    def __init__(self, proxy: AuthProxy, nonce: Secret, directory: Path) -> None:
        self._proxy = proxy
        self._nonce = NonceGuard(nonce)
        self._directory = directory
        self._server: asyncio.Server | None = None
        self._connections: set[HttpConnection] = set()
        self._looking: asyncio.TimerHandle | None = None

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
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connection, str(self.socket_path))
        self.socket_path.chmod(0o600)
        self._close_idle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop_listening()
        if self._looking is not None:
            self._looking.cancel()
        for each in list(self._connections):
            each.break_off()

    def _connection(self) -> HttpConnection:
        return HttpConnection(self._answering, self._connections, _MAX_CONNECTIONS)

    def _answering(self, request: HttpRequest, answer: HttpAnswer) -> Answering:
        call = _Call(self._proxy, self._nonce, request, answer)
        if self._nonce.closed:
            answer.closes = True
            self._stop_listening()
        return call

    def _close_idle(self) -> None:
        """Close the connections that wait too long, now and every few seconds: one timer serves all of them."""
        loop = asyncio.get_running_loop()
        for each in list(self._connections):
            each.close_idle(loop.time())
        self._looking = loop.call_later(_LOOKS_EVERY_S, self._close_idle)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
        self.socket_path.unlink(missing_ok=True)


class _Call:
    """Writes the answer to one request as it comes. See `answer.Answering`."""

    def __init__(self, proxy: AuthProxy, nonce: NonceGuard, request: HttpRequest, answer: HttpAnswer) -> None:
        self._answer = answer
        self._begun = self._ended = False
        given, path = _nonce_and_path(request)
        head = RequestHead("", given, request.method, path, request.headers, request.size)
        self._call = proxy.follow(head, request.body(), nonce=nonce, news=self.go_on)

    def go_on(self) -> None:
        call, answer = self._call, self._answer
        if self._ended:  # the client has left, or reads on before its connection knows of the end
            return
        if not self._begun:
            head = call.head
            if head is None:
                return
            self._begun = True
            answer.begin(head.status, head.headers)
        while not answer.paused and (piece := call.take()) is not None:
            answer.write(piece)
        if call.over:
            self._ended = True
            call.leave()
            if call.whole:
                answer.finish()
            else:  # an incomplete body must not look complete
                answer.break_off()

    def give_up(self) -> None:
        self._ended = True
        self._call.leave()


def _nonce_and_path(request: HttpRequest) -> tuple[str, str]:
    path = request.path
    if path.startswith("/n/"):
        nonce, slash, rest = path[3:].partition("/")
        return nonce, slash + rest
    return request.headers.get(NONCE_HEADER, ""), path


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
