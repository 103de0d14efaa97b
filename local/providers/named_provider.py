"""Finds a provider by its name: its kind, address, region, and what the settings say of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NoReturn

from ccb.tunnel.errors import ConfigError, UsageError
from ccb.tunnel.providers.anthropic import BASE_URL_VARIABLE
from ccb.tunnel.providers.http_client import Endpoint, endpoint_at
from ccb.tunnel.providers.model_lists import ListCall
from ccb.tunnel.providers.model_traits import ModelTraits, traits_of
from ccb.tunnel.providers.provider_kinds import ANTHROPIC, KINDS, DialectName, ProviderKind
from ccb.tunnel.wire.dataclass import dataclass

from ..config.settings import BudgetSettings, ProviderSettings
from .model_list_cache import ModelList, read_list

if TYPE_CHECKING:
    from ..config.settings import Settings


Environ = Mapping[str, str]

_NAME = re.compile(r"[a-z0-9][a-z0-9.:-]{0,62}")
_REGIONS = {"bedrock": ("AWS_REGION", "AWS_DEFAULT_REGION"), "vertex": ("CLOUD_ML_REGION",)}
_PROJECTS = ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")


def region_of(kind: str, own: ProviderSettings, environ: Environ) -> str:
    """Return the region of a cloud, "" if it is not set. Raise ConfigError."""
    return own.region or _first(_REGIONS.get(kind, ()), environ)


def project_of(own: ProviderSettings, environ: Environ) -> str:
    """Return the project of Vertex, "" for that of the credentials. Raise ConfigError."""
    return own.project or _first(_PROJECTS, environ)


def cloud_base(kind: str, own: ProviderSettings, environ: Environ) -> str:
    """Return the base URL of a cloud, "" for a provider that is none. Raise ConfigError if its place is not known."""
    if kind == "bedrock":
        region = region_of(kind, own, environ)
        if not region:
            raise ConfigError("the region of Bedrock is not known", do="Set AWS_REGION, or providers.bedrock.region.")
        return f"https://bedrock-runtime.{region}.amazonaws.com"
    if kind == "vertex":
        from ccb.tunnel.providers.cloud_provider import vertex_base

        return vertex_base(region_of(kind, own, environ) or "global")
    if kind == "foundry" and (resource := _first(("ANTHROPIC_FOUNDRY_RESOURCE",), environ)):
        return f"https://{resource}.services.ai.azure.com/anthropic"
    return ""


def _first(names: tuple[str, ...], environ: Environ) -> str:
    """Return the first of these variables that is set. It becomes a part of a host's name."""
    for name in names:
        value = environ.get(name, "").strip()
        if value and not _NAME.fullmatch(value):
            raise ConfigError(f"{name} is no name of a region, a project or a resource", do=f"Correct {name}.")
        if value:
            return value
    return ""


_RUNTIME = "bedrock-runtime"  # the host of model calls; the one beside it has the lists
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
        return "" if self.dialect == "anthropic" else self.own.keyHeader or self.kind.key_header

    def traits(self, environ: Environ) -> Callable[[str], ModelTraits]:
        """Return what tells the traits of its models, with what its list said when it was last asked for."""
        kept_list = cache(lambda: self.kept_list(environ))  # its file is read when a model is asked for

        def of(model: str) -> ModelTraits:
            kept = kept_list()
            listed = kept.find(model) if kept is not None else None
            said = vars(self.own.models[model]) if model in self.own.models else {}
            own = {_TRAIT_NAMES.get(name, name): each for name, each in said.items() if each is not None}
            if "efforts" in own:
                own["efforts"] = tuple(own["efforts"])
            return traits_of(model, self.kind.traits, listed.facts if listed is not None else {}, own)

        return of

    def kept_list(self, environ: Environ) -> ModelList | None:
        try:
            return read_list(environ, self.name, self.address(environ)) if self.list_call else None
        except ConfigError:
            return None

    @property
    def list_call(self) -> ListCall | None:
        """How it is asked for its models, None without the project whose deployments it lists."""
        call = self.kind.lists
        if not call.of_project:
            return call
        return replace(call, path=call.path.format(project=self.own.project)) if self.own.project else None

    @property
    def lists_by_right(self) -> bool:
        """Whether listing models is a right of its own: without it a key may still call them."""
        return self.dialect in ("bedrock", "vertex") or self.kind.lists.of_project

    @property
    def why_no_list(self) -> str:
        name = f"providers.{self.name}"
        if self.list_call is None:
            return (
                f"{self.kind.title} lists deployments for a project only, and to a token of Entra only: set "
                f"{name}.project and keyHelper, or name the deployments in {name}.models of settings.json"
            )
        return f"it has no list of models; name them in {name}.models of settings.json"

    def address(self, environ: Environ) -> str:
        """Return what a list of its models belongs to: another address or project may have other models."""
        project = self.own.project if self.kind.lists.of_project else None
        return "#".join(filter(None, (str(self.endpoint(environ).base), project)))

    def list_endpoint(self, environ: Environ) -> Endpoint:
        found = self.endpoint(environ, strips=self.kind.lists.strips)
        host = found.base.host or ""
        if self.kind.lists.of_project:
            return replace(found, base=found.base.origin())
        if self.dialect == "bedrock" and host.startswith(_RUNTIME):
            return replace(found, base=found.base.with_host("bedrock" + host.removeprefix(_RUNTIME)))
        return found

    def endpoint(self, environ: Environ, *, strips: str = "") -> Endpoint:
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


def named_provider(name: str, environ: Environ, settings: Settings) -> NamedProvider | None:
    """Return a provider of the settings, or a kind that ccb knows, else None. Behind a gateway (ANTHROPIC_BASE_URL)
    names with a slash are often its own, so only the settings count."""
    own = settings.providers.get(name)
    if own is None:
        if name not in KINDS or environ.get(BASE_URL_VARIABLE, "").strip():
            return None
        own = ProviderSettings()
    by_policy = settings.is_managed(f"providers.{name}")
    if own.models and settings.policy.budgets != BudgetSettings() and not by_policy:  # a person's prices loosen it
        prices = {"inputPrice": None, "outputPrice": None, "cacheReadPrice": None}
        own = replace(own, models={model: replace(each, **prices) for model, each in own.models.items()})
    kind = KINDS.get(own.kind or name)
    if kind is None:
        kind = KINDS["anthropic-compatible" if own.dialect == "anthropic" else "compatible"]
    return NamedProvider(name, kind, own.dialect or kind.dialect, own)


def refuse_provider(name: str, settings: Settings) -> NoReturn:
    """Raise UsageError for a name for which `named_provider` finds nothing."""
    if name in KINDS:
        raise UsageError(
            f"behind {BASE_URL_VARIABLE} there is no provider {name}: its models would be the gateway's",
            do=f"Add {name} to providers in settings.json, or unset {BASE_URL_VARIABLE}.",
        )
    import difflib  # no session that begins needs it

    known = list(dict.fromkeys([*settings.providers, *KINDS]))
    near = difflib.get_close_matches(name, known, 3)
    raise UsageError(
        f"there is no provider {name!r}",
        evidence=f"Known are {', '.join(known)}.",
        do=f"Did you mean {' or '.join(near)}?" if near else "Name one of these, or add yours to providers.",
    )


def granted_names(settings: Settings, models: Iterable[str | None]) -> set[str]:
    """Return the providers that a host may use: Anthropic, and what the person has named."""
    meant = (*models, *settings.modelAliases.values(), settings.smallModel)
    return {ANTHROPIC, *settings.providers, *(each.partition("/")[0] for each in meant if each and "/" in each)}
