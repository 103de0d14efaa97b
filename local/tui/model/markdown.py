"""Markdown in the transcript: left-aligned headings, code without a box, links that cannot be clicked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table

from ..theme.palette import Palette

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
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


def render_markdown(text: str, palette: Palette) -> TranscriptMarkdown:
    """Return a renderable for `text`, from which control characters have been removed."""
    return TranscriptMarkdown(text, f"{palette.code} {palette.surface}")


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
