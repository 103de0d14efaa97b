"""What both ends know about models: short names, what an id can look like, limits and prices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from .dataclass import dataclass

_SONNET = "claude-sonnet-4-5"
ALIASES = {"default": _SONNET, "sonnet": _SONNET, "opus": "claude-opus-4-5", "haiku": "claude-haiku-4-5"}
"""Short names of models, and the ids that they stand for."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}")
_TELLING = re.compile(r"[0-9/:-]")


def may_be_model(name: str) -> bool:
    """Return whether `name` is an alias or can be an id, with a digit or a mark in it: a plain word is a slip."""
    return name in ALIASES or bool(_ID.fullmatch(name) and _TELLING.search(name))


DEFAULT_MAX_TOKENS = 8_000
LONG_CONTEXT = "[1m]"  # ends the name of a model with a window of a million tokens. The provider does not get it

SEALED = "ccb1."  # starts a signature of thinking in which the laptop keeps what another provider wants back

TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
"""The counts of a usage object that are paid for."""

_HOUR_SHARE = 2


@dataclass(frozen=True)
class ModelFacts:
    """Limits in tokens, prices in US dollars for a million tokens, and the shares of an input token for one from or
    into the cache. A request of more than `long_from` tokens costs so many times as much, and its answer, too."""

    context_window: int = 200_000
    max_output: int = 64_000
    input_price: float = 0.0
    output_price: float = 0.0
    read_share: float = 0.1
    write_share: float = 1.25
    long_from: int = 0  # 0: never
    long_input: float = 1.0
    long_output: float = 1.0
    efforts: tuple[str, ...] | None = None  # the levels of a model that thinks, other than Claude
    free: bool = False

    @property
    def priced(self) -> bool:
        return self.input_price > 0 or self.free

    def cost_usd(self, usage: Mapping[str, Any]) -> float:
        fresh, written, read, answer = (count(usage, name) for name in TOKENS)
        kept = usage.get("cache_creation")
        for_an_hour = count(kept, "ephemeral_1h_input_tokens") if isinstance(kept, dict) else 0
        paid = fresh + self.write_share * written + self.read_share * read
        paid += max(0, _HOUR_SHARE - self.write_share) * for_an_hour
        paid, output = paid * self.input_price, answer * self.output_price
        if 0 < self.long_from < fresh + written + read:
            paid, output = paid * self.long_input, output * self.long_output
        return (paid + output) / 1_000_000


_MAX_LEARNED = 1_000
_NUMBERS = 9  # the first fields of `ModelFacts`
_DATE = re.compile(r"[-@]\d{8}$")
_OPUS_4 = ModelFacts(max_output=32_000, input_price=15, output_price=75)
_SONNET_4 = ModelFacts(input_price=3, output_price=15, long_from=200_000, long_input=2, long_output=1.5)
_UNKNOWN = ModelFacts(max_output=DEFAULT_MAX_TOKENS)  # many models refuse a request for more than their limit
_FAMILIES = (  # the first matching prefix counts
    *((f"claude-opus-4{version}", _OPUS_4) for version in ("-1", "-0", "-2", "@")),  # claude-opus-4-20250514
    *((f"claude-sonnet-4{version}", _SONNET_4) for version in ("-5", "-0", "-2", "@")),
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


class ModelTable:
    """What one end of a session knows of models: Claude models, and those that it has learned."""

    def __init__(self) -> None:
        self._learned: dict[str, ModelFacts] = {}

    def learn(self, model: str, known: ModelFacts) -> None:
        """Remember a model. A host can name any number of models, so the first ones only count."""
        if model in self._learned or len(self._learned) < _MAX_LEARNED:
            self._learned[model] = known

    def learn_all(self, models: Mapping[str, Any], thinking: Mapping[str, Any]) -> None:
        """Remember models as the session options have them: the numbers of `ModelFacts`, and the levels of effort of
        models that think. What is not like that is left out."""
        for name, values in models.items():
            if not isinstance(values, list) or len(values) > _NUMBERS:
                continue
            if all(type(each) in (int, float) for each in values):
                levels = thinking.get(name)
                efforts = tuple(map(str, levels)) if isinstance(levels, list) else None
                self.learn(name, replace(ModelFacts(*values), efforts=efforts))

    def facts(self, model: str) -> ModelFacts:
        """Return the facts of a model. An unknown one costs 0, because a wrong sum is worse than none."""
        if model.endswith(LONG_CONTEXT):
            return replace(self.facts(sent_name(model)), context_window=1_000_000)
        learned = self._learned
        return learned.get(model) or learned.get(_DATE.sub("", model)) or claude_facts(model)

    def paid_as(self, answered: str, asked: str) -> str:
        """Return the name under which an answer is paid for: that of the model that answered, unless
        only the one that was asked for has a price."""
        return asked if asked and not self.facts(answered).priced else answered


@dataclass(frozen=True)
class ModelNames:
    """The short names of models in one session: `own` are those of the person, which count before ccb's."""

    own: Mapping[str, Any] = field(default_factory=dict)

    def may_be(self, name: str) -> bool:
        return name in self.own or may_be_model(name)

    def resolved(self, name: str) -> str:
        given = self.own.get(name)
        return given if isinstance(given, str) and given else ALIASES.get(name, name)


CCB_NAMES = ModelNames()  # the short names of ccb alone


def claude_facts(model: str) -> ModelFacts:
    """Return the facts of a Claude model, whoever serves it (`us.anthropic.claude-…-v1:0`)."""
    start = model.find("claude-")
    name = model[start:].replace(".", "-") if start >= 0 else ""
    for prefix, known in _FAMILIES:
        if name.startswith(prefix) or f"{name}@" == prefix:
            return known
    return _UNKNOWN


EFFORTS = ("low", "medium", "high", "xhigh", "max")
"""The levels of effort that a person can choose, in rising order."""

LEVELS = ("none", "minimal", *EFFORTS)  # all that a provider may have
_VERSION = re.compile(r"claude-(?:(?:opus|sonnet|haiku)-)?(\d+)(?:[-.](\d)(?!\d))?")
NO_CLAUDE = (0, 0)  # the version of a model that is not a Claude


def claude_version(model: str) -> tuple[int, int]:
    """Return the version in the id of a Claude model, NO_CLAUDE for any other model."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else NO_CLAUDE


def effort_levels(model: str, known: ModelFacts) -> list[str]:
    """Return the levels of effort that the model with this id takes, in rising order; none for one without levels."""
    version = claude_version(model)
    if version == NO_CLAUDE:
        return [each for each in LEVELS if each in (known.efforts or ())]
    if version >= (4, 6):
        return [each for each in EFFORTS if each != "xhigh" or version >= (4, 7)]
    return ["low", "medium", "high"] if "opus-4-5" in model or "opus-4.5" in model else []


def effort_of(model: str, known: ModelFacts, wanted: str | None) -> str:
    """Return the wanted level of effort, or the highest below it that the model knows; "" for none."""
    return clamped(wanted or "", effort_levels(model, known))


def clamped(level: str, known: Sequence[str]) -> str:
    """Return the level of `known`, in rising order, that is nearest: the highest below, or the lowest of all."""
    if not level or not known:
        return ""
    below = [each for each in known if LEVELS.index(each) <= LEVELS.index(level)]
    return below[-1] if below else known[0]


def sent_name(model: str) -> str:
    return model[: -len(LONG_CONTEXT)] if model.endswith(LONG_CONTEXT) else model


ESTIMATED = "estimated"  # in a usage whose counts are not all the provider's: True, or AT_MOST

AT_MOST = "at_most"
BYTES_PER_TOKEN = 3  # the fewest that a text has
_COUNTS = (*TOKENS, "ephemeral_1h_input_tokens", "web_search_requests")
_OBJECTS, _TEXTS = ("cache_creation", "server_tool_use"), ("speed", "inference_geo")


def add_usage(usage: dict[str, Any], more: object) -> None:
    """Add what a later part of an answer says to its usage. What cannot be read makes it AT_MOST from then on."""
    unreadable = usage.get(ESTIMATED) == AT_MOST or not _is_readable(more)
    told: dict[str, Any] = more if isinstance(more, dict) else {}
    for name, value in told.items():
        if name in TOKENS:
            value = count(told, name) or count(usage, name)
        if value is not None:
            usage[name] = value
    if unreadable:
        usage[ESTIMATED] = AT_MOST


def at_most(usage: Mapping[str, Any], prompt: int, longest: int) -> dict[str, Any]:
    """Return the usage of a complete answer, with the most that it can be where the provider does not tell it."""
    unreadable = usage.get(ESTIMATED) == AT_MOST
    missing: dict[str, Any] = {}
    if unreadable or not any(count(usage, name) for name in TOKENS[:3]):
        missing[TOKENS[0]] = max(prompt, count(usage, TOKENS[0]))
    if unreadable or not count(usage, TOKENS[3]):
        missing[TOKENS[3]] = max(longest, count(usage, TOKENS[3]))
    return {**usage, **missing, ESTIMATED: AT_MOST} if missing else dict(usage)


def context_tokens(usage: Mapping[str, Any]) -> int:
    """Return the size of a request with its answer; 0 if it is not told."""
    return 0 if usage.get(ESTIMATED) == AT_MOST else sum(count(usage, name) for name in TOKENS)


def provider_of(model: str) -> str:
    return model.partition("/")[0] if "/" in model else ""


def is_same_model(one: str, other: str) -> bool:
    return _DATE.sub("", sent_name(one)) == _DATE.sub("", sent_name(other))


def count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return int(value) if value is not None and is_count(value) else 0


def is_count(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**53


def _is_readable(usage: object) -> bool:
    """Return whether all can be read of what is paid for. What is not there costs nothing."""
    if not isinstance(usage, dict):
        return usage is None
    parts = usage.get("iterations")
    if not isinstance(parts, (list, type(None))):
        return False
    objects = [usage, *(parts or ())]
    objects += [each.get(name) or {} for each in objects if isinstance(each, dict) for name in _OBJECTS]
    texts = all(isinstance(usage.get(name), (str, type(None))) for name in _TEXTS)
    counts = [part.get(name) if isinstance(part, dict) else "" for part in objects for name in _COUNTS]
    return texts and all(each is None or is_count(each) for each in counts)
