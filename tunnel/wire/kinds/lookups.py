"""The frames with which a client looks something up on the host: the files that a name behind an `@` may mean, and
earlier events, when a person scrolls up."""

from __future__ import annotations

from typing import Any, ClassVar

from ..dataclass import dataclass

Json = dict[str, Any]

NAMES = "names"
"""The capability of a worker that answers."""


@dataclass(frozen=True)
class FindNames:
    """L>W. Asks for the files and directories that `query` may mean, which a person types behind an `@`. A newer
    question of the same client replaces it."""

    t: ClassVar[str] = "find_names"
    epoch: int
    request: int
    query: str


@dataclass(frozen=True)
class NamesFound:
    """W>L. The answer to `find_names`. `body` is {"names" (relative to the directory of the session, best first;
    directories end with a slash), "more" (there are more that fit), "settled" (the tree is known: the same question has
    the same answer soon), "cut" (the tree is too large to be known)}."""

    t: ClassVar[str] = "names_found"
    epoch: int
    request: int
    body: Json


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
