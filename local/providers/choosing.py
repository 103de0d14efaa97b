"""Makes the providers of a session: Anthropic's, and any other that a model names (`--model NAME/MODEL`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ccb.tunnel.errors import ConfigError, CredentialError
from ccb.tunnel.proxy.guards.refusal import Refusal
from ccb.tunnel.proxy.providers.anthropic import BASE_URL_VARIABLE, AnthropicProvider, anthropic_client
from ccb.tunnel.proxy.providers.credential import Credential, CredentialSource, FixedCredential
from ccb.tunnel.proxy.providers.kinds import ANTHROPIC, KINDS, DialectName, ProviderKind
from ccb.tunnel.proxy.providers.models.fetching import ModelSource
from ccb.tunnel.proxy.providers.models.listing import Facts
from ccb.tunnel.proxy.providers.models.traits import TraitsTable
from ccb.tunnel.proxy.providers.network.endpoint import Endpoint, endpoint_at
from ccb.tunnel.proxy.providers.network.http_client import ProviderClient
from ccb.tunnel.proxy.providers.provider import Provider
from ccb.tunnel.proxy.providers.routing import ModelRouter

from ..config.credentials import HelperCredential, KeyringCredential, checked, credential_source
from ..config.keyring_store import KeyStore
from ..config.provider_settings import ModelSettings, ProviderSettings
from .model_lists import ModelList, ModelLists

if TYPE_CHECKING:
    from ..config.settings import Settings

_TRAIT_NAMES = {
    "contextWindow": "window",
    "maxOutput": "max_output",
    "inputPrice": "input_price",
    "outputPrice": "output_price",
    "cacheReadPrice": "cache_read_price",
}


@dataclass(frozen=True)
class NamedProvider:
    """A provider by its name: its kind, the dialect it is spoken to in, and what the person has set."""

    name: str
    kind: ProviderKind
    dialect: DialectName
    own: ProviderSettings

    def traits(self, environ: Mapping[str, str]) -> TraitsTable:
        """Return what its models can do, with what its list said when it was last asked for."""
        listed: list[ModelList | None] = []

        def facts(model: str) -> Facts:
            if not listed:
                listed.append(self.kept_list(environ))
            found = listed[0].find(model) if listed[0] is not None else None
            return found.facts if found is not None else {}

        own = {model: _own_traits(each) for model, each in self.own.models.items()}
        return TraitsTable(self.kind.traits, own, facts)

    def kept_list(self, environ: Mapping[str, str]) -> ModelList | None:
        """Return the list of its models that this machine keeps."""
        try:
            return ModelLists(environ).kept(self.name, str(self.endpoint(environ).base)) if self.kind.lists else None
        except ConfigError:
            return None

    def endpoint(self, environ: Mapping[str, str], *, strips: str = "") -> Endpoint:
        """Return where it is, without `strips` at the end of the address. Raise ConfigError."""
        kind, variable = self.kind, f"providers.{self.name}.baseUrl"
        from_variable = environ.get(kind.base_variable, "").strip() if kind.base_variable else ""
        base = self.own.baseUrl or from_variable or kind.base_url
        if not base:
            also = f" or {kind.base_variable}" if kind.base_variable else ""
            raise ConfigError(f"the provider {self.name} has no base URL", do=f"Set {variable} in settings.json{also}.")
        if not self.own.baseUrl and kind.base_variable:
            variable = kind.base_variable
        allow_plain = environ.get("CCB_ALLOW_HTTP_UPSTREAM") == "1"
        return endpoint_at(base.rstrip("/").removesuffix(strips), variable, environ, allow_plain=allow_plain)


def named_provider(name: str, environ: Mapping[str, str], settings: Settings) -> NamedProvider | None:
    """Return the provider with a name: one of the settings, or a kind that ccb knows. None for any other name.

    Behind a gateway (ANTHROPIC_BASE_URL) names with a slash are often the gateway's own, so there only the settings
    count. Raise ConfigError.
    """
    own = settings.providers.get(name)
    if own is None:
        if name not in KINDS or environ.get(BASE_URL_VARIABLE, "").strip():
            return None
        own = ProviderSettings()
    kind = KINDS.get(own.kind or name)
    if kind is None:
        kind = KINDS["anthropic-compatible" if own.dialect == "anthropic" else "compatible"]
    return NamedProvider(name, kind, own.dialect or kind.dialect, own)


def session_provider(
    environ: Mapping[str, str], settings: Settings, model: str | None, *others: str | None
) -> ModelRouter:
    """Return the provider of a session that begins with `model`, and may use `others`. Raise ConfigError,
    CredentialError.

    A host may use Anthropic, the providers in the settings, and those that the command line names. A key that only
    lies in the environment is not for it.
    """
    granted = {each.partition("/")[0] for each in (model, *others) if each and "/" in each}
    named = (*settings.modelAliases.values(), settings.smallModel or "")
    granted |= {ANTHROPIC, *settings.providers, *(each.partition("/")[0] for each in named if "/" in each)}
    client = anthropic_client(environ)
    default = AnthropicProvider(credential_source(environ, settings, client.endpoint.host), client)

    def make(name: str) -> Provider | None:
        named = named_provider(name, environ, settings)
        if named is None:
            return None
        if name not in granted:
            said = f"the provider {name} was not chosen on the laptop: start with --model, or add it to the settings"
            raise Refusal(403, f"{said} (providers)", headers={"x-should-retry": "false"})
        return _provider(named, environ, settings)

    return ModelRouter(default, make, model or "")


def has_others(environ: Mapping[str, str], settings: Settings) -> bool:
    """Return whether another provider than Anthropic can be used here."""
    variables = (name for kind in KINDS.values() for name in kind.key_variables if kind.name != ANTHROPIC)
    return bool(settings.providers) or any(environ.get(name, "").strip() for name in variables)


def _provider(named: NamedProvider, environ: Mapping[str, str], settings: Settings) -> Provider:
    kind = named.kind
    client = ProviderClient(named.endpoint(environ), environ)
    credential = credential_of(named, client.endpoint.host, environ, settings)
    if named.dialect == "anthropic":
        from ccb.tunnel.proxy.providers.renamed import RenamedProvider

        return RenamedProvider(credential, client, named.name)
    from ccb.tunnel.proxy.providers.dialect.dialect import Dialect
    from ccb.tunnel.proxy.providers.translated import TranslatedProvider

    dialect: Dialect
    if named.dialect == "responses":
        from ccb.tunnel.proxy.providers.responses.request import ResponsesCounter, ResponsesDialect

        dialect, counter = ResponsesDialect(), ResponsesCounter() if kind.counts else None
    else:
        from ccb.tunnel.proxy.providers.chat.request import ChatDialect

        dialect, counter = ChatDialect(kind.rules), None
    return TranslatedProvider(
        named.name, dialect, client, credential, named.traits(environ), counter=counter, key_header=kind.key_header
    )


def model_source(named: NamedProvider, environ: Mapping[str, str], settings: Settings) -> ModelSource | None:
    """Return what asks a provider for its list of models, None if it has none. Raise ConfigError, CredentialError."""
    call = named.kind.lists
    if call is None:
        return None
    client = ProviderClient(named.endpoint(environ, strips=call.strips), environ)
    credential = credential_of(named, named.endpoint(environ).host, environ, settings)
    return ModelSource(client, credential, call, "" if named.dialect == "anthropic" else named.kind.key_header)


def credential_of(
    named: NamedProvider, host: str, environ: Mapping[str, str], settings: Settings
) -> CredentialSource | None:
    """Return where the key of a provider comes from, None for a server that wants none. Raise CredentialError."""
    own, kind = named.own, named.kind
    if kind.name == ANTHROPIC and not own.keyVariable and not own.keyHelper:
        return credential_source(environ, settings, host)
    for name in (own.keyVariable,) if own.keyVariable else kind.key_variables:
        value = environ.get(name, "").strip()
        if value:
            key = checked(value, name)
            own_api = kind.name == ANTHROPIC
            return FixedCredential(Credential(name, api_key=key) if own_api else Credential(name, bearer=key))
    if own.keyVariable:
        raise CredentialError(
            f"The variable {own.keyVariable} is not set.", do=f"Export the key of {named.name} in it."
        )
    if own.keyHelper:
        return HelperCredential(own.keyHelper, environ)
    if not kind.needs_key:
        return None
    return KeyringCredential(KeyStore(), host)


def _own_traits(own: ModelSettings) -> dict[str, object]:
    given = {name: value for name, value in vars(own).items() if value is not None}
    if "efforts" in given:
        given["efforts"] = tuple(given["efforts"])
    return {_TRAIT_NAMES.get(name, name): value for name, value in given.items()}
