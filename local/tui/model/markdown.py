"""Markdown in the transcript: left-aligned headings, code without a box, links that cannot be clicked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.constrain import Constrain
from rich.markdown import CodeBlock, Heading, HorizontalRule, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ..theme.palette import Palette

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
_NARROW = 80
TAB = "\ue009"
"""Stands for a tab in a drawing to copy from, where it would become spaces."""

RULE = "---"
"""A rule in a drawing to copy from."""

_MAX_HIGHLIGHTED = 20_000  # characters of code; some lexers take seconds for more


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        yield text


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        theme, _, background = self.theme.partition(" ")
        lexer = self.lexer_name if len(code) <= _MAX_HIGHLIGHTED else "text"
        syntax = Syntax(code, lexer, theme=theme, word_wrap=True, background_color=background, padding=(0, 1))
        yield Padding(syntax, (0, 0, 0, 2))


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for each in super().__rich_console__(console, options):
            if isinstance(each, Table):
                each.show_edge = False
            yield each


class TranscriptMarkdown(Markdown):
    """Rich's Markdown with our headings, code blocks and tables. HTML is shown as the text it is: Rich would drop it,
    and with it the `<int>` of `List<int>`."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }

    def __init__(self, text: str, code_theme: str) -> None:
        super().__init__("", code_theme=code_theme, hyperlinks=False)
        self.markup = text
        self.parsed = _PARSER.parse(text)


class _CodeToCopy(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(str(self.text).rstrip().replace("\t", TAB))


class _TableToCopy(_Table):
    """A table as wide as on the screen, where its cells are wrapped to fit."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _TableToCopy:
        return cls(markdown.width if isinstance(markdown, _MarkdownToCopy) else _NARROW)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for each in super().__rich_console__(console, options.update(width=self._width)):
            yield Constrain(each, self._width) if isinstance(each, Table) else each


class _RuleToCopy(HorizontalRule):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(RULE)
        yield Text()


class _MarkdownToCopy(TranscriptMarkdown):
    """Markdown without the indents of the layout. `width` is that of the screen."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **TranscriptMarkdown.elements,
        "fence": _CodeToCopy,
        "code_block": _CodeToCopy,
        "table_open": _TableToCopy,
        "hr": _RuleToCopy,
    }

    def __init__(self, text: str, code_theme: str, width: int) -> None:
        super().__init__(text, code_theme)
        self.width = width


def render_markdown(text: str, palette: Palette, copied_from: int = 0) -> TranscriptMarkdown:
    """Return a renderable for `text`, from which control characters have been removed. `copied_from` is not 0 for one
    to copy from: the width of the one on the screen."""
    theme = f"{palette.code} {palette.surface}"
    return _MarkdownToCopy(text, theme, copied_from) if copied_from else TranscriptMarkdown(text, theme)


def safe_split(text: str) -> int:
    """Return the last place where a growing Markdown text can be cut so that both parts are drawn like the whole; 0
    if there is none."""
    return max(_safe_places(text), default=0)


def safe_pieces(text: str, size: int) -> list[str]:
    """Cut `text` at safe places into pieces of at least `size` characters."""
    pieces, start = [], 0
    for place in _safe_places(text):
        if place - start >= size:
            pieces.append(text[start:place])
            start = place
    return [*pieces, text[start:]]


def _safe_places(text: str) -> Iterator[int]:
    """Yield the places outside code fences before a flat block that follows a blank line, or an item of a flat list."""
    position, fence = 0, ""
    after_blank = False
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                fence = ""
        else:
            if position and (
                line.startswith(("- ", "* ")) or (after_blank and stripped and not line.startswith((" ", "\t")))
            ):
                yield position
            fence = _opened_fence(stripped)
        after_blank = not stripped
        position += len(line)


def _opened_fence(line: str) -> str:
    """Return the backticks or tildes that open a code block on this line, or ""."""
    for char in "`~":
        run = line[: len(line) - len(line.lstrip(char))]
        if len(run) >= 3:
            return run
    return ""
