"""The clients of the `anthropic` and `openai` SDKs ask for lists of models and check keys.

Their requests go through `ProviderClient`, so proxies, certificates and errors are those of model calls. Loading an SDK
takes about a second and 60 MB: this module is imported where a list is asked for, never for a model call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any, Self

import httpx2

from .http_client import ProviderClient
from .provider import ProviderError, ProviderRequest
from .request_body import as_body

_MAX_BYTES = 16 * 1024 * 1024
_PLAIN = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "ccb"}

Sign = Callable[[str], Awaitable[Mapping[str, str]]]
"""Returns the headers that authenticate a request to a URL. Raise CredentialError, ConfigError."""


class _ProviderTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of an SDK with the credential of `sign`, and none that the SDK finds by itself."""

    def __init__(self, client: ProviderClient, sign: Sign) -> None:
        self._client = client
        self._sign = sign

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        endpoint, body = self._client.endpoint, await request.aread()
        path = request.url.raw_path.decode("ascii").removeprefix(endpoint.base.raw_path.rstrip("/"))
        headers = {**_PLAIN, **({"content-type": "application/json"} if body else {})}
        headers |= await self._sign(str(endpoint.url(path)))
        sent = ProviderRequest(request.method, path, headers, as_body(body))
        async with self._client.request(sent) as response:
            received = await response.start(_MAX_BYTES + 1)
        if len(received) > _MAX_BYTES:
            raise ProviderError("its list of models is too long", permanent=True)
        return httpx2.Response(response.status, headers=list(response.headers), content=received)


class SdkClient:
    """Asks the endpoint of `client` with an SDK, `anthropic` or `openai`. A context: leaving it closes the connections.
    Every request may raise ProviderError, and what `sign` raises."""

    def __init__(self, sdk: str, client: ProviderClient, sign: Sign) -> None:
        self._sdk: Any = import_module(sdk)
        made = self._sdk.AsyncAnthropic if sdk == "anthropic" else self._sdk.AsyncOpenAI
        self._pages = {"limit": 1_000} if sdk == "anthropic" else {}
        self._client = client
        self._api = made(
            api_key="see _ProviderTransport",
            base_url=str(client.endpoint.base.with_query(None)),
            max_retries=0,
            http_client=httpx2.AsyncClient(transport=_ProviderTransport(client, sign)),
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._client)
        await self._stack.enter_async_context(self._api)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def list_models(self) -> httpx2.Response:
        return await self._answer(self._api.models.with_raw_response.list(**self._pages))

    async def get(self, path: str) -> httpx2.Response:
        """Return the answer at a path for which the SDK has no method."""
        return await self._answer(self._api.get(path, cast_to=httpx2.Response))

    async def post(self, path: str, body: Mapping[str, object]) -> httpx2.Response:
        return await self._answer(self._api.post(path, cast_to=httpx2.Response, body=body))

    async def _answer(self, asking: Awaitable[Any]) -> httpx2.Response:
        try:
            answer = await asking
        except self._sdk.APIStatusError as error:
            answer = error.response
        except self._sdk.APIConnectionError as error:
            raise error.__cause__ or ProviderError(str(error)) from None
        found: httpx2.Response = getattr(answer, "http_response", answer)
        return found
