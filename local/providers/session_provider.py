"""Builds the providers of a session with their credentials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ccb.tunnel.errors import NoCredential
from ccb.tunnel.providers.anthropic import AnthropicProvider, RenamedProvider, anthropic_client
from ccb.tunnel.providers.api_errors import Refusal
from ccb.tunnel.providers.cloud_provider import BEARER_VARIABLE, Bedrock, Cloud, CloudProvider, Vertex
from ccb.tunnel.providers.credential import Credential, CredentialSource, FixedCredential, key_headers
from ccb.tunnel.providers.dialect import Dialect
from ccb.tunnel.providers.foreign_api import ForeignApi, PassingProvider
from ccb.tunnel.providers.http_client import Provider, ProviderClient
from ccb.tunnel.providers.model_lists import ModelSource
from ccb.tunnel.providers.model_router import ModelRouter
from ccb.tunnel.providers.model_traits import ModelTraits
from ccb.tunnel.providers.openai_chat import chat_call
from ccb.tunnel.providers.openai_responses import responses_call
from ccb.tunnel.providers.provider_kinds import ANTHROPIC, KINDS
from ccb.tunnel.providers.translating_provider import TranslatedProvider
from ccb.tunnel.wire.known_agents import KNOWN_AGENTS, foreign_agent
from ccb.tunnel.wire.model_facts import ModelTable
from ccb.tunnel.wire.model_facts import provider_of as provider_of_name

from ..config.policy import check_provider
from ..credentials.credential_helper import HelperCredential, checked
from ..credentials.credential_sources import StoredCredentials, credential_source
from .named_provider import Environ, NamedProvider, granted_names, named_provider, project_of, region_of

if TYPE_CHECKING:
    from ..config.settings import Settings


Stored = StoredCredentials | None  # without accounts, only those that open without a question to the person are used


def _cloud(named: NamedProvider, environ: Environ) -> Cloud:
    own, region = named.own, region_of(named.kind.name, named.own, environ)
    if named.dialect == "bedrock":
        variable = own.keyVariable or BEARER_VARIABLE
        key = environ.get(variable, "").strip()
        return Bedrock(region, own.profile or "", checked(key, variable) if key else None)
    return Vertex(region or "global", project_of(own, environ))


def session_provider(
    environ: Environ,
    settings: Settings,
    model: str | None,
    *others: str | None,
    stored: Stored = None,
    table: ModelTable | None = None,
    agent: str = "",
) -> ModelRouter:
    """Return the provider of a session. A host may use Anthropic, the providers in the settings, those that the command
    line names, and those of the `agent` that works in the session, not a key that only lies in the environment. `table`
    learns of models that are asked."""
    granted = granted_names(settings, (model, *others)) | providers_of_agent(agent)
    environ = settings.network.over(environ)
    client = anthropic_client(environ)
    accounts = stored or StoredCredentials(environ, settings=settings)
    default = AnthropicProvider(credential_source(environ, settings, client.endpoint.host, accounts), client)
    lent = _LentProviders(environ, settings, granted, accounts, table)
    named = provider_of_name(model or "")

    def check(provider: Provider) -> None:
        check_provider(settings.policy, provider.client.endpoint.host)

    return ModelRouter(default, lent.make, model or "", lent.learn, partial(lent.home, named), check)


class _LentProviders:
    """The providers that a host may use, by their names. `table` learns of their models."""

    def __init__(
        self,
        environ: Environ,
        settings: Settings,
        granted: set[str],
        accounts: StoredCredentials,
        table: ModelTable | None,
    ) -> None:
        self._environ, self._settings, self._granted = environ, settings, granted
        self._accounts, self._table = accounts, table
        self._traits: dict[str, Callable[[str], ModelTraits] | None] = {}

    def make(self, name: str, api: ForeignApi | None) -> Provider | None:
        """Return what translates for a provider, or passes on to it the calls in an API; None if there is no such
        provider. Raise Refusal, ConfigError, CredentialError."""
        named = named_provider(name, self._environ, self._settings)
        if named is None:
            return None
        if name not in self._granted:
            raise _not_granted(name)
        if api is None:
            return provider_of(named, self._environ, self._settings, self._accounts)
        client = ProviderClient(named.endpoint(self._environ, strips=api.strips), self._environ)
        credential = credential_of(named, client.endpoint.host, self._environ, self._settings, self._accounts)
        provider = PassingProvider(credential, client, name)
        provider.key_header = api.key_header or named.key_header
        return provider

    def home(self, main: str, api: ForeignApi, asked: str) -> str:
        """Return the provider that a model names, else the first that speaks the API: `main`, which is that of the
        session, those of the settings, that of the API's maker."""
        for name in (provider_of_name(asked), main, *self._settings.providers):
            named = named_provider(name, self._environ, self._settings) if name in self._granted else None
            if named is not None and api.is_spoken_by(named.kind, named.dialect):
                return name
        return api.home

    def learn(self, asked: str) -> None:
        name, own_name = provider_of_name(asked), asked.partition("/")[2]
        if self._table is None or name not in self._granted:
            return
        if name not in self._traits:
            named = named_provider(name, self._environ, self._settings)
            self._traits[name] = named.traits(self._environ) if named is not None else None
        if (known := self._traits[name]) is not None:
            self._table.learn(asked, known(own_name).facts(asked))


def _not_granted(name: str) -> Refusal:
    said = f"the provider {name} was not chosen on the laptop: start or resume with --model or --agent that names it"
    return Refusal(403, f"{said}, or add it to the settings (providers)", headers={"x-should-retry": "false"})


def providers_of_agent(agent: str) -> set[str]:
    """Return the providers, beside Anthropic, whose models an agent of others asks by itself. Of one that ccb
    does not know, nobody can tell: the person names them beside it."""
    known = KNOWN_AGENTS.get(foreign_agent(agent).name) if agent else None
    if known is None:
        return set()
    found = {kind.name for kind in KINDS.values() if not known.environment.keys().isdisjoint(kind.key_variables)}
    return found - {ANTHROPIC}


def has_others(environ: Environ, settings: Settings) -> bool:
    variables = (name for kind in KINDS.values() for name in kind.key_variables if kind.name != ANTHROPIC)
    return bool(settings.providers) or any(environ.get(name, "").strip() for name in variables)


def provider_of(named: NamedProvider, environ: Environ, settings: Settings, stored: Stored = None) -> Provider:
    """Return the provider that a name stands for. Raise ConfigError, CredentialError."""
    kind = named.kind
    environ = settings.network.over(environ)
    client = ProviderClient(named.endpoint(environ), environ)
    if named.dialect in ("bedrock", "vertex"):
        return CloudProvider(_cloud(named, environ), client, named.name)
    credential = credential_of(named, client.endpoint.host, environ, settings, stored)
    if named.dialect == "anthropic":
        provider = RenamedProvider(credential, client, named.name)
        provider.key_header = named.own.keyHeader
        return provider
    responses = named.dialect == "responses"
    dialect: Dialect = responses_call if responses else partial(chat_call, kind.rules)
    counts, header = responses and kind.counts, named.key_header
    traits = named.traits(environ)
    return TranslatedProvider(named.name, dialect, client, credential, traits, counts=counts, key_header=header)


def model_source(
    named: NamedProvider, environ: Environ, settings: Settings, stored: Stored = None
) -> ModelSource | None:
    """Return what asks a provider for its list of models, None if it has none. Raise ConfigError, CredentialError."""
    call = named.list_call
    if call is None:
        return None
    environ = settings.network.over(environ)
    check_provider(settings.policy, named.endpoint(environ).host)
    if named.dialect in ("bedrock", "vertex"):
        cloud = _cloud(named, environ)

        async def sign(url: str) -> Mapping[str, str]:
            await cloud.credential_name()  # the project may come with it
            return await cloud.signed(url, {}, b"", "GET")
    else:
        credential = credential_of(named, named.endpoint(environ).host, environ, settings, stored)
        header = call.key_header or named.key_header

        async def sign(url: str) -> Mapping[str, str]:
            found = await credential.get() if credential is not None else None
            return key_headers(found, header, named.own.keyHeader)

    return ModelSource(ProviderClient(named.list_endpoint(environ), environ), sign, call)


def credential_of(
    named: NamedProvider, host: str, environ: Environ, settings: Settings, stored: Stored = None
) -> CredentialSource | None:
    """Return where the key of a provider comes from, None for a server that wants none. Raise CredentialError."""
    own, kind = named.own, named.kind
    accounts = stored or StoredCredentials(environ, settings=settings)
    if given := accounts.given(host):
        return given
    if kind.name == ANTHROPIC and not own.keyVariable and not own.keyHelper:
        return credential_source(environ, settings, host, accounts)
    names = (own.keyVariable,) if own.keyVariable else kind.key_variables
    for name in names:
        value = environ.get(name, "").strip()
        if value:
            key = checked(value, name)
            return FixedCredential(Credential(name, api_key=key) if kind.api_key else Credential(name, bearer=key))
    if own.keyHelper:
        return HelperCredential(own.keyHelper, environ, keep_s=settings.credentials.helperSeconds)
    if not (own.keyVariable or kind.needs_key or accounts.chosen(named.name)):
        return None
    missing = NoCredential(
        f"The variable {' or '.join(names)} is not set, and no key of {named.name} is stored.",
        do=f"Export the key of {named.name} in it, or: ccb auth login {named.name}",
    )
    return accounts.of(named.name, host, missing=missing if names else None)
