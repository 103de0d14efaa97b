"""A provider that speaks Anthropic's language, under a name of the person's: the name is not sent along."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Self

from .dialect.state import without_ours
from .provider import Provider, ProviderRequest, ProviderResponse
from .request_body import as_body, read_json


class RenamedProvider:
    """See `Provider`. `own` is the provider itself; the worker asks for its models as `name/model`."""

    def __init__(self, name: str, own: Provider) -> None:
        self._name = name
        self._own = own

    @property
    def name(self) -> str:
        return f"{self._name} ({self._own.name})"

    @property
    def what_to_check(self) -> str:
        return self._own.what_to_check

    @property
    def routes(self) -> frozenset[tuple[str, str]]:
        return self._own.routes

    async def __aenter__(self) -> Self:
        await self._own.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._own.__aexit__(None, None, None)

    def prepare(self) -> None:
        self._own.prepare()

    async def credential_name(self) -> str:
        return await self._own.credential_name()

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        body = b"".join([piece async for piece in request.body])
        data = await read_json(body)
        if data is not None and isinstance(data.get("model"), str):
            data["model"] = data["model"].removeprefix(f"{self._name}/")
            if isinstance(data.get("messages"), list):
                data["messages"] = without_ours(data["messages"])
            body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        async with self._own.exchange(replace(request, body=as_body(body), size=len(body))) as response:
            yield response
