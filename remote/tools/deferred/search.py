"""The search for deferred tools: by name, by words, with words that must be there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..contract import Tool

Json = dict[str, Any]

_SELECT = "select:"
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS = re.compile(r"[^\W_]+")
_WHOLE_NAME, _NAME_PART, _IN_NAME, _IN_DESCRIPTION = 1_000, 10, 5, 2


def find(query: str, tools: Sequence[Tool], most: int) -> list[Tool]:
    """Return the tools that a query means, the best first. `select:A,B` names tools; otherwise the words of the query
    are looked for in names and descriptions, and a word after `+` must be there."""
    if query.lower().startswith(_SELECT):
        by_name = {tool.name.lower(): tool for tool in tools}
        names = [name.strip().lower() for name in query[len(_SELECT) :].split(",")]
        return list(dict.fromkeys(by_name[name] for name in names if name in by_name))
    scored = [(_score(query, tool), place, tool) for place, tool in enumerate(tools)]
    best = sorted((each for each in scored if each[0]), key=lambda each: (-each[0], each[1]))
    return [tool for _, _, tool in best[:most]]


def _score(query: str, tool: Tool) -> int:
    parts = {part.lower() for part in _WORDS.findall(_CAMEL.sub(" ", tool.name))}
    told = {word.lower() for word in _WORDS.findall(tool.description)}
    total = 0
    for term in query.lower().split():
        score = _term_score(term.lstrip("+"), tool.name.lower(), parts, told)
        if term.startswith("+") and not score:
            return 0
        total += score
    return total


def _term_score(term: str, name: str, parts: set[str], told: set[str]) -> int:
    if term == name:
        return _WHOLE_NAME
    found = 0
    for word in _WORDS.findall(term):
        if word in parts:
            found += _NAME_PART
        elif word in name:
            found += _IN_NAME
        if word in told:
            found += _IN_DESCRIPTION
    return found
