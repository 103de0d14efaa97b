"""A provider that speaks Anthropic's language, under a name of the person's: the name is not sent along."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from ..guards.request_body import model_of
from .anthropic import AnthropicProvider
from .dialect.state import without_ours
from .provider import ProviderRequest, ProviderResponse
from .request_body import as_body, read_json, whole_body


class RenamedProvider(AnthropicProvider):
    """See `Provider`. The worker asks for its models as `given_name/model`."""

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        async with super().exchange(await self._renamed(request)) as response:
            yield response

    async def _renamed(self, request: ProviderRequest) -> ProviderRequest:
        data = await read_json(await whole_body(request.body))
        if model := model_of(data):
            data["model"] = model.removeprefix(f"{self._given_name}/")
        if isinstance(data.get("messages"), list):
            data["messages"] = without_ours(data["messages"])
        body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        return replace(request, body=as_body(body), size=len(body))
