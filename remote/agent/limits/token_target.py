"""A token target: with `+500k` as the first or the last word of a prompt, the agent works on until it has written
about so many tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..deps import Prompt

_TARGET = re.compile(r"\+(\d{1,6}(?:\.\d{1,3})?)(k|m)", re.IGNORECASE)
_UNITS = {"k": 1_000, "m": 1_000_000}
_REACHED = 0.9  # of the target
_LITTLE = 500  # tokens of output between two stops
_MIN_NUDGES = 3  # before little output ends the work


class TokenTarget:
    """The target of one turn, in tokens of output; 0 for none."""

    def __init__(self) -> None:
        self.tokens = 0
        self._nudges = 0
        self._last = 0
        self._little = 0  # stops in a row with little output

    def take(self, prompts: Sequence[Prompt]) -> int:
        """Use the target in prompts of the person that join the turn. Return it, 0 if they name none."""
        found = max((target_in(_words(prompt)) for prompt in prompts if _may_name_one(prompt)), default=0)
        self.tokens = found or self.tokens
        return found

    def nudge(self, used: int) -> str:
        """The model has stopped after `used` tokens in this turn. Return what to tell it, "" if it may stop."""
        self._little = self._little + 1 if used - self._last < _LITTLE else 0
        self._last = used
        if used >= _REACHED * self.tokens or self.is_given_up:
            return ""
        self._nudges += 1
        share = round(100 * used / self.tokens)
        return (
            f"You have used {used:,} of the {self.tokens:,} tokens that the user wants to be spent here ({share} %). "
            "Go on with the work, and do not sum up."
        )

    @property
    def is_given_up(self) -> bool:
        """Whether the model has done little after it was told to go on."""
        return self._nudges >= _MIN_NUDGES and self._little >= 2


def target_in(words: Sequence[str]) -> int:
    """Return the target that the first or the last word of a prompt names, 0 for none."""
    for word in (*words[:1], *words[-1:]):
        match = _TARGET.fullmatch(word.rstrip(".!"))
        if match:
            return int(float(match[1]) * _UNITS[match[2].lower()])
    return 0


def _may_name_one(prompt: Prompt) -> bool:
    return prompt.origin is None and not prompt.verbatim


def _words(prompt: Prompt) -> list[str]:
    texts: Iterable[str] = (str(each.get("text", "")) for each in prompt.blocks if each.get("type") == "text")
    return " ".join(texts).split()
