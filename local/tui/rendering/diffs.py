"""Changes of files, as lines of a card and as the transcript draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, zip_longest
from pathlib import PurePosixPath
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import View, traits_of

from ...transcript.blocks import ToolBlock
from .card_rows import GOES_ON, CardLine, RowStyle
from .themes import Palette
from .tool_output import MORE_KEY, counted
from .untrusted_text import escaped, symbols

NO_NEWLINE = "No newline at end of file"
_VOICES = {"+": RowStyle.ADDED, "-": RowStyle.REMOVED, " ": RowStyle.CONTEXT}


@dataclass(frozen=True)
class DiffLine:
    """A line of a diff; its sign is `…` between two places and `\\` about the line before, both with words of ccb."""

    sign: str
    text: str
    number: int | None = None


def diff_card_lines(lines: Sequence[DiffLine]) -> list[CardLine]:
    width = number_width(lines)
    goes_on = " " * (width + 1 if width else 0) + f"{GOES_ON} "
    return [
        CardLine(gutter(line, width), shown_line(line), _VOICES.get(line.sign, RowStyle.CCB), goes_on) for line in lines
    ]


def patch_lines(patch: Sequence[Any]) -> Iterator[DiffLine]:
    """Yield the lines of a public `structuredPatch`. What does not belong into one is left out."""
    for count, hunk in enumerate(patch):
        if not isinstance(hunk, dict):
            continue
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
            elif sign == "\\":
                yield DiffLine("\\", NO_NEWLINE)


def is_patch(patch: object) -> bool:
    return isinstance(patch, list) and all(map(_is_hunk, patch))


def _is_hunk(hunk: object) -> bool:
    lines = hunk.get("lines") if isinstance(hunk, dict) else None
    if not isinstance(hunk, dict) or not isinstance(lines, list):
        return False
    starts = type(hunk.get("oldStart")) is type(hunk.get("newStart")) is int
    return starts and all(
        isinstance(line, str) and line[:1] in ("+", "-", " ", "\\") and "\n" not in line for line in lines
    )


def planned_lines(name: str, tool_input: Mapping[str, Any]) -> Iterator[DiffLine]:
    """Yield what a call says that it changes, which was not compared with the file."""
    view = traits_of(name).view
    if view is View.NEW_CONTENT:
        yield from content_lines(str(tool_input.get("content", "")))
        return
    edits = tool_input.get("edits") if view is View.REPLACEMENTS else [tool_input]
    for count, edit in enumerate(edits if isinstance(edits, list) else []):
        if isinstance(edit, dict):
            if count:
                yield DiffLine("…", "")
            if edit.get("replace_all") is True:
                yield DiffLine("…", "everywhere in the file:")
            yield from replacement_lines(str(edit.get("old_string", "")), str(edit.get("new_string", "")))


def content_lines(content: str) -> Iterator[DiffLine]:
    lines = content.split("\n")
    for number, line in enumerate(lines[:-1], 1):
        yield DiffLine("+", line, number)
    if lines[-1]:
        yield DiffLine("+", lines[-1], len(lines))
        yield DiffLine("\\", NO_NEWLINE)


def replacement_lines(old: str, new: str) -> Iterator[DiffLine]:
    """Yield the text that is looked for, and the one that replaces it; nothing for an empty one."""
    for sign, text in (("-", old), ("+", new)):
        for line in text.split("\n") if text else ():
            yield DiffLine(sign, line)


def number_width(lines: Sequence[DiffLine]) -> int:
    return max((len(str(line.number)) for line in lines if line.number is not None), default=0)


def gutter(line: DiffLine, width: int) -> str:
    """Return what stands before a line: its number in `width` cells, and its sign."""
    number = "" if line.number is None else str(line.number)
    return (f"{number:>{width}} " if width else "") + f"{line.sign} "


def shown_line(line: DiffLine) -> str:
    return line.text if line.sign in "…\\" else escaped(line.text)


_SPLIT_FROM = 150  # the width in cells from which the old text stands beside the new one
_MAX_COLOURED = 300  # characters of a line; the time of some lexers grows with their third power
_MAX_SYMBOLS = 200  # of a line that have a colour; each takes 20 µs
_MAX_COLOURED_LINES = 200  # of an edit: each takes a lexer a fraction of a millisecond
_PART_LINES = 25  # drawn at a time

Pair = tuple[DiffLine | None, DiffLine | None]


def edit_parts(
    block: ToolBlock, palette: Palette, limit: int, *, details: bool = False, key: str = MORE_KEY
) -> Iterator[EditPart | Text]:
    """Yield an edit as lines of a diff, in parts of which none takes long to draw: from the patch of the call if it has
    one, else from its input. Of more than `limit` lines these are the first ones, or with `details` as many from both
    ends."""
    every = list(patch_lines(block.patch)) or list(planned_lines(block.name, block.tool_input))
    lines, left_out, half = every[:limit], len(every) - limit, limit // 2
    if left_out > 0 and details:
        gap = DiffLine("…", f"{counted(len(every) - 2 * half, 'line')} in the middle not shown")
        lines, left_out = [*every[:half], gap, *every[-half:]], 0
    path = block.tool_input.get("file_path")
    coloured = len(lines) <= _MAX_COLOURED_LINES and isinstance(path, str)
    language, digits = _lexer_of(PurePosixPath(str(path)).name) if coloured else "", number_width(lines)
    pairs = list(_rows(lines)) if any(line.sign == "-" for line in lines) else []
    for first in range(0, len(lines), _PART_LINES):
        part = slice(first, first + _PART_LINES)
        yield EditPart(palette, details, digits, language, lines[part], pairs[part], may_split=bool(pairs))
    if left_out > 0:
        yield Text(f"… {counted(left_out, 'more line')} ({key})", style=palette.dim)


@dataclass(frozen=True)
class EditPart:
    """Some lines of an edit, with `digits` cells for their numbers, in the colours of `language`; and as many pairs of
    lines that stand beside each other where there is room."""

    palette: Palette
    details: bool
    digits: int
    language: str
    lines: Sequence[DiffLine]
    pairs: Sequence[Pair]
    may_split: bool

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.may_split or options.max_width < _SPLIT_FROM:
            yield self.unified(options.max_width)
        elif self.pairs:
            yield self._split(options.max_width)

    def unified(self, width: int = 0) -> Text:
        draw = self._drawing(width)
        text = Text(no_wrap=not self.details, overflow="fold" if self.details else "ellipsis")
        for count, line in enumerate(self.lines):
            text.append("\n" if count else "").append_text(draw(line))
        return text

    def _split(self, width: int) -> Table:
        """Draw what was removed on the left and what was added on the right, in the same rows."""
        draw = self._drawing(width // 2 - 2)
        table = Table.grid(expand=True, padding=(0, 1))
        for _ in range(2):
            table.add_column(ratio=1, no_wrap=not self.details, overflow="fold" if self.details else "ellipsis")
        for pair in self.pairs:
            table.add_row(*(draw(each) if each is not None else Text() for each in pair))
        return table

    def _drawing(self, width: int) -> Callable[[DiffLine], Text]:
        """Return what draws a line. A changed line without a ground (in 16 colours) has the colour of its sign."""
        palette = self.palette

        def draw(line: DiffLine) -> Text:
            sign = {"+": palette.good, "-": palette.bad}.get(line.sign, palette.dim)
            ground = {"+": palette.added, "-": palette.removed}.get(line.sign, "")
            before, shown = gutter(line, self.digits), shown_line(line)
            code = self._code(shown) if ground or line.sign == " " else None
            text = Text.assemble((before[:-2], palette.dim), (before[-2:], sign))
            start = len(text)
            text.append_text(code if code is not None else Text(shown, style=sign))
            for first, end in islice(symbols(shown), _MAX_SYMBOLS):
                text.stylize(palette.dim if shown[first] in "⇥␣" else palette.warn, start + first, start + end)
            if ground:
                text.append(" " * (0 if self.details else width - text.cell_len))
                text.stylize_before(f"on {ground}", max(0, start - 2))
            return text

        return draw

    def _code(self, shown: str) -> Text | None:
        """Return a line in the colours of its language, None if it has none. A lexer may not change the text."""
        if not self.language or len(shown) > _MAX_COLOURED:
            return None
        coloured = _syntax(self.language, self.palette.code).highlight(shown)
        if coloured.plain.rstrip("\n") != shown.rstrip("\n"):
            return None
        text = Text(shown)
        for start, end, style in coloured.spans:
            if isinstance(style, Style):
                text.stylize(Style(color=style.color, bold=style.bold, italic=style.italic), start, end)
        return text


def _rows(lines: Sequence[DiffLine]) -> Iterator[Pair]:
    removed: list[DiffLine] = []
    added: list[DiffLine] = []
    for line in lines:
        if line.sign == "-" and not added:
            removed.append(line)
        elif line.sign == "+":
            added.append(line)
        else:
            yield from zip_longest(removed, added)
            removed, added = ([line], []) if line.sign == "-" else ([], [])
            if line.sign != "-":
                yield line, line
    yield from zip_longest(removed, added)


@lru_cache(maxsize=64)
def _lexer_of(name: str) -> str:
    found = Syntax.guess_lexer(name)
    return "" if found == "default" else found


@lru_cache(maxsize=16)
def _syntax(language: str, theme: str) -> Syntax:
    return Syntax("", language, theme=theme, background_color="default")
