"""Reminders: what ccb tells the model beside the prompts. What must survive a restart is a source (`follow`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Callable

Json = dict[str, Any]

_MAX_WAITING = 64
_MAX_CHARS = 40_000  # of one reminder
_END = "</system-reminder>"


class Occasion(Enum):
    """When reminders are taken."""

    PROMPT = "prompt"
    """A turn begins: they go before the prompt."""
    TOOL_RESULTS = "tool_results"
    """Tool results go to the model: the reminders follow them."""
    COMPACTED = "compacted"
    """A summary has replaced the history: sources say what must not be forgotten."""


Source = Callable[[Occasion], Iterable[str]]


class Reminders:
    """The reminders of one agent."""

    def __init__(self) -> None:
        self._waiting: dict[str, str] = {}
        self._sources: list[Source] = []

    def add(self, key: str, text: str) -> None:
        """Say `text` once, at the next occasion. A newer text with the same key replaces one that still waits."""
        self._waiting.pop(key, None)
        self._waiting[key] = text
        while len(self._waiting) > _MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]

    def follow(self, source: Source) -> None:
        """Ask `source` for texts at every occasion. It must return quickly, and none is the usual answer."""
        self._sources.append(source)

    def take(self, occasion: Occasion) -> list[Json]:
        """Return the content blocks for this occasion, those of the sources first."""
        texts = [text for source in self._sources for text in source(occasion)]
        texts += self._waiting.values()
        self._waiting.clear()
        return [reminder_block([text]) for text in texts if text.strip()]


def reminder_block(texts: Sequence[str]) -> Json:
    """Return the content block that says `texts`. No text can end the block early."""
    body = "\n\n".join(text[:_MAX_CHARS].replace(_END, "<\\/system-reminder>") for text in texts)
    return {"type": "text", "text": f"<system-reminder>\n{body}\n{_END}"}


class DeferredNames:
    """A source of reminders. `names` returns the names of the deferred tools of an agent."""

    def __init__(self, names: Callable[[], Sequence[str]]) -> None:
        self._names = names
        self._told: dict[str, None] = {}

    def __call__(self, occasion: Occasion) -> Iterable[str]:
        if occasion is Occasion.COMPACTED:
            self._told = {}
        now = dict.fromkeys(self._names())
        if now == self._told:
            return
        come = [name for name in now if name not in self._told]
        gone = [name for name in self._told if name not in now]
        self._told = now
        if come:
            yield f"These tools can be found with ToolSearch: {', '.join(come)}"
        if gone:
            yield f"These tools are no longer there: {', '.join(gone)}"
