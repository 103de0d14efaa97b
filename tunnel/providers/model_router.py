"""Sends each model call to the provider that its model names: `openai/gpt-5` goes to `openai`, a name
without a known provider in front to the default one. So all models of a session may have different providers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from ..wire.model_facts import provider_of
from .api_errors import NO_RETRY, Refusal
from .credential import CredentialSource
from .foreign_api import ForeignApi
from .http_client import Provider
from .json_fields import dump
from .provider import ProviderRequest, ProviderResponse, WholeBody
from .request_body import read_json
from .thinking import without_ours

_OURS = b'"ccb1.'


class ModelRouter:
    """`default` answers for every model that names no other provider. `make` returns the provider with a name, None for
    an unknown one; with another API than Messages, one that passes its calls on. Each is made once. `main` is that of
    `model`, the model of the session: it gets ready before the first call. `learn` is told of each model before it is
    asked. `home` names the provider of a model that is asked for in another API. `check` raises an error for a provider
    that must not be asked."""

    def __init__(
        self,
        default: Provider,
        make: Callable[[str, ForeignApi | None], Provider | None],
        model: str = "",
        learn: Callable[[str], None] = lambda model: None,
        home: Callable[[ForeignApi, str], str] = lambda api, model: api.home,
        check: Callable[[Provider], None] = lambda provider: None,
    ) -> None:
        self.default = default
        self._check = check
        self._make = make
        self.learn = learn
        self._home = home
        self._made: dict[tuple[str, str], Provider] = {}  # by API, "" for Messages, and name
        self.main = self.provider_of(model)
        check(self.main)

    async def close(self) -> None:
        for provider in (self.default, *self._made.values()):
            await provider.client.close()

    def prepare(self) -> None:
        """Load what the first call needs, and do not wait for it: a worker is about to ask."""
        self.main.client.prepare()

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        """See `Provider`."""
        place = request.api, provider_of(request.model)
        provider = self._made[place] if request.api else self.provider_of(request.model)
        self._check(provider)
        if not request.api and provider is self.default and _OURS in request.body.whole():
            kept = dump(without_ours(await read_json(request.body.take()))).encode("utf-8", "replace")
            request = replace(request, body=WholeBody(kept))
            del kept
        async with provider.exchange(request) as response:
            yield response

    def placed(self, api: ForeignApi, model: str) -> str:
        """Return a model that is asked for in another API with its provider in front, and have that ready. Raise
        Refusal, ConfigError, CredentialError."""
        name = self._home(api, model)
        if self._provider(name, api) is None:
            raise Refusal(403, f"this laptop passes on no calls of {api.title}", headers=NO_RETRY)
        return f"{name}/{model.removeprefix(f'{name}/')}"

    def _provider(self, name: str, api: ForeignApi | None = None) -> Provider | None:
        place = "" if api is None else api.name, name
        made = self._made.get(place) or self._make(name, api)
        if made is not None:
            self._made[place] = made
        return made

    def provider_of(self, model: str) -> Provider:
        name, slash, _ = model.partition("/")
        return (self._provider(name) if slash else None) or self.default

    def name_of(self, model: str) -> str:
        """Return the name of the provider that answers for a model, "" for the default one."""
        made = self._made.get(("", model.partition("/")[0])) if "/" in model else None
        return made.given_name if made is not None else ""

    def use_credential(self, host: str, credential: CredentialSource) -> None:
        """Let the providers at a host that were made send another credential, from their next request on."""
        for provider in (self.default, *self._made.values()):
            if provider.client.endpoint.host == host:
                provider.credential = credential
