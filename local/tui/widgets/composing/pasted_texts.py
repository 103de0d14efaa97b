"""Long texts that were pasted: the composer shows a placeholder for each, and the prompt has the text."""

from __future__ import annotations

import re

_LONG, _LINES = 1_000, 15
_MAX_KEPT = 100


class PastedTexts:
    """Keeps the newest pasted texts by their placeholders."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._count = 0

    def shortened(self, text: str) -> str:
        """Return what the composer shows for a pasted text: the text itself, or a placeholder."""
        lines = text.count("\n") + (not text.endswith("\n"))
        if len(text) <= _LONG and lines <= _LINES:
            return text
        self._count += 1
        size = f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
        placeholder = f"[Pasted text #{self._count}, {size}]"
        self._texts[placeholder] = text
        while len(self._texts) > _MAX_KEPT:
            del self._texts[next(iter(self._texts))]
        return placeholder

    def expanded(self, text: str) -> str:
        """Return `text` with the pasted texts in place of their placeholders."""
        if not self._texts:
            return text
        names = "|".join(map(re.escape, self._texts))
        return re.sub(names, lambda found: self._texts[found[0]], text)

    def placeholder_before(self, text: str) -> str:
        """Return the placeholder at the end of `text`, or ""."""
        return next((each for each in self._texts if text.endswith(each)), "")
