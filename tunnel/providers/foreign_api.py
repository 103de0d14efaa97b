"""The APIs other than Messages in which agents of others ask, and the provider that passes such calls on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal

from ..wire.dataclass import dataclass
from .api_errors import read_error
from .credential import key_headers
from .http_client import Provider
from .provider import ProviderRequest, ProviderResponse
from .provider_kinds import DialectName, ProviderKind

_OWN_TEXT = (401, 403)  # errors whose text may repeat a part of the key


@dataclass(frozen=True)
class ForeignApi:
    """One API. `home` is the provider of models without a provider in front of their names, if nothing else is said. A
    provider is asked at its address without `strips`, with its key in `key_header` if that is not "". `kinds` are those
    that speak it: by dialect, or by name."""

    name: Literal["chat", "responses", "gemini"]
    title: str
    home: str
    kinds: tuple[str, ...]
    strips: str = ""
    key_header: str = ""

    def is_spoken_by(self, kind: ProviderKind, dialect: DialectName) -> bool:
        return dialect in self.kinds or kind.name in self.kinds


CHAT = ForeignApi("chat", "Chat Completions", "openai", ("chat", "responses"))
RESPONSES = ForeignApi("responses", "Responses", "openai", ("responses",))
GEMINI = ForeignApi("gemini", "Gemini", "gemini", ("gemini",), "/openai", "x-goog-api-key")


@dataclass(frozen=True)
class ForeignCall:
    """A request as its method and path tell it. `path` is at the provider, behind its base URL, with `{model}` for the
    model. `answers`: a model answers, so it costs money. `model` is the one that the path names. `instead` is the one
    that is asked in its place, in Messages."""

    api: ForeignApi
    path: str
    answers: bool = True
    model: str = ""
    instead: str = ""


class PassingProvider(Provider):
    """Adds the key, in the header `key_header`, and passes requests of its own API on as they are. See `Provider`."""

    key_header = ""

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        credential = await self.credential.get() if self.credential is not None else None
        own = key_headers(credential, self.key_header)
        headers = {**request.headers, "accept-encoding": "identity", **own}
        async with self.client.request(replace(request, headers=headers)) as response:
            if response.status in _OWN_TEXT:
                error = read_error(response.status, response.headers, await response.start(), self.given_name)
                again = response.status == 401 and await self._may_have_another(credential)
                error.headers = {"x-should-retry": "true" if again else "false"}
                raise error
            yield await self._without_key(response, credential)
