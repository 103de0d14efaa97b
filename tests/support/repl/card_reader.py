"""Reads an approval card: rebuilds from its rows, as they are on the screen, what would be approved."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.model.model_script import Json

from ccb.local.tui.rendering.approval_text import MODEL_SAYS, WHOLE_INPUT
from ccb.local.tui.rendering.untrusted_text import NAMES

_CHARACTERS = {"LF": "\n", **{name: char for char, name in NAMES.items()}}
_ESCAPED = re.compile(r"⟨([^⟨⟩]*)⟩|⇥ {0,3}|␣")
_ENTRY = re.compile(rf" *([A-Za-z_][A-Za-z0-9_-]*|{MODEL_SAYS}) ([│=]) ")
_NUMBERED = re.compile(r" *\d+ ")
_EDIT = re.compile(r"· (?:Replace|New file) \(?(once|only once|everywhere)\)?:")
_ALL = {"once": {}, "only once": {"replace_all": False}, "everywhere": {"replace_all": True}}


def unescaped(picture: str) -> str:
    return _ESCAPED.sub(_meaning, picture)


def _meaning(match: re.Match[str]) -> str:
    if match[0] == "␣" or match[1] is None:
        return " " if match[0] == "␣" else "\t"
    return _CHARACTERS.get(match[1]) or chr(int(match[1].removeprefix("U+"), 16))


@dataclass
class ReadDiff:
    """A diff as it can be read: (sign, text, line number) for each line."""

    lines: list[tuple[str, str, int | None]] = field(default_factory=list)

    def text(self, sign: str) -> str:
        """The text of the lines with a sign; a last line without a newline is known by the mark after it."""
        chosen = [text for each, text, _ in self.lines if each == sign]
        return "\n".join(chosen)


def read_values(rows: Sequence[str]) -> Json:
    """Rebuild the input of a call that is shown as a command and a table."""
    rows = _without_warnings(rows)
    values: Json = {}
    if rows and rows[0].startswith("$"):
        command, rows = _column(rows, 0, "$>")
        values["command"] = command
    values.update(read_table(rows))
    return values


def read_table(rows: Sequence[str]) -> Json:
    values: Json = {}
    while rows:
        match = _ENTRY.match(rows[0] + " ")
        assert match is not None, rows[0]
        key, mark = match[1], match[2]
        text, rows = _column(rows, match.start(2), mark, first=True)
        value: Any = text if mark == "│" else json.loads(text)
        if key == WHOLE_INPUT and mark == "=":
            values.update(value[0])
        else:
            values["description" if key == MODEL_SAYS else key] = value
    return values


def read_path(rows: Sequence[str]) -> tuple[str, list[str]]:
    """Rebuild the path of a change. Return it and the rows after it."""
    rows = _without_warnings(rows)
    match = _ENTRY.match(rows[0] + " ")
    assert match is not None and match[1] == "file", rows[0]
    return _column(rows, match.start(2), "│", first=True)


def read_edits(rows: Sequence[str]) -> list[Json]:
    """Rebuild the replacements that a call names, from the rows after the path."""
    edits: list[Json] = []
    rows = list(rows)
    while rows:
        row = rows.pop(0)
        match = _EDIT.match(row)
        if match is None:
            continue
        diff, rows = read_diff(rows)
        edits.append({"old_string": diff.text("-"), "new_string": diff.text("+"), **_ALL[match[1]]})
    return edits


def read_diff(rows: Sequence[str]) -> tuple[ReadDiff, list[str]]:
    """Read the rows of one diff, up to the next words of ccb. Return it and the rows after it."""
    diff, rows = ReadDiff(), list(rows)
    number = _NUMBERED.match(rows[0] + " ") if rows else None
    column = number.end() if number is not None else 0
    while rows:
        row = rows[0].ljust(column + 2)
        sign, text = row[column], unescaped(row[column + 2 :])
        if sign not in "+- …\\┆" or row[column + 1] != " " or row[:column].strip("0123456789 "):
            break
        rows.pop(0)
        if sign == "┆":
            before = diff.lines[-1]
            diff.lines[-1] = (before[0], before[1] + text, before[2])
        else:
            diff.lines.append((sign, text, int(row[:column]) if row[:column].strip() else None))
    return diff, rows


def applied(diff: ReadDiff, before: str) -> str:
    """Apply a diff with line numbers to a text. Every line that it says is there must be there."""
    old, new = before.splitlines(keepends=True) if "\r" not in before else _kept(before), []
    at = 0
    lines = [each for each in diff.lines if each[0] != "…"]
    grown = 0  # new lines less old ones so far
    for index, (sign, text, number) in enumerate(lines):
        if sign == "\\":
            continue
        ends = "" if index + 1 < len(lines) and lines[index + 1][0] == "\\" else "\n"
        assert number is not None
        start = number - 1 if sign == "-" else number - 1 - grown
        if start > at:
            new += old[at:start]
            at = start
        if sign in " -":
            assert old[at] == text + ends
            at += 1
        if sign in " +":
            new.append(text + ends)
        grown += {"+": 1, "-": -1}.get(sign, 0)
    return "".join(new + old[at:])


def _kept(text: str) -> list[str]:
    return [line + "\n" for line in text.split("\n")[:-1]] + [each for each in text.split("\n")[-1:] if each]


def _without_warnings(rows: Sequence[str]) -> list[str]:
    rows = list(rows)
    warned = False
    while rows and (rows[0].startswith("! ") or (warned and rows[0].startswith("  ") and not _ENTRY.match(rows[0]))):
        warned = True
        rows.pop(0)
    return rows


def _column(rows: Sequence[str], column: int, marks: str, *, first: bool = False) -> tuple[str, list[str]]:
    """Read the rows of one value: those with one of `marks` at `column`, and the rows that continue them."""
    rows, lines = list(rows), list[str]()
    while rows:
        row = rows[0].ljust(column + 2)
        begins = row[column] in marks and row[column + 1] == " " and (first or column == 0 or not row[:column].strip())
        goes_on = row[column] == "┆" and not row[:column].strip()
        if not (lines and goes_on) and not begins:
            break
        if begins and lines and column == 0 and row[0] == "$":
            break
        text = unescaped(row[column + 2 :])
        lines[-1:] = [lines[-1] + text] if goes_on else [*lines[-1:], text]
        first = False
        rows.pop(0)
    return "\n".join(lines), rows
