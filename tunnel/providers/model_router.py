"""Sends each model call to the provider that its model names: `openai/gpt-5` goes to `openai`, a name
without a known provider in front to the default one. So all models of a session may have different providers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Self

from .json_fields import dump
from .provider import Provider, ProviderRequest, ProviderResponse
from .request_body import as_body, read_json
from .thinking import without_ours

_OURS = b'"ccb1.'


class ModelRouter:
    """See `Provider`. `default` answers for every model that names no other provider. `make` returns the provider with
    a name, None for an unknown one; each is made once. `model` is the model of the session: its provider gets ready
    before the first call. `learn` is told of each model before it is asked."""

    def __init__(
        self,
        default: Provider,
        make: Callable[[str], Provider | None],
        model: str = "",
        learn: Callable[[str], None] = lambda model: None,
    ) -> None:
        self.default = default
        self._make = make
        self.learn = learn
        self._made: dict[str, Provider] = {}
        self._stack = AsyncExitStack()
        self._entering = asyncio.Lock()
        self._entered: set[Provider] = set()
        self._main = self.provider_of(model)

    @property
    def name(self) -> str:
        return self._main.name

    @property
    def what_to_check(self) -> str:
        return self._main.what_to_check

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        await self._enter(self._main)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.__aexit__(None, None, None)

    def prepare(self) -> None:
        self._main.prepare()

    async def credential_name(self) -> str:
        return await self._main.credential_name()

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        provider = self.provider_of(request.model)
        if provider is self.default and _OURS in request.body.whole():
            kept = dump(without_ours(await read_json(request.body.take()))).encode("utf-8", "replace")
            request = replace(request, body=as_body(kept))
            del kept
        await self._enter(provider)
        async with provider.exchange(request) as response:
            yield response

    def provider_of(self, model: str) -> Provider:
        name, slash, _ = model.partition("/")
        if slash and name not in self._made:
            if (made := self._make(name)) is None:
                return self.default
            self._made[name] = made
        return self._made[name] if slash else self.default

    async def _enter(self, provider: Provider) -> None:
        if provider in self._entered:
            return
        async with self._entering:
            if provider not in self._entered:
                await self._stack.enter_async_context(provider)
                self._entered.add(provider)
