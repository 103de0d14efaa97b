"""The frames about names: a person types `@` and a part of a name, and is shown which files that may mean."""

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
