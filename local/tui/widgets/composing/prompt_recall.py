"""The prompts that were sent, of this run and of earlier ones, and which of them the person looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_MAX_PROMPTS = 2_000


class PromptKeeper(Protocol):
    """Keeps prompts for later runs of ccb."""

    def add(self, prompt: str) -> None:
        """Keep a prompt that was sent."""

    def keep_draft(self, text: str) -> None:
        """Keep what the person has begun to write."""


class PromptRecall:
    """Goes through `sent`, oldest first. After the newest prompt comes the draft."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.before: tuple[str, ...] = ()
        """The waiting prompts that the one goes before which is edited now."""
        self._keeper: PromptKeeper | None = None
        self._index = 0
        self._draft = ""

    def continue_from(self, keeper: PromptKeeper, prompts: Sequence[str]) -> None:
        """Put the prompts of earlier runs before those of this one, which `keeper` keeps from now on."""
        for prompt in self.sent:
            keeper.add(prompt)
        self._keeper = keeper
        self.sent[:0] = prompts
        self._index += len(prompts)

    def add(self, prompt: str, kept: str = "") -> None:
        """Note that a prompt was sent. `kept` is what later runs are to find in its place."""
        if not self.sent or self.sent[-1] != prompt:
            self.sent.append(prompt)
            if self._keeper is not None:
                self._keeper.add(kept or prompt)
            del self.sent[:-_MAX_PROMPTS]
        self._index = len(self.sent)

    def keep_draft(self, text: str) -> None:
        """Keep what the person has begun to write, for the next run."""
        if self._keeper is not None:
            self._keeper.keep_draft(text)

    def step(self, by: int, text: str) -> str | None:
        """Return the previous (`by` is -1) or the next prompt (1), or None. `text` is what is shown now;
        it is the draft if it is none of the prompts."""
        index = self._index + by
        if not 0 <= index <= len(self.sent):
            return None
        if self._index == len(self.sent):
            self._draft = text
        self._index = index
        return self._draft if index == len(self.sent) else self.sent[index]
