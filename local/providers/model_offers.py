"""The models that can be chosen here, with what is known of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ccb.tunnel.proxy.providers.kinds import ANTHROPIC, KINDS
from ccb.tunnel.proxy.providers.models.listing import ListedModel
from ccb.tunnel.proxy.providers.models.traits import ModelTraits
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.models import claude_facts

from ..config.provider_settings import ProviderSettings
from .model_lists import ModelList
from .named_provider import NamedProvider, granted_names, named_provider

if TYPE_CHECKING:
    from ..config.settings import Settings


@dataclass(frozen=True)
class ModelOffer:
    """One model. `name` is what `--model` takes. `window` is in tokens, 0 if it is not known; prices are US dollars for
    a million tokens, None if they are not known. `listed` is the day of the list, "" for a model of the settings."""

    name: str
    provider: str
    title: str
    traits: ModelTraits
    window: int
    input_price: float | None
    output_price: float | None
    listed: str

    @property
    def can(self) -> str:
        """What it can do, in words."""
        traits = self.traits
        words = {"tools": traits.tools, "images": traits.images, "pdf": traits.documents, "thinking": traits.thinking}
        return " ".join(word for word, has in words.items() if has)


def default_provider() -> NamedProvider:
    """Return the provider of models without a provider in front of their names: Anthropic, or a gateway."""
    return NamedProvider(ANTHROPIC, KINDS[ANTHROPIC], "anthropic", ProviderSettings())


def usable_providers(environ: Mapping[str, str], settings: Settings, models: Sequence[str] = ()) -> list[NamedProvider]:
    """Return the providers that are set up here: Anthropic, those of the settings, those with a key in the environment,
    and those that `models` name."""
    keyed = [name for name, kind in KINDS.items() if any(environ.get(each, "").strip() for each in kind.key_variables)]
    named_by = [each.partition("/")[0] for each in models if "/" in each]
    found = {ANTHROPIC: default_provider()}
    for name in (*settings.providers, *keyed, *named_by):
        named = named_provider(name, environ, settings)
        if named is not None:
            found[name] = named
    return list(found.values())


def granted_providers(
    environ: Mapping[str, str], settings: Settings, models: Sequence[str] = ()
) -> list[NamedProvider]:
    """Return the providers that a session may use which began with these models (see `session_provider`)."""
    names = granted_names(settings, models)
    meant = (*models, *settings.modelAliases.values(), settings.smallModel or "")
    return [each for each in usable_providers(environ, settings, meant) if each.name in names]


def offers_of(named: NamedProvider, listed: ModelList | None, environ: Mapping[str, str]) -> list[ModelOffer]:
    """Return the models of a provider: those of its list, the newest first, and those of the settings."""
    table = named.traits(environ)
    models = sorted(listed.models, key=lambda each: each.id) if listed is not None else []
    models.sort(key=lambda each: each.created, reverse=True)
    of_list = {each.id for each in models}
    date = listed.date if listed is not None else ""
    own = [ListedModel(name) for name in named.own.models if name not in of_list]
    front = "" if named.name == ANTHROPIC else f"{named.name}/"
    return [_offer(named, each, front, table.of(each.id), date if each.id in of_list else "") for each in own + models]


def _offer(named: NamedProvider, model: ListedModel, front: str, traits: ModelTraits, date: str) -> ModelOffer:
    known = claude_facts(model.id)  # whoever serves it
    priced = known.input_price > 0
    return ModelOffer(
        front + model.id,
        named.name,
        model.title,
        traits,
        traits.window or (known.context_window if priced else 0),
        known.input_price if traits.input_price is None and priced else traits.input_price,
        known.output_price if traits.input_price is None and priced else traits.output_price,
        date,
    )


def price_text(price: float | None) -> str:
    """Return a price for a million tokens, "-" if it is not known."""
    return "-" if price is None else f"{price:.2f}" if price >= 0.1 or price == 0 else f"{price:.3g}"


def window_text(tokens: int) -> str:
    """Return the size of a window in a few characters: 200k, 1.05M; "-" if it is not known."""
    if not tokens:
        return "-"
    return f"{tokens / 1_000_000:.3g}M" if tokens >= 1_000_000 else f"{tokens / 1_000:.0f}k"
