"""Markdown, and copying it.

A block is drawn a second time for copying, without a limit to its lines. What can be seen of both drawings is the
same, so the places of the one are found in the other.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from typing import ClassVar, TypeVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.constrain import Constrain
from rich.markdown import CodeBlock, Heading, HorizontalRule, ListItem, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.rule import Rule
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from textual.selection import Selection

from ...transcript.pieces import NOTHING_OPEN, OpenBlock, TableColumns
from .themes import Palette

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
_SPARE_CELLS = 2  # of each column of a long table, and a quarter of its width
TAB = "\ue009"  # stands for a tab in a drawing to copy from, where it would become spaces
RULE = "---"  # a rule in a drawing to copy from
_Kind = TypeVar("_Kind")
MAX_MARKDOWN = 20_000  # characters; a longer text stays plain
_MAX_LINES = 1_000  # of a piece, which is drawn as a whole; only odd texts have more, and they are shown as they are
_MAX_HIGHLIGHTED = 20_000  # characters of code
_MAX_WORDS = 500  # characters without a sign: patterns of the lexers for C and others take their third power
_SIGN = re.compile(r"[^\w\s*]")
_LEXER_S = 0.3  # for the colours of a piece of code: some lexers take minutes for odd texts


_LINK_WORDS = "link"  # the style of the words of a link, as the name of an inline element


def _with_targets(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the tokens of a line. Behind the words of a link stands its target, which alone is the link."""
    words: list[Token] | None = None
    for token in tokens:
        if token.type == "link_open":
            opening, words = token, []
        elif token.type == "link_close" and words is not None:
            target = str(opening.attrs.get("href", ""))
            shown = "".join(each.content for each in words)
            if shown in (target, target.removeprefix("mailto:")):
                yield from (opening, _text(shown), token)
            else:
                yield from (Token("words_open", _LINK_WORDS, 1), *words, Token("words_close", _LINK_WORDS, -1))
                yield from (_text(" ("), opening, _text(target), token, _text(")"))
            words = None
        elif words is not None:
            words.append(token)
        else:
            yield token


def _text(text: str) -> Token:
    return Token("text", "", 0, content=text)


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        yield text


class _ListItem(ListItem):
    """An item with the dot behind its number."""

    def number(self, counted: int) -> str:
        return f"{counted}."

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        style = console.get_style("markdown.item.number", default="none")
        sign = f"{self.number(number)} ".rjust(len(str(last_number)) + 3)
        lines = console.render_lines(
            self.elements, options.update(width=max(1, options.max_width - len(sign))), style=self.style
        )
        for count, line in enumerate(lines):
            yield Segment(" " * len(sign) if count else sign, style)
            yield from line
            yield Segment.line()


class _Rule(HorizontalRule):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(style=console.get_style("markdown.hr", default="none"))
        yield Text()


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        theme, _, background = self.theme.partition(" ")
        quick = len(code) <= _MAX_HIGHLIGHTED and max(map(len, _SIGN.split(code))) <= _MAX_WORDS
        lexer = self.lexer_name if quick else "text"
        yield Padding(_CodeLines(code, lexer, theme=theme, word_wrap=True, background_color=background), (0, 0, 0, 2))


class _CodeLines(Syntax):
    """Code with a cell of its ground on both sides. Rich's own way takes four times as long."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        base, width = self._get_base_style(), max(1, options.max_width - 2)
        _, code = self._process_code(self.code)
        wrapping = options.update(width=width, height=None, justify="left")
        lexer = self.lexer or self.default_lexer
        styles: dict[object, Style] = {}
        line: list[Segment] = []
        for kind, token in _within(_LEXER_S, lexer.get_tokens(code), code):
            if kind not in styles:
                styles[kind] = base + self._theme.get_style_for_token(kind) + self.background_style
            for count, text in enumerate(token.split("\n")):
                if count:
                    yield from _code_rows(line, base, console, wrapping)
                    line = []
                if text:
                    line.append(Segment(text, styles[kind]))
        if line:
            yield from _code_rows(line, base, console, wrapping)


def _within(seconds: float, tokens: Iterable[tuple[_Kind, str]], code: str) -> Iterator[tuple[_Kind, str]]:
    end, done = time.monotonic() + seconds, 0
    for kind, token in tokens:
        if time.monotonic() > end:
            yield kind, code[done:]
            return
        yield kind, token
        done += len(token)


def _code_rows(line: list[Segment], ground: Style, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
    side, end = Segment(" ", ground), Segment.line()
    room = options.max_width - sum(segment.cell_length for segment in line)
    if room >= 0:
        yield from (side, *line, Segment(" " * room, ground), side, end)
        return
    text = Text.assemble(*((text, style or "") for text, style, _ in line), style=ground)
    for row in console.render_lines(text, options, style=ground):
        yield from (side, *row, side, end)


class _Table(TableElement):
    """A table without a frame. The one with which a piece begins has the columns of the whole table, and one to copy
    from is as wide as on the screen, where its cells are wrapped to fit."""

    def __init__(self, markdown: Markdown) -> None:
        super().__init__()
        assert isinstance(markdown, TranscriptMarkdown)
        self._tables, self._opening, self._width = markdown.tables, markdown.opening, markdown.copied_from
        markdown.opening = NOTHING_OPEN

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _Table:
        return cls(markdown)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = self._opening.columns
        options = options.update(width=self._width) if self._width else options
        for each in super().__rich_console__(console, options):
            if isinstance(each, Table):
                each.show_edge = False
                for column in each.columns:
                    column.overflow = "fold"  # a word that is too long is broken, not cut
                self._tables.append(each)
                widths = _widths_of(columns, console, options) if columns is not None else []
                if widths:
                    each.show_header = not self._opening.lines
                    for column, width in zip(each.columns, widths, strict=False):
                        column.width = width
            yield Constrain(each, self._width) if self._width and isinstance(each, Table) else each


def _widths_of(columns: TableColumns, console: Console, options: ConsoleOptions) -> list[int]:
    """Return how wide the columns are, with room for what comes later; [] if the beginning only looked like a table."""
    room = options.max_width
    if room not in columns.widths:
        measured = TranscriptMarkdown(columns.beginning, "default")
        list(console.render(measured, options))
        if not measured.tables:
            return []
        table = measured.tables[0]
        for_cells = max(1, room - table._extra_width)  # without what is between the columns
        padded = table._calculate_column_widths(console, options.update_width(for_cells))
        spare = max(0, for_cells - sum(padded)) // len(padded)
        widths = [width - table._get_padding_width(at) for at, width in enumerate(padded)]
        widest = max(widths)
        lent = max(0, _SPARE_CELLS - spare) if 2 * _SPARE_CELLS * len(widths) <= widest else 0
        place = widths.index(widest)
        widths = [width + lent + min(spare, _SPARE_CELLS + width // 4) for width in widths]
        widths[place] -= lent * len(widths)  # where there is no room, the widest column lends some
        columns.widths[room] = widths
    return columns.widths[room]


class TranscriptMarkdown(Markdown):
    """Rich's Markdown with our headings, code and tables. HTML is text: Rich drops the `<int>` of `List<int>`."""

    parser: ClassVar[MarkdownIt] = _PARSER
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
        "list_item_open": _ListItem,
        "hr": _Rule,
    }

    def __init__(self, text: str, code_theme: str, opening: OpenBlock = NOTHING_OPEN, copied_from: int = 0) -> None:
        # Rich's own __init__ makes a parser, which takes longer than parsing a short text.
        self.markup = opening.lines + text
        if self.markup.count("\n") > _MAX_LINES:
            self.parsed = [Token("code_block", "code", 0, content=self.markup)]
        else:
            self.parsed = self.parser.parse(self.markup)
        for token in self.parsed:
            if token.children and any(each.type == "link_open" for each in token.children):
                token.children = list(_with_targets(token.children))
        self.code_theme = self.inline_code_theme = code_theme
        self.justify, self.style, self.hyperlinks, self.inline_code_lexer = None, "none", True, None
        self.inlines = {*Markdown.inlines, _LINK_WORDS}
        self.opening = opening  # of the first table, until that is drawn
        self.tables: list[Table] = []
        self.copied_from = copied_from


class _CodeToCopy(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(str(self.text).rstrip().replace("\t", TAB))


class _RuleToCopy(HorizontalRule):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(RULE)
        yield Text()


class _MarkdownToCopy(TranscriptMarkdown):
    """Markdown without the indents of the layout."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **TranscriptMarkdown.elements,
        "fence": _CodeToCopy,
        "code_block": _CodeToCopy,
        "hr": _RuleToCopy,
    }


def render_markdown(
    text: str, palette: Palette, copied_from: int = 0, opening: OpenBlock = NOTHING_OPEN
) -> TranscriptMarkdown:
    """`copied_from` is not 0 for a drawing to copy from: the width of the screen. `opening` is that of a piece."""
    kind = _MarkdownToCopy if copied_from else TranscriptMarkdown
    return kind(text, f"{palette.code} {palette.surface}", opening, copied_from)


class _WrittenItem(_ListItem):
    """An item with the number that was written, not the one that is counted."""

    def __init__(self, written: str) -> None:
        super().__init__()
        self._written = written

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _WrittenItem:
        return cls(f"{token.info}{token.markup}")

    def number(self, counted: int) -> str:
        return self._written


class _NamedCode(_Code):
    """Code below the words that stand behind its fence, such as its language."""

    def __init__(self, named: str, theme: str) -> None:
        super().__init__(named.partition(" ")[0] or "text", theme)
        self._named = named.strip()

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _NamedCode:
        return cls(token.info, markdown.code_theme)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._named:
            yield Padding(Text(self._named, style=console.get_style("markdown.hr", default="none")), (0, 0, 0, 2))
        yield from super().__rich_console__(console, options)


class _WholeMarkdown(TranscriptMarkdown):
    """Markdown whose rules leave nothing out: images, entities and definitions of links are text. So is a word that is
    struck through, because many terminals draw no such line."""

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table"])
    parser.disable(["reference", "image", "entity", "escape", "autolink"])
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **TranscriptMarkdown.elements,
        "fence": _NamedCode,
        "list_item_open": _WrittenItem,
    }


_SIGNS = frozenset("*_~#`>-+=|\\[]:")
"""What may only be markup, and is not shown then."""
_BEFORE_EMPHASIS = re.compile(r"(?:^|[\s(\[{\"'“‘«—–])\Z")
_AFTER_EMPHASIS = re.compile(r"[.,;:!?)\]}\"'”’»…—–]*(?:\s|\Z)")


def whole_markdown(text: str, palette: Palette, width: int) -> list[Text] | None:
    """Return the rows of a text as Markdown; None if they would not show all that is more than markup."""
    markdown = _WholeMarkdown(text, f"{palette.code} {palette.surface}")
    if any(_may_mean_signs(token.children or ()) for token in markdown.parsed):
        return None
    console = Console(width=width, force_terminal=True, legacy_windows=False, theme=palette.markdown, file=StringIO())
    rows = [
        Text.assemble(*((part, style.update_link(None) if style is not None else "") for part, style, _ in row))
        for row in console.render_lines(markdown, pad=False)
    ]
    missing = Counter(text) - Counter(char for row in rows for char in row.plain)
    return rows if all(char.isspace() or char in _SIGNS for char in missing) else None


def _may_mean_signs(children: Sequence[Token]) -> bool:
    """Return whether the signs of emphasis may be meant: within a word, as in `src/*test*.py`, or in `__main__`."""
    texts = [" " if each.type.endswith("break") else each.content for each in children]
    return any(
        each.markup == "__"
        or (each.nesting == 1 and not _BEFORE_EMPHASIS.search("".join(texts[:place])[-1:]))
        or (each.nesting == -1 and not _AFTER_EMPHASIS.match("".join(texts[place + 1 :])))
        for place, each in enumerate(children)
        if each.tag in ("em", "strong")
    )


_LAYOUT = frozenset((TAB, "▌"))
"""Characters that only one of the drawings has, or not as often as the other: of quotes and tabs."""

_PROMPT = "❯ "
_QUOTE_BAR = re.compile(r"^ *(?:▌ |(?=▌))")

_WORD = re.compile(r"[\w./~:@%+=&?#$-]+")
_NO_ENDS = ".,:;?!"


def word_at(line: str, column: int) -> tuple[int, int] | None:
    """Return where the word at a column begins and ends, None between two words. Paths and addresses are words."""
    for found in _WORD.finditer(line):
        if found.start() <= column < found.end():
            word = found[0].rstrip(_NO_ENDS)
            return (found.start(), found.start() + len(word)) if column < found.start() + len(word) else None
    return None


def copied_text(rows: Sequence[str], whole: Sequence[str], selection: Selection, top: int) -> str:
    """Return what is selected of a block. `rows` begin on the screen at `top`; `whole` is the other drawing."""
    start = (0, 0) if selection.start is None else (selection.start.y - top, selection.start.x)
    end = (len(rows), 0) if selection.end is None else (selection.end.y - top, selection.end.x)
    shown, written = _seen(rows), _seen(whole)
    if [each[2] for each in shown] != [each[2] for each in written]:
        if 0 <= end[0] < len(rows) and end[1] >= len(rows[end[0]].rstrip()):
            end = (end[0] + 1, 0)
        return _as_on_screen(_uncut(rows, whole), start, end)
    chosen = [at for at, (row, column, _) in enumerate(shown) if start <= (row, column) < end]
    if not chosen:
        return ""
    first, last = written[chosen[0]], written[chosen[-1]]
    begin, row = first[1], shown[chosen[0]][0]
    at_start = not chosen[0] or written[chosen[0] - 1][0] != first[0]  # of a line as it was written
    if at_start and start < (row, shown[chosen[0]][1]):
        begin = 0
    lines = [whole[first[0]][begin:], *whole[first[0] + 1 : last[0] + 1]]
    lines[-1] = lines[-1][: last[1] + 1 - begin * (first[0] == last[0])]
    text = "\n".join(_QUOTE_BAR.sub("", line).rstrip(" ") for line in lines)
    return text.removeprefix(_PROMPT).replace(TAB, "\t")


def _seen(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    return [
        (row, column, char)
        for row, line in enumerate(lines)
        if line.strip(" -─")  # no rule, which is as long as the drawing is wide
        for column, char in enumerate(line)
        if not char.isspace() and char not in _LAYOUT
    ]


def _uncut(rows: Sequence[str], whole: Sequence[str]) -> list[str]:
    filled = [row for row, line in enumerate(rows) if line.strip()]
    others = [line.strip() for line in whole if line.strip()]
    uncut = list(rows)
    for row, line in zip(filled, others if len(filled) == len(others) else (), strict=False):
        bare = rows[row].strip()
        if bare.endswith("…") and line.startswith(bare[:-1].rstrip()):
            uncut[row] = rows[row][: len(rows[row]) - len(rows[row].lstrip())] + line
    return uncut


def _as_on_screen(rows: Sequence[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    lines = []
    for row, line in enumerate(rows):
        if start[0] <= row <= end[0]:
            cut = line[: end[1]] if row == end[0] else line
            lines.append(" " * start[1] + cut[start[1] :] if row == start[0] else cut)
    filled = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip(" ")) for line in filled), default=0)
    return "\n".join(line[indent:].rstrip(" ") for line in lines).strip("\n")
