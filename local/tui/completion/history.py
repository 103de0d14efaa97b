"""Earlier prompts that fit what is typed."""

from __future__ import annotations

from collections.abc import Sequence

from ccb.tunnel.plain_text import one_line

from .offers import Offer, Offers

_MAX_SHOWN = 50
_SHOWN, _SEARCHED = 200, 2_000  # characters


def history_offers(text: str, sent: Sequence[str]) -> Offers:
    """Return the prompts that hold all words of `text`, then those that hold its letters in order, the newest first."""
    wanted = text.lower()
    words = wanted.split()
    newest = [each for each in dict.fromkeys(reversed(sent)) if each != text]
    found = [each for each in newest if all(word in each[:_SEARCHED].lower() for word in words)]
    if len(found) < _MAX_SHOWN:
        held = set(found)
        found += [each for each in newest if each not in held and holds_in_order(each[:_SEARCHED], wanted)]
    items = [
        Offer(one_line(each[: 2 * _SHOWN])[:_SHOWN], "", each, 0, len(text), enter=True) for each in found[:_MAX_SHOWN]
    ]
    more = f"{len(found)} prompts fit" if len(found) > _MAX_SHOWN else ""
    return Offers(items, "history", more if items else "no earlier prompt fits: Esc goes back")


def holds_in_order(text: str, letters: str) -> bool:
    """Return whether `text` holds these lower-case letters in this order."""
    rest = iter(text.lower())
    return all(letter in rest for letter in letters if not letter.isspace())
