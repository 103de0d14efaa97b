"""Draw edits of files as coloured lines, with line numbers if they are known."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire.tool_traits import View, traits_of

from ..theme.palette import Palette

Json = dict[str, Any]

_CONTEXT_LINES = 3


@dataclass(frozen=True)
class DiffLine:
    """One line of a diff; `sign` is `+`, `-`, a space, or `…` between two places."""

    sign: str
    text: str
    number: int | None = None


def diff_text(
    name: str, tool_input: Mapping[str, Any], patch: list[Json], palette: Palette, limit: int, *, wrap: bool = False
) -> Text:
    """Draw an edit: from `patch` if there is one, else from the input of the call. At most `limit` lines."""
    lines = list(_patch_lines(patch)) or list(_planned_lines(name, tool_input))
    gutter = max((len(str(line.number)) for line in lines if line.number is not None), default=0)
    text = Text(no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")
    styles = {"+": palette.good, "-": palette.bad}
    for count, line in enumerate(lines[:limit]):
        number = "" if line.number is None else str(line.number)
        text.append("\n" if count else "")
        if gutter:
            text.append(f"{number:>{gutter}} ", style=palette.dim)
        text.append(f"{line.sign} {neutralise(line.text)}", style=styles.get(line.sign, palette.dim))
    if len(lines) > limit:
        text.append(f"\n… {len(lines) - limit} more lines{'' if wrap else ' (Ctrl+O)'}", style=palette.dim)
    return text


def _patch_lines(patch: list[Json]) -> Iterator[DiffLine]:
    for count, hunk in enumerate(patch):
        lines, old, new = hunk.get("lines"), hunk.get("oldStart"), hunk.get("newStart")
        if not isinstance(lines, list) or not isinstance(old, int) or not isinstance(new, int):
            continue
        if count:
            yield DiffLine("…", "")
        for line in map(str, lines):
            sign, text = line[:1], line[1:]
            if sign == "-":
                yield DiffLine("-", text, old)
                old += 1
            elif sign == "+":
                yield DiffLine("+", text, new)
                new += 1
            elif sign == " ":
                yield DiffLine(" ", text, new)
                old, new = old + 1, new + 1


def _planned_lines(name: str, tool_input: Mapping[str, Any]) -> Iterator[DiffLine]:
    view = traits_of(name).view
    if view is View.NEW_CONTENT:
        content = str(tool_input.get("content", "")).splitlines()
        yield from (DiffLine("+", line, number) for number, line in enumerate(content, 1))
        return
    edits = tool_input.get("edits") if view is View.REPLACEMENTS else [tool_input]
    for count, edit in enumerate(edits if isinstance(edits, list) else []):
        if isinstance(edit, dict):
            if count:
                yield DiffLine("…", "")
            if edit.get("replace_all") is True:
                yield DiffLine("…", "everywhere in the file:")
            yield from _changed(str(edit.get("old_string", "")), str(edit.get("new_string", "")))


def _changed(old: str, new: str) -> Iterator[DiffLine]:
    for line in difflib.unified_diff(old.splitlines(), new.splitlines(), n=_CONTEXT_LINES, lineterm=""):
        if line.startswith("@@"):
            continue
        if not line.startswith(("---", "+++")) or line not in ("--- ", "+++ "):
            yield DiffLine(line[:1], line[1:])
