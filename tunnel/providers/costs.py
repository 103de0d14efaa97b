"""What a call costs: price lists and sums.

Prices are those of Anthropic's API (2026-11), the higher one where a model has one that is not known here. Those of
other providers are an extract of 2026-11-26 from the public lists that litellm 1.106.2 (MIT) collects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..wire.dataclass import dataclass
from ..wire.model_facts import BYTES_PER_TOKEN, TOKENS, ModelFacts, ModelTable, count
from .json_fields import object_in, objects_in, text_in
from .request_body import model_of

ANSWERED = "/v1/messages"  # the path of the requests that a model answers, and that cost money
DETAILS = ("cache_creation", "server_tool_use", "iterations", "speed", "inference_geo")
"""The fields of a usage beside the tokens that say what they cost."""

_DETAILS = frozenset(DETAILS)
_SEARCH_USD = 0.01
_MAX_OUTPUT = 128_000
_MAX_SHARE = 2.0  # what a token of the input costs at most, in input tokens: one that the cache keeps for an hour
_MEASURED = frozenset(
    (
        *("model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "stop_sequences", "metadata"),
        *("temperature", "top_p", "top_k", "thinking", "output_config", "output_format", "cache_control"),
        *("service_tier", "speed", "inference_geo", "fallbacks", "models"),
    )
)
"""The members of a request that add no more to the prompt than their bytes: not `mcp_servers`, `container`,
`context_management`, or what is not known here."""

_WRITTEN = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")
"""The blocks whose bytes tell their length: a document of a hundred bytes may have a thousand pages."""

_MAX_NAME = 1_000
_DEAREST = "claude-opus-4-1"
_OTHERS_ANSWER = frozenset(("fallbacks", "models"))  # the members of a request that let another model answer

_FAST, _OLDER_FAST = 2, 6
_OLDER = ("opus-4-6", "opus-4-7", "opus-4.6", "opus-4.7")
_IN_ONE_COUNTRY = 1.1
_LONG, _LONG_INPUT = 200_000, 2.0  # tokens beyond which a call may cost more, and how many times as much


def tokens_of(usage: Mapping[str, Any]) -> list[int]:
    """Return the tokens of each kind in TOKENS. Some parts of an answer (an adviser, a compaction) are not in the
    totals, so the parts together count where they have more."""
    parts = objects_in(usage, "iterations")
    if not parts:
        return [count(usage, kind) for kind in TOKENS]
    return [max(count(usage, kind), sum(count(part, kind) for part in parts)) for kind in TOKENS]


def answer_cost(models: ModelTable, model: str, usage: Mapping[str, Any]) -> float:
    """Return the price of an answer, in dollars."""
    dollars = _tokens_cost(models, model, usage)
    if _DETAILS.isdisjoint(usage):
        return dollars
    parts = sum(_tokens_cost(models, text_in(part, "model") or model, part) for part in objects_in(usage, "iterations"))
    dollars = max(dollars, parts)
    if usage.get("speed") == "fast":
        dollars *= _OLDER_FAST if any(name in model for name in _OLDER) else _FAST
    if usage.get("inference_geo") == "us":
        dollars *= _IN_ONE_COUNTRY
    return dollars + _SEARCH_USD * count(object_in(usage, "server_tool_use"), "web_search_requests")


@dataclass(frozen=True)
class MostCost:
    """What a call may cost at most: dollars, and tokens of all kinds."""

    usd: float = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class BilledRequest:
    """What a request says of its price, without its conversation: many calls may wait before they go out. `size` are
    the bytes of its body, `longest` the tokens that its answer may have. `own_tools`: the agent runs all of its tools.
    `longer`: the prompt may be longer than these bytes tell. `others_answer`: other models than this one may answer.
    `streams`: its answer comes in pieces."""

    model: str
    size: int
    longest: int = _MAX_OUTPUT
    own_tools: bool = True
    longer: bool = False
    others_answer: bool = False
    fast: bool = False
    in_one_country: bool = False
    streams: bool = False


def billed(request: Mapping[str, Any], size: int) -> BilledRequest:
    """Return what a request with a body of `size` bytes says of its price."""
    return BilledRequest(
        model_of(request)[:_MAX_NAME],
        size,
        longest_answer(request.get("max_tokens")),
        own_tools=_own_tools(request),
        longer=_longer(request),
        others_answer=not _OTHERS_ANSWER.isdisjoint(request),
        fast="speed" in request,
        in_one_country="inference_geo" in request,
        streams=bool(request.get("stream")),
    )


def longest_answer(asked: object) -> int:
    """Return the tokens that an answer may have, of which a request asks for at most so many."""
    return asked if type(asked) is int and 0 <= asked <= _MAX_OUTPUT else _MAX_OUTPUT


def most_cost(models: ModelTable, request: BilledRequest) -> MostCost:
    """Return what a request may cost at most. What a model without a price may answer counts as the dearest model."""
    known = models.facts(request.model)
    window = known.context_window
    if request.others_answer or not (request.own_tools and known.priced):
        known = max(known, models.facts(_DEAREST), key=lambda each: each.input_price)
    tokens = request.size // BYTES_PER_TOKEN
    if request.longer or not request.own_tools:
        tokens = max(tokens, window, known.context_window)
    known = with_long_price(request.model, known)
    share, long = max(_MAX_SHARE, known.write_share), 0 < known.long_from < tokens
    usd = (tokens * share * known.input_price + request.longest * known.output_price) / 1_000_000
    usd *= max(_LONG_INPUT if tokens > _LONG else 1, known.long_input if long else 1, known.long_output if long else 1)
    usd *= _OLDER_FAST if request.fast else 1
    usd *= _IN_ONE_COUNTRY if request.in_one_country else 1
    return MostCost(usd, tokens + request.longest)


def _own_tools(request: Mapping[str, Any]) -> bool:
    tools = request.get("tools")
    if isinstance(tools, list):
        return all(isinstance(each, dict) and "type" not in each for each in tools)
    return not tools


def _longer(request: Mapping[str, Any]) -> bool:
    blocks = objects_in(request, "system")
    for message in objects_in(request, "messages"):
        blocks += objects_in(message, "content")
    inner = (each for block in blocks for each in objects_in(block, "content"))
    return (
        not _MEASURED.issuperset(request)
        or any(each.get("type") not in _WRITTEN for each in blocks)
        or any(each.get("type") != "text" for each in inner)
    )


def _tokens_cost(models: ModelTable, model: str, usage: Mapping[str, Any]) -> float:
    return with_long_price(model, models.facts(model)).cost_usd(usage)


_CLAUDE, _GPT, _GROK, _HAIKU = (200_000, 2.0, 1.5), (272_000, 2.0, 1.5), (200_000, 2.0, 2.0), (100_000, 5.0, 5.0)
_TIERS: tuple[tuple[str, tuple[int, float, float]], ...] = (  # the first part of a name that fits counts
    *((name, _CLAUDE) for name in ("sonnet-4-5", "sonnet-4.5", "sonnet-4-0", "sonnet-4-2025", "sonnet-4@2025")),
    *((name, _HAIKU) for name in ("haiku-5-5", "haiku-5.5")),
    *((name, _CLAUDE) for name in ("gemini-2.5-pro", "gemini-3-pro", "gemini-3.1-pro", "gemini-pro-latest")),
    *((name, (0, 1.0, 1.0)) for name in ("gpt-5.4-mini", "gpt-5.4-nano")),
    *((name, _GPT) for name in ("gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-6")),
    *((name, _GROK) for name in ("grok-4.", "grok-build", "grok-code-fast")),
)


def with_long_price(model: str, known: ModelFacts) -> ModelFacts:
    """Return what is known of a model, with what a long request to it costs."""
    for name, (least, dearer_input, dearer_output) in _TIERS:
        if name in model:
            return replace(known, long_from=least, long_input=dearer_input, long_output=dearer_output)
    return known


_PRICED: dict[str, tuple[float, float, float]] = {  # dollars for a million tokens of input, output and cache
    "claude-fable-5 claude-mythos": (10, 50, 1),
    "claude-fable-5-1 claude-mythos-5-1": (10, 50, 0.25),
    "claude-haiku-5-5": (0.1, 0.5, 0.01),
    "claude-opus-5-5": (4, 20, 0.2),
    "claude-sonnet-5": (2, 10, 0.2),
    "claude-sonnet-5-5": (2, 10, 0.1),
    "deepseek-chat deepseek-reasoner": (0.28, 0.42, 0.028),
    "deepseek-flash deepseek-v4-flash": (0.3, 1.2, 0.006),
    "deepseek-v4-pro": (1.32, 3.96, 0.044),
    "gemini-2.5-flash gemini-3.5-flash-lite": (0.3, 2.5, 0.03),
    "gemini-2.5-flash-lite": (0.1, 0.4, 0.01),
    "gemini-2.5-pro gpt-5 gpt-5.1": (1.25, 10, 0.125),
    "gemini-3-flash": (0.5, 3, 0.05),
    "gemini-3.1-flash-lite": (0.25, 1.5, 0.025),
    "gemini-3.1-pro gpt-5.6-terra": (2, 12, 0.2),
    "gemini-3.5-flash": (1.5, 9, 0.15),
    "gemini-3.6-flash gemini-3.7-flash gemini-3.8-flash": (0.75, 3.75, 0.075),
    "gpt-4.1 o3": (2, 8, 0.5),
    "gpt-4.1-mini": (0.4, 1.6, 0.1),
    "gpt-4.1-nano": (0.1, 0.4, 0.025),
    "gpt-4o": (2.5, 10, 1.25),
    "gpt-4o-2024-05-13": (5, 15, 5),
    "gpt-4o-mini": (0.15, 0.6, 0.075),
    "gpt-5-mini gpt-5.1-codex-mini": (0.25, 2, 0.025),
    "gpt-5-nano": (0.05, 0.4, 0.005),
    "gpt-5-pro": (15, 120, 15),
    "gpt-5.2 gpt-5.3": (1.75, 14, 0.175),
    "gpt-5.2-pro": (21, 168, 21),
    "gpt-5.4": (2.5, 15, 0.25),
    "gpt-5.4-mini": (0.75, 4.5, 0.075),
    "gpt-5.4-nano": (0.2, 1.25, 0.02),
    "gpt-5.4-pro gpt-5.5-pro": (30, 180, 30),
    "gpt-5.5": (5, 30, 0.5),
    "gpt-5.6": (4, 20, 0.4),
    "gpt-5.6-luna": (0.2, 1.2, 0.02),
    "grok-4.20 grok-4.3": (1.25, 2.5, 0.2),
    "grok-4.5": (2, 6, 0.3),
    "grok-4.6 grok-4.7": (2, 6, 0.5),
    "grok-build grok-code-fast": (1, 2, 0.2),
    "o3-mini": (1.1, 4.4, 0.55),
    "o3-pro": (20, 80, 20),
    "o4-mini": (1.1, 4.4, 0.275),
}
_PRICES = {name: prices for names, prices in _PRICED.items() for name in names.split()}
_PREVIEWS = ("-preview", "-latest")


def known_prices(model: str) -> dict[str, object]:
    """Return the prices of a model as traits, {} if they are not known. A vendor in front of the name, and a date or a
    word for previews behind it, do not count; any other ending is another model."""
    name = model.rsplit("/", 1)[-1].lower()
    for ending in _PREVIEWS:
        name = name.removesuffix(ending)
    head, dash, last = name.rpartition("-")
    while dash and last.isdecimal() and name not in _PRICES:
        name = head
        head, dash, last = name.rpartition("-")
    found = _PRICES.get(name)
    return {} if found is None else dict(zip(("input_price", "output_price", "cache_read_price"), found, strict=True))
