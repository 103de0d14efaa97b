"""The text of a settings file. A key that stands twice would hide its first value, which may be a rule that denies.
Both count here: objects and lists are joined, and of other values the last one holds."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from .frames import Json

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


def load_settings(text: str) -> object:
    """Raise ValueError, RecursionError."""
    return json.loads(text[1:] if text.startswith("\ufeff") else text, object_pairs_hook=_joined)


def lines_in(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the line of each value in a JSON text, and that of each key that stands once more in its object, named by
    their keys and places with dots between them."""
    lines: dict[str, int] = {}
    again: dict[str, int] = {}
    counts: dict[str, int] = {}  # the items of lists, also of those that are joined
    above: list[tuple[str, set[str] | None]] = []  # the objects, with their keys, and the lists around a token
    path, named = "", False  # whether the key of the next value has been read
    line, at = 1, 0
    for token in _TOKEN.finditer(text):
        what = token[0]
        line, at = line + text.count("\n", at, token.start()), token.start()
        if what in "}]":
            above = above[:-1]
            continue
        if what in ":,":
            continue
        here, keys = above[-1] if above else ("", None)
        if keys is not None and not named:
            path, named = _below(here, _text(what)), True
            again.update({path: line} if path in keys else {})
            keys.add(path)
            continue
        if above and keys is None:
            path = _below(here, str(counts.setdefault(here, 0)))
            counts[here] += 1
        lines[path], named = line, False
        if what in "{[":
            above.append((path, set() if what == "{" else None))
    return lines, again


def line_of(text: str, keys: Sequence[object]) -> int:
    """Return the line of the value below these keys, or of the nearest value above it."""
    lines = lines_in(text)[0]
    for end in range(len(keys), 0, -1):
        found = lines.get(".".join(map(str, keys[:end])))
        if found is not None:
            return found
    return 1


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _text(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token


def _joined(pairs: list[tuple[str, Any]]) -> Json:
    found: Json = {}
    for key, value in pairs:
        found[key] = _join(found[key], value) if key in found else value
    return found


def _join(first: object, second: object) -> object:
    if isinstance(first, dict) and isinstance(second, dict):
        return {**first, **{key: _join(first[key], value) if key in first else value for key, value in second.items()}}
    if not isinstance(first, (dict, list)) and not isinstance(second, (dict, list)):
        return second
    if not first or not second:
        return first or second
    return [*(first if isinstance(first, list) else [first]), *(second if isinstance(second, list) else [second])]
