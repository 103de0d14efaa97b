"""Find literal texts in a regular expression such that every match contains one of them. A fast program can search for
these first."""

from __future__ import annotations

import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # each import is felt where each search starts the program anew
    from typing import Any

_MAX_TEXTS = 40
_UNSAFE_IGNORING_CASE = frozenset("iksIKS")  # when case is ignored, these also match other Unicode characters


def required(pattern: str, flags: int) -> tuple[list[str], bool]:
    """Return (texts, ignore case). Every line with a match contains at least one of the texts. An empty list means that
    no such texts are known."""
    tree = _parser().parse(pattern, flags)
    finder = _Finder(bool(tree.state.flags & re.IGNORECASE) or _has_local_ignorecase(tree))
    found = finder.sequence(tree)
    return (sorted(found), finder.ignore_case) if found and min(map(len, found)) >= 2 else ([], False)


def _parser() -> Any:
    """Return the parser module of `re`, which `re` has imported. Its name depends on the version of Python."""
    return sys.modules["re._parser" if sys.version_info >= (3, 11) else "sre_parse"]


def _has_local_ignorecase(tree: Any) -> bool:
    for operation, argument in tree:
        if operation.name == "SUBPATTERN" and (argument[1] & re.IGNORECASE or _has_local_ignorecase(argument[3])):
            return True
        if operation.name == "BRANCH" and any(_has_local_ignorecase(each) for each in argument[1]):
            return True
        if operation.name.endswith("_REPEAT") and _has_local_ignorecase(argument[2]):
            return True
        if operation.name == "ATOMIC_GROUP" and _has_local_ignorecase(argument):
            return True
    return False


class _Finder:
    def __init__(self, ignore_case: bool) -> None:
        self.ignore_case = ignore_case

    def sequence(self, tree: Any) -> set[str] | None:
        best: set[str] | None = None
        run = ""
        for operation, argument in tree:
            name = operation.name
            if name == "LITERAL" and self._is_safe(chr(argument)):
                run += chr(argument)
                continue
            best = _better(best, {run} if run else None)
            run = ""
            best = _better(best, self._one(name, argument))
        return _better(best, {run} if run else None)

    def _one(self, name: str, argument: Any) -> set[str] | None:
        if name == "SUBPATTERN":
            return self.sequence(argument[3])
        if name == "ATOMIC_GROUP":
            return self.sequence(argument)
        if name.endswith("_REPEAT") and argument[0] >= 1:
            return self.sequence(argument[2])
        if name == "BRANCH":
            together: set[str] = set()
            for branch in argument[1]:
                found = self.sequence(branch)
                if found is None:
                    return None
                together |= found
            return together if len(together) <= _MAX_TEXTS else None
        return None

    def _is_safe(self, char: str) -> bool:
        if char in "\r\n\0" or "\ud800" <= char <= "\udfff":
            return False
        return not self.ignore_case or (char.isascii() and char not in _UNSAFE_IGNORING_CASE)


def _better(one: set[str] | None, other: set[str] | None) -> set[str] | None:
    if not one or not other:
        return one or other
    return max(one, other, key=lambda texts: (min(map(len, texts)), -len(texts)))
