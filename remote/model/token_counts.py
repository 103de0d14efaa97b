"""Sizes in tokens: estimates of the history, and the limits of the model's window."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.model_facts import ModelFacts, context_tokens

Json = dict[str, Any]


class ContextSize:
    """`counted` is the size of the last request and its answer, 0 if the provider counts nothing; `estimated` that of
    all messages."""

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
        self.counted = context_tokens(usage)
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
_WARNING = 20_000
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
    warning: int

    @staticmethod
    def of(known: ModelFacts, settings: WindowSettings) -> ContextLimits:
        window = settings.window or known.context_window
        summary = max(1, min(known.max_output, MAX_SUMMARY_TOKENS, window // 5))
        usable = window - summary
        auto = usable - min(_BUFFER, window // 10)
        return ContextLimits(window, summary, usable, auto, auto - min(_WARNING, window // 10))


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
