"""Anthropic's API and gateways that speak it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from .credential import in_one_header
from .http_client import Endpoint, Provider, ProviderClient, endpoint_at
from .json_fields import dump
from .provider import ProviderRequest, ProviderResponse, WholeBody
from .thinking import without_ours

BASE_URL_VARIABLE = "ANTHROPIC_BASE_URL"
DEFAULT_BASE_URL = "https://api.anthropic.com"

_UNENCODED = {"accept-encoding": "identity"}  # ask for a plain body, so that its bytes can be passed on as they arrive


def anthropic_endpoint(environ: Mapping[str, str], *, allow_plain: bool = False) -> Endpoint:
    """Return the endpoint that ANTHROPIC_BASE_URL and the proxy variables describe. Raise ConfigError. Plain http to
    another machine needs `allow_plain` or CCB_ALLOW_HTTP_UPSTREAM=1."""
    text = environ.get(BASE_URL_VARIABLE, "").strip() or DEFAULT_BASE_URL
    allow_plain = allow_plain or environ.get("CCB_ALLOW_HTTP_UPSTREAM") == "1"
    return endpoint_at(text, BASE_URL_VARIABLE, environ, allow_plain=allow_plain)


def anthropic_client(environ: Mapping[str, str] = os.environ) -> ProviderClient:
    """Return the client for the endpoint that the environment describes. Raise ConfigError."""
    return ProviderClient(anthropic_endpoint(environ), environ)


class AnthropicProvider(Provider):
    """Adds the credential and passes everything else on unchanged. See `Provider`. `key_header` is the only header that
    carries it, None for those that it has by itself."""

    key_header: str | None = None

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        credential = await self.credential.get() if self.credential is not None else None
        own = in_one_header(credential, self.key_header).headers(request.headers) if credential is not None else {}
        headers = {**request.headers, **_UNENCODED, **own}
        async with self.client.request(replace(request, headers=headers)) as response:
            if response.status == 401 and await self._may_have_another(credential):
                kept = [(name, value) for name, value in response.headers if name.lower() != "x-should-retry"]
                response = replace(response, headers=[*kept, ("x-should-retry", "true")])
            yield await self._without_key(response, credential)


class RenamedProvider(AnthropicProvider):
    """See `Provider`. The worker asks for its models as `given_name/model`."""

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        asked, model = await self._read(request)
        body = dump(without_ours(asked) | ({"model": model} if model else {})).encode("utf-8", "replace")
        del asked
        async with super().exchange(replace(request, body=WholeBody(body))) as response:
            yield response
