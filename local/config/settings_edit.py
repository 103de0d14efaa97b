"""Change one value in the text of a settings file, and keep every other byte of it: order, indentation, line ends."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from ccb.tunnel.wire.dataclass import dataclass

_BLANK = re.compile(r"\s*")
_INDENT = re.compile(r"\n([ \t]+)\S")
_READ = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class _Member:
    """Where a key of an object starts, and where its value does, and ends."""

    key: int
    value: int
    end: int


def edited(text: str, keys: Sequence[str], value: object) -> str:
    """Return the text of a JSON object with `value` below `keys`, or without it if the value is None. No object on the
    way may name a key twice. Objects that are missing are added."""
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = found[1] if (found := _INDENT.search(text)) else "  "
    at = _after_blanks(text, 0)
    for depth, key in enumerate(keys):
        members = _members(text, at)
        member, rest = members.get(key), keys[depth + 1 :]
        if member is not None and rest and text[member.value] == "{":
            at = member.value
            continue
        if value is None:
            return text if member is None or rest else _without(text, at, list(members), members, key)
        for each in reversed(rest):
            value = {each: value}
        if member is None:
            return _added(text, at, members, key, value, unit, newline)
        shown = _dumped(value, unit, _indent_of(text, member.key), newline)
        return text[: member.value] + shown + text[member.end :]
    return text


def _after_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()


def _members(text: str, at: int) -> dict[str, _Member]:
    """Return the members of the object that starts at `at`."""
    found: dict[str, _Member] = {}
    at = _after_blanks(text, at + 1)
    while text[at] != "}":
        key, end = _READ(text, at)
        value = _after_blanks(text, _after_blanks(text, end) + 1)
        _, end = _READ(text, value)
        found[key] = _Member(at, value, end)
        at = _after_blanks(text, end)
        at = _after_blanks(text, at + 1) if text[at] == "," else at
    return found


def _indent_of(text: str, at: int) -> str:
    """Return the blanks with which the line of `at` starts."""
    found = re.compile(r"[ \t]*").match(text, text.rfind("\n", 0, at) + 1)
    return found[0] if found is not None else ""


def _dumped(value: object, unit: str, indent: str, newline: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline + indent)


def _added(text: str, at: int, members: Mapping[str, _Member], key: str, value: object, unit: str, newline: str) -> str:
    last = max(members.values(), key=lambda each: each.end, default=None)
    if last is None:
        indent = _indent_of(text, at)
        inside = f"{newline}{indent}{unit}{_dumped(key, '', '', '')}: {_dumped(value, unit, indent + unit, newline)}"
        return f"{text[: at + 1]}{inside}{newline}{indent}{text[_after_blanks(text, at + 1) :]}"
    if "\n" in text[at : last.key]:
        indent = _indent_of(text, last.key)
        member = f",{newline}{indent}{_dumped(key, '', '', '')}: {_dumped(value, unit, indent, newline)}"
    else:
        member = f", {json.dumps({key: value}, ensure_ascii=False)[1:-1]}"
    return text[: last.end] + member + text[last.end :]


def _without(text: str, at: int, order: Sequence[str], members: Mapping[str, _Member], key: str) -> str:
    place = order.index(key)
    if place:  # from the end of the one before
        return text[: members[order[place - 1]].end] + text[members[key].end :]
    if len(order) > 1:
        return text[: members[key].key] + text[members[order[1]].key :]
    return text[: at + 1] + text[_after_blanks(text, members[key].end) :]
