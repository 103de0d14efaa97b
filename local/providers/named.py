"""A provider by the name in front of its models: what ccb knows of its kind, and what the person has set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.proxy.providers.anthropic import BASE_URL_VARIABLE
from ccb.tunnel.proxy.providers.kinds import ANTHROPIC, KINDS, DialectName, ProviderKind
from ccb.tunnel.proxy.providers.models.listing import Facts
from ccb.tunnel.proxy.providers.models.traits import TraitsTable
from ccb.tunnel.proxy.providers.network.endpoint import Endpoint, endpoint_at

from ..config.provider_settings import ModelSettings, ProviderSettings
from .model_lists import ModelList, ModelLists
from .places import cloud_base

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
    def key_header(self) -> str:
        """The header that carries its key, other than in the Messages API."""
        return self.own.keyHeader or self.kind.key_header

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
        base = self.own.baseUrl or from_variable or cloud_base(kind.name, self.own, environ) or kind.base_url
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


def granted_names(settings: Settings, models: Iterable[str | None]) -> set[str]:
    """Return the names of the providers that a host may use whose session begins with these models: Anthropic, and what
    the person has named in the settings or on the command line."""
    meant = (*models, *settings.modelAliases.values(), settings.smallModel)
    return {ANTHROPIC, *settings.providers, *(each.partition("/")[0] for each in meant if each and "/" in each)}


def _own_traits(own: ModelSettings) -> dict[str, object]:
    given = {name: value for name, value in vars(own).items() if value is not None}
    if "efforts" in given:
        given["efforts"] = tuple(given["efforts"])
    return {_TRAIT_NAMES.get(name, name): value for name, value in given.items()}
