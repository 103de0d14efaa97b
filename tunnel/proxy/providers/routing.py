"""Sends each model call to the provider that its model names: `openai/gpt-5` goes to `openai`, a name without a known
provider in front to the default one.

The model that the body names decides, so all models of a session (its own, those of sub-agents, the one that takes
over) may have different providers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

from ..guards.costs import BilledRequest, billed
from ..policy import MAX_BODY, ROUTES
from .provider import Provider, ProviderRequest, ProviderResponse
from .request_body import WholeBody, as_body, read_json

Json = dict[str, Any]

_OURS = b'"ccb1.'
_MAX_IN_MEMORY = 4 * MAX_BODY


class ModelRouter:
    """See `Provider`. `default` answers for every model that names no other provider. `make` returns the provider with
    a name, None for a name that it does not know; each is made once, when it is first used. `model` is the model of
    the session, as far as it is known: its provider gets ready before the first call. `learn` is told of each model
    before it is asked."""

    def __init__(
        self,
        default: Provider,
        make: Callable[[str], Provider | None],
        model: str = "",
        learn: Callable[[str], None] = lambda model: None,
    ) -> None:
        self._default = default
        self._make = make
        self._learn = learn
        self._made: dict[str, Provider] = {}
        self._stack = AsyncExitStack()
        self._entering = asyncio.Lock()
        self._entered: set[Provider] = set()
        self._in_memory = 0
        self._main = self._provider_of(model)

    @property
    def name(self) -> str:
        return self._main.name

    @property
    def what_to_check(self) -> str:
        return self._main.what_to_check

    @property
    def routes(self) -> frozenset[tuple[str, str]]:
        return ROUTES

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
        if request.method != "POST":
            await self._enter(self._default)
            async with self._default.exchange(request) as response:
                yield response
            return
        pieces: list[bytes] = []
        size = 0
        try:
            async for piece in request.body:
                pieces.append(piece)
                size += len(piece)
                self._in_memory += len(piece)
                if self._in_memory > _MAX_IN_MEMORY:
                    from .translated import refused_answer  # with the dialects, which most sessions never speak

                    yield refused_answer(529, "overloaded_error", "too many large requests at once")
                    return
            piece = b""
            provider, body, sent = await self._routed(pieces, size, request.asks)
            await self._enter(provider)
            routed = ProviderRequest(request.method, request.path, request.headers, body, sent)
            async with provider.exchange(routed) as response:
                pieces.clear()
                self._in_memory -= size
                size = 0
                yield response
        finally:
            self._in_memory -= size

    async def _routed(
        self, pieces: list[bytes], size: int, asks: Callable[[BilledRequest], Awaitable[None]]
    ) -> tuple[Provider, AsyncIterator[bytes], int]:
        """Return the provider for a body, and what it is sent. The body is not held beside its pieces."""
        whole = b"".join(pieces)
        asked = billed(await read_json(whole), size)  # the conversation is not held while the call waits
        self._learn(asked.model)
        await asks(asked)
        provider = self._provider_of(asked.model)
        if provider is self._default and _OURS in whole:
            changed = _without_foreign_thinking(await read_json(whole))
            return provider, as_body(changed), len(changed)
        return provider, WholeBody(pieces), size

    def _provider_of(self, model: str) -> Provider:
        name, slash, _ = model.partition("/")
        if not slash:
            return self._default
        known = self._made.get(name)
        if known is None:
            known = self._make(name) or self._default
            if known is not self._default:
                self._made[name] = known
        return known

    async def _enter(self, provider: Provider) -> None:
        if provider in self._entered:
            return
        async with self._entering:
            if provider not in self._entered:
                await self._stack.enter_async_context(provider)
                self._entered.add(provider)


def _without_foreign_thinking(asked: Json) -> bytes:
    """Return the request without the thinking of other providers: Anthropic refuses signatures that it has not made."""
    from .dialect.state import without_ours

    messages = asked.get("messages")
    kept = {**asked, "messages": without_ours(messages)} if isinstance(messages, list) else asked
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
