"""Markdown as the transcript shows it: left-aligned headings, code without a box, links that nothing can click."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table

from .palette import Look


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        yield text


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        theme, _, background = self.theme.partition(" ")
        syntax = Syntax(code, self.lexer_name, theme=theme, word_wrap=True, background_color=background, padding=(0, 1))
        yield Padding(syntax, (0, 0, 0, 2))


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for each in super().__rich_console__(console, options):
            if isinstance(each, Table):
                each.show_edge = False
            yield each


class Prose(Markdown):
    """Rich's Markdown with our elements."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }


def prose(text: str, look: Look) -> Prose:
    """`text`, already neutralised, as a renderable."""
    theme = "github-dark" if look.dark else "friendly"
    return Prose(text, code_theme=f"{theme} {look.surface}", hyperlinks=False)


def safe_split(text: str) -> int:
    """Where a growing Markdown text can be cut so that both parts read the same as the whole: before the last flat block
    that follows a blank line, or before the last item of a flat list, outside fences; 0 when there is no such place."""
    place, position, fence = 0, 0, ""
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
                place = position
            fence = _opened_fence(stripped)
        after_blank = not stripped
        position += len(line)
    return place


def _opened_fence(line: str) -> str:
    """The run of backticks or tildes that opens a code block on this line; empty when none does."""
    for char in "`~":
        run = line[: len(line) - len(line.lstrip(char))]
        if len(run) >= 3:
            return run
    return ""
