"""Sends each model call to the provider that its model names: `openai/gpt-5` goes to `openai`, a name
without a known provider in front to the default one. So all models of a session may have different providers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
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
    an unknown one; each is made once. `main` is that of `model`, the model of the session: it gets ready before the
    first call. `learn` is told of each model before it is asked. `home` names the provider of a model that is asked for
    in another API than Messages, and `make_foreign` makes one that passes such calls on. `check`
    raises an error for a provider that must not be asked."""

    def __init__(
        self,
        default: Provider,
        make: Callable[[str], Provider | None],
        model: str = "",
        learn: Callable[[str], None] = lambda model: None,
        home: Callable[[ForeignApi, str], str] = lambda api, model: api.home,
        make_foreign: Callable[[ForeignApi, str], Provider] | None = None,
        check: Callable[[Provider], None] = lambda provider: None,
    ) -> None:
        self.default = default
        self._check = check
        self._make = make
        self.learn = learn
        self._home, self._make_foreign = home, make_foreign
        self._made: dict[str, Provider] = {}
        self._foreign: dict[tuple[str, str], Provider] = {}  # by API and name
        self.main = self.provider_of(model)

    async def close(self) -> None:
        for provider in self._all():
            await provider.client.close()

    def prepare(self) -> None:
        """Load what the first call needs, and do not wait for it: a worker is about to ask."""
        self.main.client.prepare()

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        """See `Provider`."""
        provider = self._foreign.get((request.api, provider_of(request.model))) or self.provider_of(request.model)
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
        if self._make_foreign is None:
            raise Refusal(403, f"this laptop passes on no calls of {api.title}", headers=NO_RETRY)
        if (api.name, name) not in self._foreign:
            self._foreign[api.name, name] = self._make_foreign(api, name)
        return f"{name}/{model.removeprefix(f'{name}/')}"

    def _all(self) -> Iterator[Provider]:
        yield from (self.default, *self._made.values(), *self._foreign.values())

    def provider_of(self, model: str) -> Provider:
        name, slash, _ = model.partition("/")
        if slash and name not in self._made:
            if (made := self._make(name)) is None:
                return self.default
            self._made[name] = made
        return self._made[name] if slash else self.default

    def name_of(self, model: str) -> str:
        """Return the name of the provider that answers for a model, "" for the default one."""
        made = self._made.get(model.partition("/")[0]) if "/" in model else None
        return made.given_name if made is not None else ""

    def use_credential(self, host: str, credential: CredentialSource) -> None:
        """Let the providers at a host that were made send another credential, from their next request on."""
        for provider in self._all():
            if provider.client.endpoint.host == host:
                provider.credential = credential
