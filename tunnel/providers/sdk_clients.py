"""The clients of the `anthropic` and `openai` SDKs ask for lists of models and check keys.

Their requests go through `ProviderClient`, so proxies, certificates and errors are those of model calls. Loading an SDK
takes about a second and 60 MB: this module is imported where a list is asked for, never for a model call."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import httpx2

from .http_client import ProviderClient, Sign, signed_request
from .provider import ProviderError


class _ProviderTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of an SDK with the credential of `sign`, and none that the SDK finds by itself."""

    def __init__(self, client: ProviderClient, sign: Sign) -> None:
        self._client = client
        self._sign = sign

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        base, body = self._client.endpoint.base.raw_path.rstrip("/"), await request.aread()
        path = request.url.raw_path.decode("ascii").removeprefix(base)
        status, headers, received = await signed_request(self._client, self._sign, request.method, path, body)
        return httpx2.Response(status, headers=list(headers), content=received)


async def list_models(sdk: str, client: ProviderClient, sign: Sign) -> tuple[int, bytes]:
    """Ask the endpoint of `client` for its models with an SDK, `anthropic` or `openai`. Return the status and the body
    of the answer. Raise ProviderError, and what `sign` raises."""
    module: Any = import_module(sdk)
    made = module.AsyncAnthropic if sdk == "anthropic" else module.AsyncOpenAI
    api = made(
        api_key="see _ProviderTransport",
        base_url=str(client.endpoint.base.with_query(None)),
        max_retries=0,
        http_client=httpx2.AsyncClient(transport=_ProviderTransport(client, sign)),
    )
    pages = {"limit": 1_000} if sdk == "anthropic" else {}
    async with api:
        try:
            answer: httpx2.Response = (await api.models.with_raw_response.list(**pages)).http_response
        except module.APIStatusError as error:
            answer = error.response
        except module.APIConnectionError as error:
            raise error.__cause__ or ProviderError(str(error)) from None
    return answer.status_code, answer.content
