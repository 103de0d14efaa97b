"""Edits as coloured lines, with line numbers where they are known."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire.tool_traits import View, traits_of

from ..theme.palette import Look

Json = dict[str, Any]

_CONTEXT = 3


@dataclass(frozen=True)
class Line:
    """One line of a diff; `sign` is `+`, `-`, a space, or `…` between two places."""

    sign: str
    text: str
    number: int | None = None


def diff_text(
    name: str, tool_input: Mapping[str, Any], patch: list[Json], look: Look, limit: int, *, wrap: bool = False
) -> Text:
    """An edit: from the patch when there is one, else from what the call says it will do. At most `limit` lines."""
    lines = list(_patch_lines(patch)) or list(_planned_lines(name, tool_input))
    gutter = max((len(str(line.number)) for line in lines if line.number is not None), default=0)
    text = Text(no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")
    styles = {"+": look.good, "-": look.bad}
    for count, line in enumerate(lines[:limit]):
        number = "" if line.number is None else str(line.number)
        text.append("\n" if count else "")
        if gutter:
            text.append(f"{number:>{gutter}} ", style=look.dim)
        text.append(f"{line.sign} {neutralise(line.text)}", style=styles.get(line.sign, look.dim))
    if len(lines) > limit:
        text.append(f"\n… {len(lines) - limit} more lines{'' if wrap else ' (Ctrl+O)'}", style=look.dim)
    return text


def _patch_lines(patch: list[Json]) -> Iterator[Line]:
    for count, hunk in enumerate(patch):
        lines, old, new = hunk.get("lines"), hunk.get("oldStart"), hunk.get("newStart")
        if not isinstance(lines, list) or not isinstance(old, int) or not isinstance(new, int):
            continue
        if count:
            yield Line("…", "")
        for line in map(str, lines):
            sign, said = line[:1], line[1:]
            if sign == "-":
                yield Line("-", said, old)
                old += 1
            elif sign == "+":
                yield Line("+", said, new)
                new += 1
            elif sign == " ":
                yield Line(" ", said, new)
                old, new = old + 1, new + 1


def _planned_lines(name: str, tool_input: Mapping[str, Any]) -> Iterator[Line]:
    view = traits_of(name).view
    if view is View.NEW_CONTENT:
        content = str(tool_input.get("content", "")).splitlines()
        yield from (Line("+", line, number) for number, line in enumerate(content, 1))
        return
    edits = tool_input.get("edits") if view is View.REPLACEMENTS else [tool_input]
    for count, edit in enumerate(edits if isinstance(edits, list) else []):
        if isinstance(edit, dict):
            if count:
                yield Line("…", "")
            if edit.get("replace_all") is True:
                yield Line("…", "everywhere in the file:")
            yield from _changed(str(edit.get("old_string", "")), str(edit.get("new_string", "")))


def _changed(old: str, new: str) -> Iterator[Line]:
    for line in difflib.unified_diff(old.splitlines(), new.splitlines(), n=_CONTEXT, lineterm=""):
        if line.startswith("@@"):
            continue
        if not line.startswith(("---", "+++")) or line not in ("--- ", "+++ "):
            yield Line(line[:1], line[1:])
