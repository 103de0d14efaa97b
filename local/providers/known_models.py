"""The models that a person can choose, what is known of them, and whether their provider lists them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.providers.anthropic import BASE_URL_VARIABLE
from ccb.tunnel.providers.model_lists import ListedModel
from ccb.tunnel.providers.model_traits import ModelTraits
from ccb.tunnel.providers.provider import ProviderError
from ccb.tunnel.providers.provider_kinds import ANTHROPIC, KINDS
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.model_facts import (
    ALIASES,
    EFFORTS,
    LONG_CONTEXT,
    ModelFacts,
    ModelTable,
    clamped,
    claude_facts,
    effort_levels,
    sent_name,
)

from ..config.settings import ProviderSettings
from .model_list_cache import FRESH_S, NEW_S, ModelList, keep_list
from .named_provider import Environ, NamedProvider, granted_names, named_provider
from .session_provider import Stored, model_source

if TYPE_CHECKING:
    from ..config.settings import Settings


log = logging.getLogger(__name__)

_ASK_S = 4.0  # how long a session waits before its first turn for a list, if no kept list names its model
_REFRESH_S = 60.0
_MAX_NEAR = 4
_FAMILIES = ("opus", "sonnet", "haiku")
_DEFAULT_FAMILY = "sonnet"


def provider_and_model(model: str, environ: Environ, settings: Settings) -> tuple[NamedProvider, str] | None:
    """Return the provider of a model, and its own name of it. None for a model behind a gateway."""
    name, slash, rest = model.partition("/")
    named = named_provider(name, environ, settings) if slash else None
    if named is not None:
        return named, rest
    if slash or environ.get(BASE_URL_VARIABLE, "").strip():
        return None
    anthropic = named_provider(ANTHROPIC, environ, settings)
    return None if anthropic is None else (anthropic, sent_name(short_names(environ).get(model, model)))


def short_names(environ: Environ) -> dict[str, str]:
    """Return the newest of each family in Anthropic's kept list; without one, or behind a gateway, what ccb knows."""
    kept = None if environ.get(BASE_URL_VARIABLE, "").strip() else default_provider().kept_list(environ)
    names = dict(ALIASES)
    models = kept.models if kept is not None else ()
    for family in _FAMILIES:
        listed = [(each.created, each.id) for each in models if each.id.startswith(f"claude-{family}-")]
        if listed:
            names[family] = max(listed)[1]
    names["default"] = names[_DEFAULT_FAMILY]
    return names


def model_traits(name: str, environ: Environ, settings: Settings) -> tuple[NamedProvider, ModelTraits] | None:
    """Return what is known of a model that names its provider, None for a model of Anthropic's or of a gateway."""
    found = provider_and_model(name, environ, settings) if "/" in name else None
    return None if found is None else (found[0], found[0].traits(environ)(found[1]))


def model_options(
    model: str, others: Sequence[str], environ: Environ, settings: Settings, table: ModelTable
) -> dict[str, Any]:
    """Return the fields of SessionOptions about models. `table` learns the same, for budgets."""
    chosen, aliases = settings.smallModel or "", settings.modelAliases
    small = aliases.get(chosen, chosen) or _small_model(model, environ, settings)
    known = [f"{name}/{model}" for name, each in settings.providers.items() for model in each.models]
    short = {name: model for name, model in short_names(environ).items() if ALIASES[name] != model}
    told: dict[str, list[object]] = {}
    thinking: dict[str, list[str]] = {}
    for given in filter(None, [model or "default", *others, small, *aliases.values(), *short, *known]):
        name = sent_name(short.get(given) or ALIASES.get(given, given))
        found = provider_and_model(name, environ, settings)
        if found is None or not ("/" in name or _listed(*found, environ)):
            continue
        traits = found[0].traits(environ)(found[1])
        facts = traits.facts(name)
        table.learn(name, facts)
        told[name] = _as_sent(facts)
        if traits.thinking:
            thinking[name] = list(traits.efforts)
    small_ones = {"small_model": small, "compact_model": small if chosen else ""}
    return {"model_facts": told, "thinking_models": thinking, "model_aliases": {**short, **aliases}, **small_ones}


def _as_sent(facts: ModelFacts) -> list[object]:
    known = [facts.context_window, facts.max_output, facts.input_price, facts.output_price]
    long = [facts.long_from, facts.long_input, facts.long_output] if facts.long_from else []
    return [*known, facts.read_share, facts.write_share, *long]


def _listed(named: NamedProvider, name: str, environ: Environ) -> bool:
    kept = named.kept_list(environ)
    return kept is not None and kept.find(name) is not None


def _small_model(model: str, environ: Environ, settings: Settings) -> str:
    """Return the small model of a model's provider, "" if the provider has none or does not list it."""
    found = provider_and_model(model, environ, settings) if "/" in model else None
    if found is None or not (small := found[0].kind.small_model):
        return ""
    is_there = found[0].kept_list(environ) is None or _listed(found[0], small, environ)
    return f"{found[0].name}/{small}" if is_there else ""


def said_at_start(model: str, environ: Environ, settings: Settings, effort: str = "") -> list[str]:
    """Return what a model cannot do, in sentences. Raise UsageError for one that cannot work as an agent."""
    found = model_traits(model, environ, settings)
    if found is None:
        return []
    named, traits = found
    if not traits.tools:
        raise UsageError(f"{model} takes no tools, so it cannot work as an agent", do="Choose another model.")
    lacks = [word for word, has in (("images", traits.images), ("PDF files", traits.documents)) if not has]
    said = []
    if lacks:
        said.append(f"{model} takes no {' and no '.join(lacks)}: they are named to it instead of shown.")
    if not traits.thinking:
        said.append(f"{model} is not known to think: effort and thinking have no effect.")
    elif effort and not traits.efforts:
        said.append(f"{model} has no levels of effort: --effort {effort} has no effect.")
    elif effort and (level := clamped(effort, traits.efforts)) != effort:
        said.append(f"{model} has no effort {effort}: it is asked for {level}.")
    if not traits.window and not claude_facts(model).priced:
        where = f"providers.{named.name}.models"
        said.append(f"The window of {model} is not known: ccb takes 200,000 tokens. contextWindow in {where} sets it.")
    return said


async def check_models(models: Sequence[str], environ: Environ, settings: Settings, stored: Stored = None) -> list[str]:
    """Raise UsageError for a model that its provider does not list. Return sentences about those that cannot be looked
    up. Without `stored`, only accounts that open without a question are used."""
    said = []
    for model in dict.fromkeys(models):
        found = provider_and_model(model, environ, settings)
        if found is None or found[1] in found[0].own.models or found[1].startswith("arn:"):
            continue  # of some resources of AWS there is no list
        named, name = found
        if _listed(named, name, environ):
            continue
        try:
            listed = await current_list(named, environ, settings, stored, at_start=True)
        except (ProviderError, CcbError):
            continue
        if listed is None or not listed.models or listed.find(name) is not None:
            continue
        if not listed.is_fresh(NEW_S):
            said.append(f"{named.name} does not answer, and its list of models of {listed.date} has no {name}.")
            continue
        raise _unknown(named, name, listed, prefixed="/" in model)
    return said


def _unknown(named: NamedProvider, name: str, listed: ModelList, *, prefixed: bool) -> UsageError:
    import difflib  # no session that begins needs it

    ids = [each.id for each in listed.models]
    near = [each for each in ids if name and name in each] or difflib.get_close_matches(name, ids, _MAX_NEAR, 0.5)
    front = f"{named.name}/" if prefixed else ""
    also = ", ".join(f"{front}{each}" for each in sorted(near)[:_MAX_NEAR])
    return UsageError(
        f"{named.kind.title} has no model {name!r}",
        evidence=f"Near names: {also}." if also else "",
        do=f"`ccb models --provider {named.name}` lists its models.",
    )


async def current_list(
    named: NamedProvider, environ: Environ, settings: Settings, stored: Stored = None, *, at_start: bool = False
) -> ModelList | None:
    """Return a provider's kept list if it is fresh, or there is no answer, else a new one. None for a provider without
    a list. Raise ProviderError, CcbError."""
    source = model_source(named, environ, settings, stored)
    if source is None:
        return None
    seconds, fresh_s = (_ASK_S, NEW_S) if at_start else (_REFRESH_S, FRESH_S)
    kept = named.kept_list(environ)
    if kept is not None and kept.is_fresh(fresh_s):
        return kept
    await source.load()
    try:
        async with asyncio.timeout(seconds):
            models = await source.fetch()
    except (TimeoutError, ProviderError, CcbError) as error:
        log.info("no new list of models of %s: %r", named.name, error)
        if kept is not None:
            return kept
        if isinstance(error, TimeoutError):
            raise ProviderError(f"{named.name} did not list its models within {seconds:g} s") from None
        raise
    return await asyncio.to_thread(keep_list, environ, named.name, named.address(environ), models)


async def list_or_why(
    named: NamedProvider, environ: Environ, settings: Settings, stored: Stored = None
) -> tuple[ModelList | None, str]:
    """Return the list of a provider and "", or None and the reason why the list is missing."""
    try:
        return await current_list(named, environ, settings, stored), ""
    except (ProviderError, CcbError) as error:
        said = error.what if isinstance(error, CcbError) else str(error)
        return None, f"{named.name}: no list of models: {said}"


async def refresh_lists(
    models: Sequence[str], environ: Environ, settings: Settings, stored: Stored = None, *, after_s: float = 0.0
) -> None:
    """Ask for new lists where the kept ones are old, beside a session: to load an SDK would slow its first prompt."""
    await asyncio.sleep(after_s)
    try:
        found = [provider_and_model(model, environ, settings) for model in models]
        for named in {each[0].name: each[0] for each in found if each is not None}.values():
            with suppress(ProviderError, CcbError):  # the log has it
                await current_list(named, environ, settings, stored)
    except Exception:
        log.exception("the lists of models cannot be refreshed")


@dataclass(eq=False, repr=False)  # the environment may hold keys
class OfferedModels:
    """The models that a session may use: `models` are those of the command line and the settings."""

    _environ: Environ
    _settings: Settings
    _models: Sequence[str]
    _stored: Stored = None
    _table: ModelTable = field(default_factory=ModelTable)
    _kept: Sequence[ModelOffer] = ()

    def without_alias(self, name: str) -> str:
        """Return what a short name of the person stands for, and any other name as it is."""
        return self._settings.modelAliases.get(name, name)

    def offer(self, name: str) -> ModelOffer:
        """Return what is known of a model by its id or a short name, whether a list has it or not."""
        short = self._short_names
        model = short.get(name, name)
        model = short.get(model, model)  # a short name of the person may stand for another one
        named, own_name = provider_and_model(model, self._environ, self._settings) or (default_provider(), model)
        found = _offer(named, ListedModel(own_name), named.traits(self._environ)(own_name))
        window = 1_000_000 if model.endswith(LONG_CONTEXT) else found.window
        return replace(found, name=name, window=window, means="" if model == name else model)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._settings.modelAliases, *(each.name for each in self._kept))

    async def kept(self, current: str = "") -> list[ModelOffer]:
        """Return the models that can be named without any list (short names, the `current` one, those of the settings)
        and those of the lists that this machine keeps, without asking anybody."""

        def read() -> list[ModelOffer]:
            listed = [(named, named.kept_list(self._environ)) for named in self._providers()]
            offers = [each for named, kept in listed for each in offers_of(named, kept, self._environ)]
            short = {name: model for name, model in self._short_names.items() if name != "default"}
            known = {*short, *short.values(), *(each.name for each in offers)}
            others = [current, *self._models, self._settings.model or "", self._settings.smallModel or ""]
            named_ones = [*short, *(each for each in dict.fromkeys(others) if each and each not in known)]
            return [*map(self.offer, named_ones), *(each for each in offers if each.traits.tools)]

        self._kept = offers = await asyncio.to_thread(read)
        return offers

    async def refreshed(self, current: str) -> tuple[list[ModelOffer], list[str]]:
        """Return the models after asking the providers whose lists are old, and a line for each that has none."""
        asking = [list_or_why(each, self._environ, self._settings, self._stored) for each in self._providers()]
        answers = await asyncio.gather(*asking)
        return await self.kept(current), [why for _, why in answers if why]

    async def check(self, name: str) -> list[str]:
        """Return sentences about what a model cannot do. Raise CcbError if its provider does not list it."""
        not_found = await check_models([name], self._environ, self._settings, self._stored)
        return [*said_at_start(name, self._environ, self._settings), *not_found]

    def known(self, name: str) -> dict[str, Any]:
        told = model_options(name, [], self._environ, self._settings, self._table)
        return {"models": told["model_facts"], "thinking": told["thinking_models"]}

    @property
    def _short_names(self) -> Mapping[str, str]:
        return {**short_names(self._environ), **self._settings.modelAliases}

    def _providers(self) -> list[NamedProvider]:
        settings = self._settings
        names = granted_names(settings, self._models)
        meant = (*self._models, *settings.modelAliases.values(), settings.smallModel or "")
        return [each for each in usable_providers(self._environ, settings, meant) if each.name in names]


@dataclass(frozen=True)
class ModelOffer:
    """One model. `name` is for `--model`; if that is a short name, `means` is the id that it stands for. Prices are US
    dollars a million tokens. `listed` is the day of the list."""

    name: str
    provider: str
    title: str
    traits: ModelTraits
    window: int
    input_price: float | None
    output_price: float | None
    listed: str = ""
    means: str = ""

    @property
    def id(self) -> str:
        return self.means or self.name

    @property
    def efforts(self) -> list[str]:
        """The levels of effort that a person can choose for it, in rising order."""
        known = ModelFacts(efforts=self.traits.efforts)
        return [each for each in effort_levels(self.id, known) if each in EFFORTS]

    def effort(self, wanted: str) -> str:
        """Return the level at which it works if a level is wanted, "" for its own."""
        return clamped(wanted, self.efforts)

    @property
    def can(self) -> str:
        traits = self.traits
        words = {"tools": traits.tools, "images": traits.images, "pdf": traits.documents, "thinking": traits.thinking}
        return " ".join(word for word, has in words.items() if has)


def default_provider() -> NamedProvider:
    """Return the provider of models without a provider in front of their names: Anthropic, or a gateway."""
    return NamedProvider(ANTHROPIC, KINDS[ANTHROPIC], "anthropic", ProviderSettings())


def usable_providers(environ: Environ, settings: Settings, models: Sequence[str] = ()) -> list[NamedProvider]:
    """Return Anthropic, and the providers of the settings, with a key in the environment, or named by `models`."""
    keyed = [name for name, kind in KINDS.items() if any(environ.get(each, "").strip() for each in kind.key_variables)]
    named_by = [each.partition("/")[0] for each in models if "/" in each]
    found = {ANTHROPIC: default_provider()}
    for name in (*settings.providers, *keyed, *named_by):
        named = named_provider(name, environ, settings)
        if named is not None:
            found[name] = named
    return list(found.values())


def offers_of(named: NamedProvider, listed: ModelList | None, environ: Environ) -> list[ModelOffer]:
    """Return the models of a provider: those of the settings, and those of its list, the newest first."""
    traits_of = named.traits(environ)
    models = sorted(listed.models, key=lambda each: each.id) if listed is not None else []
    models.sort(key=lambda each: each.created, reverse=True)
    of_list = {each.id for each in models}
    own = [ListedModel(name) for name in named.own.models if name not in of_list]
    date = listed.date if listed is not None else ""
    return [
        *(_offer(named, model, traits_of(model.id)) for model in own),
        *(_offer(named, model, traits_of(model.id), date) for model in models),
    ]


def _offer(named: NamedProvider, model: ListedModel, traits: ModelTraits, listed: str = "") -> ModelOffer:
    known = claude_facts(model.id)  # whoever serves it
    price, priced = (traits.input_price, traits.output_price), known.input_price > 0
    if traits.input_price is None and priced:
        price = known.input_price, known.output_price
    window = traits.window or (known.context_window if priced else 0)
    front = "" if named.name == ANTHROPIC else f"{named.name}/"
    return ModelOffer(front + model.id, named.name, model.title, traits, window, *price, listed)


def price_text(price: float | None) -> str:
    return "-" if price is None else f"{price:.2f}" if price >= 0.1 or price == 0 else f"{price:.3g}"


def window_text(tokens: int) -> str:
    if not tokens:
        return "-"
    return f"{tokens / 1_000_000:.3g}M" if tokens >= 1_000_000 else f"{tokens / 1_000:.0f}k"
