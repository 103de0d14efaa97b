"""What the model is told of deferred tools: their names, once, and then what has changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Callable

from ...context.reminders import Occasion


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
