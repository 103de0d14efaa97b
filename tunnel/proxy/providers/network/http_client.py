"""HTTP to a provider: one pooled client that verifies TLS and uses the proxy of the environment.

What sends the requests is loaded while the worker starts, so that no session waits for it.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Self

from ....heap import keep_receive_buffers
from ....loading import collection_paused, load_aiohttp
from ..provider import ProviderRequest, ProviderResponse
from .endpoint import Endpoint, names_authorities, system_context, tls_context

if TYPE_CHECKING:
    from .http_session import HttpSession


def _load(*, trusts_system: bool) -> ssl.SSLContext | None:
    """Load what sends requests. Return the context for the system's CAs if that is wanted."""
    load_aiohttp()
    with collection_paused():
        importlib.import_module(f"{__package__}.http_session")
    keep_receive_buffers()
    return system_context() if trusts_system else None


class ProviderClient:
    """Sends requests to one endpoint. A context: leaving it closes the connections.

    Raise ConfigError for CAs in `environ` that cannot be read. Without any there, the system's count, which are read in
    the thread that loads the client.
    """

    def __init__(self, endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> None:
        self.endpoint = endpoint
        own = endpoint.secure and names_authorities(environ)
        self._tls: ssl.SSLContext | None = tls_context(environ) if own else None
        self._opening: asyncio.Task[HttpSession] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        opening, self._opening = self._opening, None
        if opening is None:
            return
        opening.cancel()
        await asyncio.wait((opening,))
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().close()

    def prepare(self) -> None:
        """Load what sends requests, in a thread. Later calls do nothing."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="load the HTTP client")

    async def _open(self) -> HttpSession:
        system = await asyncio.to_thread(_load, trusts_system=self.endpoint.secure and self._tls is None)
        from .http_session import HttpSession

        return HttpSession(self.endpoint, self._tls or system)

    def request(self, request: ProviderRequest) -> AbstractAsyncContextManager[ProviderResponse]:
        """Send `request` and yield its response as a context. Leaving the context early aborts the call.

        The path of the request is appended to that of the base URL unchanged. Raise ProviderError.
        """
        opening = self._opening
        if opening is not None and opening.done() and not opening.cancelled() and opening.exception() is None:
            return opening.result().request(request)
        return self._requested(request)

    @asynccontextmanager
    async def _requested(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        """Send a request once what sends it is loaded."""
        self.prepare()
        assert self._opening is not None
        session = await asyncio.shield(self._opening)
        async with session.request(request) as response:
            yield response
