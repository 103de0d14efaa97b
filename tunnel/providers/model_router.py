"""Sends each model call to the provider that the model in its body names: `openai/gpt-5` goes to `openai`, a name
without a known provider in front to the default one. So all models of a session may have different providers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from typing import Self

from .api_errors import Refusal
from .costs import billed
from .json_fields import dump
from .provider import MAX_BODY, Provider, ProviderRequest, ProviderResponse
from .request_body import WholeBody, as_body, read_json
from .thinking import without_ours

_OURS = b'"ccb1.'
_MAX_IN_MEMORY = 4 * MAX_BODY


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
        self._learn = learn
        self._made: dict[str, Provider] = {}
        self._stack = AsyncExitStack()
        self._entering = asyncio.Lock()
        self._entered: set[Provider] = set()
        self.in_memory = 0  # the bytes of bodies whose answers have not begun
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
        async with AsyncExitStack() as stack:
            with ExitStack() as held:  # until the answer begins
                response = await stack.enter_async_context(await self._chosen(request, held))
            yield response

    async def _chosen(self, request: ProviderRequest, held: ExitStack) -> AbstractAsyncContextManager[ProviderResponse]:
        """Read the body, and return the exchange with the provider of its model. `held` counts what is in memory."""
        if request.method != "POST":
            await self._enter(self.default)
            return self.default.exchange(request)
        pieces: list[bytes] = []
        size = 0
        async for piece in request.body:
            pieces.append(piece)
            size += len(piece)
            self._hold(len(piece), held)
            if self.in_memory > _MAX_IN_MEMORY:
                raise Refusal(529, "too many large requests at once")
        with ExitStack() as twice:
            self._hold(size, twice)
            whole = b"".join(pieces)
            asked = billed(await read_json(whole), size)  # the conversation is not held while the call waits
            has_ours = _OURS in whole
            del whole
        self._learn(asked.model)
        await request.asks(asked)
        provider = self.provider_of(asked.model)
        body = WholeBody(pieces)
        if provider is self.default and has_ours:
            kept = dump(without_ours(await read_json(body.take()))).encode("utf-8", "replace")
            body, size = as_body(kept), len(kept)
        await self._enter(provider)
        return provider.exchange(ProviderRequest(request.method, request.path, request.headers, body, size))

    def _hold(self, size: int, held: ExitStack) -> None:
        self.in_memory += size
        held.callback(self._let_go, size)

    def _let_go(self, size: int) -> None:
        self.in_memory -= size

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
