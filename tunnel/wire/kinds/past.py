"""The frames about earlier events, which a client loads when a person scrolls up."""

from __future__ import annotations

from typing import Any, ClassVar

from ..dataclass import dataclass

Json = dict[str, Any]


@dataclass(frozen=True)
class Fetch:
    """L>W. Asks for the newest events before number `before`, about `most` bytes of them. Viewers may ask too."""

    t: ClassVar[str] = "fetch"
    epoch: int
    request: int
    before: int
    most: int


@dataclass(frozen=True)
class Past:
    """W>L. The answer to `fetch`. `body` is {"records": [{"seq", "kind", "body"}, …]}: events in order and without
    gaps, the last one just before `before`. The list is empty when there are none."""

    t: ClassVar[str] = "past"
    epoch: int
    request: int
    body: Json
