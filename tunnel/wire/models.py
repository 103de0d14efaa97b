"""What both ends know about models: short names, what an id can look like, limits and prices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from .dataclass import dataclass

ALIASES = {
    "default": "claude-sonnet-4-5",
    "sonnet": "claude-sonnet-4-5",
    "opus": "claude-opus-4-5",
    "haiku": "claude-haiku-4-5",
}
"""Short names of models, and the ids that they stand for."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}")
_TELLING = re.compile(r"[0-9/:-]")


def may_be_model(name: str) -> bool:
    """Return whether `name` is an alias, or an id that some provider may know. An id names a version, a vendor or a
    tag, so it has a digit, a slash, a colon or a hyphen in it: a plain word is a slip."""
    return name in ALIASES or bool(_ID.fullmatch(name) and _TELLING.search(name))


DEFAULT_MAX_TOKENS = 8_000
LONG_CONTEXT = "[1m]"
"""The end of a model's name that asks for its window of a million tokens. The provider gets the name without it."""


@dataclass(frozen=True)
class ModelFacts:
    """Limits in tokens, prices in US dollars for a million tokens. A token that is read from the cache, or written to
    it, costs a share of an input token."""

    context_window: int = 200_000
    max_output: int = 64_000
    input_price: float = 0.0
    output_price: float = 0.0
    read_share: float = 0.1
    write_share: float = 1.25
    efforts: tuple[str, ...] | None = None  # the levels of a model that thinks, other than Claude


_MAX_LEARNED = 1_000
_NUMBERS = 6  # the first fields of `ModelFacts`
_MAX_LEVELS = 10
_learned: dict[str, ModelFacts] = {}
_UNKNOWN = ModelFacts(max_output=DEFAULT_MAX_TOKENS)  # many models refuse a request for more than their limit
_FAMILIES = (  # the first matching prefix counts
    ("claude-opus-4-1", ModelFacts(max_output=32_000, input_price=15, output_price=75)),
    ("claude-opus-4-0", ModelFacts(max_output=32_000, input_price=15, output_price=75)),
    ("claude-opus-4-2", ModelFacts(max_output=32_000, input_price=15, output_price=75)),  # claude-opus-4-20250514
    ("claude-opus-4@", ModelFacts(max_output=32_000, input_price=15, output_price=75)),
    ("claude-3-opus", ModelFacts(max_output=4_096, input_price=15, output_price=75)),
    ("claude-3-sonnet", ModelFacts(max_output=4_096, input_price=3, output_price=15)),
    ("claude-3-7-sonnet", ModelFacts(input_price=3, output_price=15)),
    ("claude-3-5-sonnet", ModelFacts(max_output=8_192, input_price=3, output_price=15)),
    ("claude-3-5-haiku", ModelFacts(max_output=8_192, input_price=0.8, output_price=4)),
    ("claude-3-haiku", ModelFacts(max_output=4_096, input_price=0.25, output_price=1.25)),
    ("claude-opus", ModelFacts(input_price=5, output_price=25)),
    ("claude-sonnet", ModelFacts(input_price=3, output_price=15)),
    ("claude-haiku", ModelFacts(input_price=1, output_price=5)),
)


def learn(model: str, known: ModelFacts) -> None:
    """Remember what is known of a model that has another provider. A host can name any number of models, so the first
    ones only count."""
    if model in _learned or len(_learned) < _MAX_LEARNED:
        _learned[model] = known


def learn_all(models: Mapping[str, Any], thinking: Mapping[str, Any]) -> None:
    """Remember models as the session options have them. `models` are the numbers of `ModelFacts`, by name, `thinking`
    the levels of effort of models that think. What is not like that is left out."""
    for name, values in models.items():
        if isinstance(values, list) and len(values) <= _NUMBERS and all(type(each) in (int, float) for each in values):
            levels = thinking.get(name)
            efforts = tuple(str(level) for level in levels[:_MAX_LEVELS]) if isinstance(levels, list) else None
            learn(name, replace(ModelFacts(*values), efforts=efforts))


@dataclass(frozen=True)
class ModelNames:
    """The short names of models in one session: `own` are those of the person, which count before ccb's."""

    own: Mapping[str, Any] = field(default_factory=dict)

    def may_be(self, name: str) -> bool:
        """Return whether `name` is a short name or can be an id (see `may_be_model`)."""
        return name in self.own or may_be_model(name)

    def resolved(self, name: str) -> str:
        """Return the id of a model for a short name, and any other name as it is."""
        given = self.own.get(name)
        return given if isinstance(given, str) and given else ALIASES.get(name, name)


CCB_NAMES = ModelNames()
"""The short names of ccb alone."""


def facts(model: str) -> ModelFacts:
    """Return the limits and prices of a model. An unknown model costs 0, because a wrong sum is worse than none. Ids of
    other providers are understood as well (`us.anthropic.claude-…-v1:0`, `anthropic/claude-opus-4.1`)."""
    if model.endswith(LONG_CONTEXT):
        return replace(facts(sent_name(model)), context_window=1_000_000)
    if model in _learned:
        return _learned[model]
    start = model.find("claude-")
    name = model[start:].replace(".", "-") if start >= 0 else ""
    for prefix, known in _FAMILIES:
        if name.startswith(prefix) or f"{name}@" == prefix:
            return known
    return _UNKNOWN


def sent_name(model: str) -> str:
    """Return the name of a model as its provider knows it."""
    return model[: -len(LONG_CONTEXT)] if model.endswith(LONG_CONTEXT) else model


def cost_usd(model: str, usage: Mapping[str, Any]) -> float:
    """Return the price of one answer."""
    known = facts(model)
    paid_input = (
        count(usage, "input_tokens")
        + known.write_share * count(usage, "cache_creation_input_tokens")
        + known.read_share * count(usage, "cache_read_input_tokens")
    )
    return (paid_input * known.input_price + count(usage, "output_tokens") * known.output_price) / 1_000_000


def count(usage: Mapping[str, Any], name: str) -> int:
    """Return a token count from a usage object; 0 when it is missing or no number of tokens."""
    value = usage.get(name)
    return value if type(value) is int and 0 <= value < 2**53 else 0
