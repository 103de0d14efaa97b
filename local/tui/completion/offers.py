"""What the list above the composer offers."""

from __future__ import annotations

from collections.abc import Sequence

from ccb.tunnel.wire.dataclass import dataclass


@dataclass(frozen=True)
class Offer:
    """One line of the list. Taking it puts `insert` in place of the characters from `start` to `end` of the text, with
    the cursor `back` characters before its end. `enter`: Enter takes it even if the person has not chosen it. `shown`
    and `does` can be shown."""

    shown: str
    does: str
    insert: str
    start: int
    end: int
    back: int = 0
    enter: bool = False


@dataclass(frozen=True)
class Offers:
    """Everything that is offered for the text. `note` is shown below. Esc closes the list until there are offers about
    something else: those have another `subject`."""

    items: Sequence[Offer]
    subject: str
    note: str = ""
