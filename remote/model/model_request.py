"""Model requests as bytes: each starts with the bytes of the one before, for the provider's cache (invariant 10)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import takewhile
from typing import Any, Callable, Protocol

from ccb.tunnel.wire import model_facts
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.model_facts import CCB_NAMES, NO_CLAUDE, ModelFacts, ModelNames, claude_version, effort_of
from ccb.tunnel.wire.ndjson import dump, load, to_bytes
from ccb.tunnel.wire.session_options import SessionOptions

SMALL = "small"  # stands for the small model of an agent
ESCALATED_MAX_TOKENS = 64_000
LONG_CONTEXT_BETA = "context-1m-2025-08-07"


def resolve_model(name: str | None, names: ModelNames = CCB_NAMES) -> str:
    """Return the model id for an alias or an id; the default model for None and ""."""
    if name and name.endswith(model_facts.LONG_CONTEXT):
        return resolve_model(name[: -len(model_facts.LONG_CONTEXT)], names) + model_facts.LONG_CONTEXT
    return names.resolved(name or "default")


def small_model(model: str, chosen: str, names: ModelNames = CCB_NAMES) -> str:
    """Return the model for small questions beside `model`. A model of an unknown family answers itself."""
    return chosen or (names.resolved("haiku") if model.startswith("claude-") else model)


def betas_of(model: str) -> tuple[str, ...]:
    return (LONG_CONTEXT_BETA,) if model.endswith(model_facts.LONG_CONTEXT) else ()


def max_tokens(known: ModelFacts, *, escalated: bool) -> int:
    return min(ESCALATED_MAX_TOKENS if escalated else model_facts.DEFAULT_MAX_TOKENS, known.max_output)


_MIN_BUDGET = 1_024  # the API refuses less
_ABOVE_BUDGET = 1_024  # tokens for the answer itself
_EFFORT_BETA = "effort-2025-11-24"
_BUDGET_BETA = "task-budgets-2026-03-13"
_INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"


def allowed(options: SessionOptions, tokens: int) -> int:
    """Return how long an answer may be: no longer than the laptop allows."""
    return min(tokens, options.max_output_tokens or tokens)


def reasoning_fields(
    options: SessionOptions, model: str, known: ModelFacts, limit: int, *, may_think: bool
) -> tuple[Json, int, Sequence[str]]:
    """Return fields of the body for an answer of at most `limit` tokens, the output limit, and the betas."""
    betas, version = list(options.betas), claude_version(model)
    effort = effort_of(model, known, options.effort)
    config: Json = {"effort": effort} if effort else {}
    if effort and version < (4, 6):
        betas.append(_EFFORT_BETA)
    if options.task_budget:
        config["task_budget"] = {"type": "tokens", "total": options.task_budget}
        betas.append(_BUDGET_BETA)
    body: Json = {"output_config": config} if config else {}
    thinking, limit = _thinking(options, model, known, limit, may_think=may_think)
    if thinking.get("type") == "enabled" and version >= (4, 0):
        betas.append(_INTERLEAVED_BETA)
    if options.thinking_display and thinking.get("type") in ("adaptive", "enabled"):
        thinking["display"] = options.thinking_display
    return {**body, "thinking": thinking} if thinking else body, limit, betas


def _thinking(
    options: SessionOptions, model: str, known: ModelFacts, limit: int, *, may_think: bool
) -> tuple[Json, int]:
    version, tokens = claude_version(model), options.max_thinking_tokens
    if tokens is not None and version >= (4, 6):
        return {"type": "adaptive" if tokens else "disabled"}, limit
    if tokens == 0 and version == NO_CLAUDE and can_think(model, known):
        return {"type": "disabled"}, limit
    if tokens and can_think(model, known) and (may_think or version == NO_CLAUDE):
        limit = min(allowed(options, known.max_output), max(limit, tokens + _ABOVE_BUDGET))
        return {"type": "enabled", "budget_tokens": max(_MIN_BUDGET, min(tokens, limit - _ABOVE_BUDGET))}, limit
    return {}, limit


def thinks(known: ModelFacts, asked: Mapping[str, Any]) -> bool:
    kind = (asked.get("thinking") or {}).get("type")
    return kind != "disabled" and (kind is not None or known.efforts is not None)


def can_think(model: str, known: ModelFacts) -> bool:
    return claude_version(model) >= (3, 7) or known.efforts is not None


PATH = "/v1/messages"
_END = "],"  # of the messages
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # as an escape, and not behind an escaped backslash
_MAX_CACHE_MARKS = 4  # the API's limit for one request
_MESSAGE_MARKS = 2  # on the newest user message, and on the one before, which the last request marked


CLEARED = "[Old tool result content cleared]"
THINKING = ("thinking", "redacted_thinking")


class HistoryMessage:
    """One message, its bytes kept until it changes. Thinking that the present model may not see is hidden."""

    def __init__(self, role: str) -> None:
        self.role = role
        self._blocks: list[Json] = []
        self._hidden: frozenset[int] = frozenset()  # the ids of blocks
        self._encoded: bytes | None = None

    @property
    def blocks(self) -> list[Json]:
        return [block for block in self._blocks if id(block) not in self._hidden] if self._hidden else self._blocks

    def show(self, may_see: Callable[[Json], bool]) -> None:
        hidden = frozenset(id(b) for b in self._blocks if b.get("type") in THINKING and not may_see(b))
        if hidden != self._hidden:
            self._hidden, self._encoded = hidden, None

    def take_over(self, other: HistoryMessage) -> None:
        self._blocks += other._blocks
        self._hidden |= other._hidden
        self._encoded = None

    def put(self, block: Json, at: int | None = None) -> None:
        self._blocks.insert(len(self._blocks) if at is None else at, block)
        self._encoded = None

    def keep(self, wanted: Callable[[Json], bool]) -> None:
        kept = list(filter(wanted, self._blocks))
        if len(kept) != len(self._blocks):
            self._blocks, self._encoded = kept, None
            self._hidden &= {id(block) for block in kept}

    def cut_before(self, block: Json) -> tuple[HistoryMessage, HistoryMessage] | None:
        """Return what is before this very block, and the block with what follows it. None if it is not here."""
        place = next((place for place, each in enumerate(self._blocks) if each is block), None)
        if place is None:
            return None
        halves = HistoryMessage(self.role), HistoryMessage(self.role)
        halves[0]._blocks, halves[1]._blocks = self._blocks[:place], self._blocks[place:]
        halves[0]._hidden = halves[1]._hidden = self._hidden
        return halves

    def clear_results(self, tool_use_ids: Collection[str]) -> None:
        for place, block in enumerate(self._blocks):
            if block.get("tool_use_id") in tool_use_ids:
                self._blocks[place] = {**block, "content": CLEARED}
                self._encoded = None

    def end_before(self, kinds: Sequence[str]) -> None:
        gone = {id(block) for block in takewhile(lambda block: block.get("type") in kinds, reversed(self.blocks))}
        self.keep(lambda block: id(block) not in gone)

    def begins_with(self, kind: str) -> bool:
        shown = self.blocks
        return bool(shown) and shown[0].get("type") == kind

    def api(self) -> Json:
        return {"role": self.role, "content": self.blocks}

    def encoded(self) -> bytes:
        if self._encoded is None:
            self._encoded = to_bytes(sendable(self.api()))
        return self._encoded

    def encoded_with_cache_mark(self) -> bytes:
        *first, last = self.blocks
        marked = [*first, {**last, "cache_control": {"type": "ephemeral"}}]
        return to_bytes(sendable({"role": self.role, "content": marked}))


class RequestPrefix:
    def __init__(self, system: Sequence[Json], tools: Sequence[Json]) -> None:
        used = sum(1 for block in system if "cache_control" in block)
        marked = [dict(tool) for tool in tools]
        if marked and used < _MAX_CACHE_MARKS:
            marked[-1]["cache_control"] = {"type": "ephemeral"}
            used += 1
        self.message_marks = max(0, min(_MESSAGE_MARKS, _MAX_CACHE_MARKS - used))
        blocks, declared = _array(system), _array(marked)
        self.system_size, self.tools_size = len(blocks), len(declared)
        self.encoded = to_bytes(f'{{"system":{blocks},"tools":{declared},"messages":[')


def body(
    prefix: RequestPrefix,
    messages: Sequence[HistoryMessage],
    model: str,
    max_tokens: int,
    session_id: str,
    **more: object,
) -> list[bytes]:
    """Return the body in pieces: a large history is not copied or encoded again."""
    users = [i for i, message in enumerate(messages) if message.role == "user"]
    marked = set(users[len(users) - prefix.message_marks :]) if prefix.message_marks else set()
    pieces = [prefix.encoded]
    for i, message in enumerate(messages):
        if i:
            pieces.append(b",")
        pieces.append(message.encoded_with_cache_mark() if i in marked else message.encoded())
    user = hashlib.sha256(session_id.encode()).hexdigest()
    asked = {"model": model_facts.sent_name(model), "max_tokens": max_tokens, "stream": True}
    rest = {**asked, "metadata": {"user_id": user}, **more}
    return [*pieces, to_bytes(_END + dump(rest)[1:])]


def usage_of(pieces: Sequence[bytes], told: Mapping[str, Any]) -> Json:
    """Return the usage of an answer; what the provider does not tell is counted at most."""
    if (
        told.get(model_facts.ESTIMATED) != model_facts.AT_MOST
        and model_facts.count(told, model_facts.TOKENS[3])
        and any(model_facts.count(told, name) for name in model_facts.TOKENS[:3])
    ):
        return dict(told)
    return model_facts.at_most(
        told, sum(map(len, pieces)) // model_facts.BYTES_PER_TOKEN, int(_rest(pieces)["max_tokens"])
    )


def _rest(pieces: Sequence[bytes]) -> Json:
    text = pieces[-1].decode()
    rest = load("{" + text[len(_END) :] if text.startswith(_END) else text)
    assert isinstance(rest, dict)
    return rest


def without_stream(pieces: Sequence[bytes]) -> list[bytes]:
    whole = dump({**_rest(pieces), "stream": False})
    return [*pieces[:-1], to_bytes(_END + whole[1:] if pieces[-1].startswith(to_bytes(_END)) else whole)]


def headers(version: str, betas: Sequence[str] = ()) -> dict[str, str]:
    return {
        **({"anthropic-beta": ",".join(betas)} if betas else {}),
        "content-type": "application/json",
        "accept": "text/event-stream",
        "anthropic-version": "2023-06-01",
        "user-agent": f"ccb/{version}",
    }


def sendable(item: Json) -> str:
    """Return JSON text that each provider takes: a NUL becomes U+FFFD."""
    text = dump(item)
    return _NUL.sub("\\1\ufffd", text) if "\\u0000" in text else text


def _array(items: Sequence[Json]) -> str:
    return "[" + ",".join(sendable(item) for item in items) + "]"


class ModelResponse(Protocol):
    status: int
    headers: Mapping[str, str]  # names in lower case

    def body(self) -> AsyncIterator[bytes]:
        """Yield the bytes as they arrive. Raises `ModelLinkError` when the call is lost for good."""


class ModelLinkError(Exception):
    """The call failed below HTTP and may be retried. A lost link to the laptop is no error: the call waits."""


class ModelTransport(Protocol):
    def request(
        self, call_id: str, method: str, path: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> AbstractAsyncContextManager[ModelResponse]: ...

    def resume(self, call_id: str) -> float:
        """Open a call anew under its id: the answer goes on at the byte that was reached. Return when (monotonic) the
        last piece of the request was sent."""


class ContextSize:
    """`counted`: the last request and its answer, 0 if the provider counts nothing; `estimated`: all messages."""

    def __init__(self) -> None:
        self.counted = 0
        self.estimated = 0
        self._since = 0  # estimate of what the count does not cover
        self._during = 0  # of that, what came since the present answer began
        self._answer = ""

    def tokens(self, prefix: int) -> int:
        return self.counted + self._since if self.counted else prefix + self.estimated

    def sent(self, block: Json) -> None:
        self._grow(block)
        self._during += block_tokens(block)

    def answered(self, message_id: str, block: Json) -> None:
        if message_id != self._answer:
            self._answer, self._during = message_id, 0
        self._grow(block)

    def ended(self, usage: Mapping[str, Any]) -> None:
        """An answer is complete. Results of its first tools may be there already: the count is without them."""
        self.counted = model_facts.context_tokens(usage)
        self._since, self._during, self._answer = self._during, 0, ""

    def cleared(self, saved: int) -> None:
        self.counted, self.estimated = max(0, self.counted - saved), max(0, self.estimated - saved)

    def restarted(self, prefix: int) -> None:
        self.counted, self.estimated, self._since, self._during = prefix, 0, 0, 0

    def _grow(self, block: Json) -> None:
        tokens = block_tokens(block)
        self.estimated += tokens
        self._since += tokens


MEDIA_TOKENS = 2_000  # an image or a document
MAX_SUMMARY_TOKENS = 20_000
_BUFFER = 13_000
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True)
class WindowSettings:
    """`window`: tokens, 0 for the model's own; `auto`: compact unasked."""

    window: int = 0
    auto: bool = True

    @staticmethod
    def from_env(environ: Mapping[str, str]) -> WindowSettings:
        """Read CCB_MAX_CONTEXT_TOKENS and CCB_DISABLE_AUTO_COMPACT, also under the family's names."""
        given = environ.get("CCB_MAX_CONTEXT_TOKENS") or environ.get("CLAUDE_CODE_MAX_CONTEXT_TOKENS") or ""
        window = int(given) if given.isascii() and given.isdigit() else 0
        off = environ.get("CCB_DISABLE_AUTO_COMPACT") or environ.get("DISABLE_AUTO_COMPACT") or ""
        return WindowSettings(window, off in ("", "0", "false"))


@dataclass(frozen=True)
class ContextLimits:
    """Tokens. `usable` is the window without room for a summary; from `auto` on the conversation is compacted."""

    window: int
    summary: int
    usable: int
    auto: int

    @staticmethod
    def of(known: ModelFacts, settings: WindowSettings) -> ContextLimits:
        window = settings.window or known.context_window
        summary = max(1, min(known.max_output, MAX_SUMMARY_TOKENS, window // 5))
        usable = window - summary
        return ContextLimits(window, summary, usable, usable - min(_BUFFER, window // 10))


def text_tokens(size: int) -> int:
    return -(-size // _BYTES_PER_TOKEN)


def block_tokens(block: Json) -> int:
    kind = block.get("type")
    if kind in ("image", "document"):
        return MEDIA_TOKENS
    if kind == "tool_result":
        content = block.get("content")
        if isinstance(content, list):
            return 10 + sum(block_tokens(each) for each in content if isinstance(each, dict))
        return 10 + _size(content)
    if kind in ("text", "thinking"):
        return _size(block.get(kind))
    return _size(json.dumps(block, ensure_ascii=False))


def _size(text: object) -> int:
    return text_tokens(len(text.encode("utf-8", "replace"))) if isinstance(text, str) else 0
