"""Makes the providers of a session: Anthropic's, and any other that a model names (`--model NAME/MODEL`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ccb.tunnel.errors import ConfigError, CredentialError, UsageError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.proxy.guards.refusal import Refusal
from ccb.tunnel.proxy.providers.anthropic import BASE_URL_VARIABLE, AnthropicProvider, anthropic_client
from ccb.tunnel.proxy.providers.credential import Credential, CredentialSource, FixedCredential
from ccb.tunnel.proxy.providers.kinds import KINDS, DialectName, ProviderKind
from ccb.tunnel.proxy.providers.models.traits import ModelTraits, TraitsTable
from ccb.tunnel.proxy.providers.network.endpoint import endpoint_at
from ccb.tunnel.proxy.providers.network.http_client import ProviderClient
from ccb.tunnel.proxy.providers.provider import Provider
from ccb.tunnel.proxy.providers.routing import ModelRouter
from ccb.tunnel.wire.models import learn

from ..config.credentials import HelperCredential, KeyringCredential, checked, credential_source
from ..config.keyring_store import KeyStore
from ..config.provider_settings import ModelSettings, ProviderSettings

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

    @property
    def traits(self) -> TraitsTable:
        return TraitsTable(self.kind.traits, {model: _own_traits(each) for model, each in self.own.models.items()})


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
    granted = {each.partition("/")[0] for each in (model, *others) if each and "/" in each} | settings.providers.keys()
    client = anthropic_client(environ)
    default = AnthropicProvider(credential_source(environ, settings, client.endpoint.host), client)

    def make(name: str) -> Provider | None:
        named = named_provider(name, environ, settings)
        if named is None:
            return None
        if name not in granted:
            said = f"the provider {name} was not chosen on the laptop: start with --model, or add it to the settings"
            raise Refusal(403, f"{said} (providers)", headers={"x-should-retry": "false"})
        return _provider(named, environ)

    return ModelRouter(default, make, model or "")


def model_traits(
    model: str, environ: Mapping[str, str], settings: Settings
) -> tuple[NamedProvider, ModelTraits] | None:
    """Return what is known of a model that names its provider, None for a model of Anthropic's or of a gateway."""
    name, slash, rest = model.partition("/")
    named = named_provider(name, environ, settings) if slash else None
    return None if named is None else (named, named.traits.of(rest))


def has_others(environ: Mapping[str, str], settings: Settings) -> bool:
    """Return whether another provider than Anthropic can be used here."""
    variables = (name for kind in KINDS.values() for name in kind.key_variables)
    return bool(settings.providers) or any(environ.get(name, "").strip() for name in variables)


def facts_for_worker(models: list[str], environ: Mapping[str, str], settings: Settings) -> dict[str, object]:
    """Return `model_facts` of the session options: of these models, and of those in the settings. This end learns
    them, too."""
    known = [f"{name}/{model}" for name, each in settings.providers.items() for model in each.models]
    made: dict[str, object] = {}
    for model in [*models, *known]:
        found = model_traits(model, environ, settings)
        if found is not None:
            facts = found[1].facts(model)
            learn(model, facts)  # a budget in dollars is checked before the first call
            made[model] = [
                *(facts.context_window, facts.max_output, facts.input_price, facts.output_price),
                *(facts.read_share, facts.write_share),
            ]
    return made


def said_at_start(model: str, environ: Mapping[str, str], settings: Settings) -> list[str]:
    """Return sentences about what a model cannot do. Raise UsageError for one that cannot work as an agent."""
    found = model_traits(model, environ, settings)
    if found is None:
        return []
    (named, traits), shown = found, one_line(model)
    if not traits.tools:
        raise UsageError(f"{shown} takes no tools, so it cannot work as an agent", do="Choose another model.")
    lacks = [word for word, has in (("images", traits.images), ("PDF files", traits.documents)) if not has]
    said = []
    if lacks:
        said.append(f"{shown} takes no {' and no '.join(lacks)}: they are named to it instead of shown.")
    if not traits.thinking:
        said.append(f"{shown} is not known to think: effort and thinking have no effect.")
    if not traits.window:
        setting = f"providers.{named.name}.models"
        said.append(
            f"The window of {shown} is not known: ccb takes 200,000 tokens. contextWindow in {setting} sets it."
        )
    return said


def _provider(named: NamedProvider, environ: Mapping[str, str]) -> Provider:
    kind, own = named.kind, named.own
    variable = f"providers.{named.name}.baseUrl"
    base = own.baseUrl or (kind.base_variable and environ.get(kind.base_variable, "").strip()) or kind.base_url
    if not base:
        also = f" or {kind.base_variable}" if kind.base_variable else ""
        raise ConfigError(f"the provider {named.name} has no base URL", do=f"Set {variable} in settings.json{also}.")
    allow_plain = environ.get("CCB_ALLOW_HTTP_UPSTREAM") == "1"
    client = ProviderClient(endpoint_at(base, variable, environ, allow_plain=allow_plain), environ)
    credential = _credential(named, client.endpoint.host, environ)
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
        named.name, dialect, client, credential, named.traits, counter=counter, key_header=kind.key_header
    )


def _credential(named: NamedProvider, host: str, environ: Mapping[str, str]) -> CredentialSource | None:
    """Return where the key of a provider comes from, None for a server that wants none."""
    own, kind = named.own, named.kind
    for name in (own.keyVariable,) if own.keyVariable else kind.key_variables:
        value = environ.get(name, "").strip()
        if value:
            return FixedCredential(Credential(name, bearer=checked(value, name)))
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
