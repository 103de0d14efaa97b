"""Every parser of foreign data that runs in the worker or in the REPL itself, and the language of its texts."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from ccb.local.tui.model.markdown import render_markdown
from ccb.local.tui.model.pieces import pieces_of
from ccb.local.tui.render.untrusted import escapes, lookalikes, terminal_text
from ccb.local.tui.theme.palette import palette_of
from ccb.local.tui.theme.themes import DARK
from ccb.remote.agent.mentions import mentions
from ccb.remote.context.instructions import find_instructions
from ccb.remote.model.sse import SseParser
from ccb.remote.permissions.shell.parser import parse as parse_command
from ccb.remote.settings.front_matter import read_markdown
from ccb.remote.settings.nested_yaml import read_nested
from ccb.remote.tools.documents import notebook_cells, pdf_pages
from ccb.remote.tools.files.edit_text import editable, replace_in, with_endings_of
from ccb.remote.tools.files.patch import compared
from ccb.remote.tools.output import clean
from ccb.remote.tools.web.markdown import to_markdown
from ccb.tunnel.wire.content.images import image_size

PALETTE = palette_of(DARK.to_color_system().generate(), dark=True)


def replaced(data: bytes, old: str, new: str, replace_all: bool) -> tuple[bytes, int]:
    """Return the content of a file after an edit, and the number of replacements."""
    text = editable(data)
    done = replace_in(text, old, new, replace_all)
    return text.encoded(done.text), len(done.spans)


def html(text: str) -> None:
    to_markdown(text, "https://e.example/")


def markdown(text: str) -> None:
    """As the REPL draws a piece of an answer, of at most 100,000 characters."""
    for piece in pieces_of(text[:100_000]):
        Console(file=io.StringIO(), width=80).print(render_markdown(piece.text, PALETTE, opening=piece.opening))


def long_markdown(text: str) -> None:
    pieces_of(text * 10)


def front_matter(text: str) -> None:
    found = read_markdown(f"---\na: b\n{text}\n---\n")
    for lines in found.lines.values():
        read_nested(lines)


def yaml(text: str) -> None:
    read_nested(["", *text[:100_000].split("\n")])


def yaml_line(text: str) -> None:
    read_nested([text[:100_000].replace("\n", " ")])


def one_edit(text: str) -> None:
    replaced(text.encode(), "\n", "x\n", True)


def long_edit(text: str) -> None:
    replaced(text.encode(), text[: len(text) // 3].replace("\r", "") + "x", "y", True)


def many_edits(text: str) -> None:
    replaced((text + text[:4]).encode(), text[:4], "a\nb\n" + text[:2], True)


def line_endings(text: str) -> None:
    with_endings_of(text + "\r\n", text[::-1], "\r\n")


def difference(text: str) -> None:
    compared(text, text[::-1], 40_000)


def line_difference(text: str) -> None:
    lines = text.split("\n")
    compared("\n".join(lines[::2] + lines), "\n".join(lines + lines[::3]), 40_000)


def output(text: str) -> None:
    clean(text.encode())


def stream(text: str) -> None:
    parser = SseParser()
    for at in range(0, len(text), 1000):
        parser.feed(text[at : at + 1000].encode())


def mention(text: str) -> None:
    mentions._MENTION.findall(text)


def imports(text: str) -> None:
    with TemporaryDirectory() as directory:
        Path(directory, "CLAUDE.md").write_text(text, encoding="utf-8")
        find_instructions(directory, os.path.join(directory, "home"), ["project"])


def command(text: str) -> None:
    parse_command(text[:20_000])


def shown_text(text: str) -> None:
    """As the REPL shows names and commands of the host."""
    picture = escapes.escaped(text[:50_000])
    escapes.tokens(picture)
    escapes.unescaped(picture)
    lookalikes.warnings(text)
    terminal_text.last_state(text)


def pdf(text: str) -> None:
    pdf_pages.count_pages(text.encode("latin-1", "replace"))


def notebook(text: str) -> None:
    notebook_cells.pieces(text.encode())


def image(text: str) -> None:
    image_size(b"\xff\xd8" + text.encode("latin-1", "replace").replace(b"x", b"\xff"))


PARSERS: list[tuple[Callable[[str], None], str]] = [
    (html, "html"),
    (markdown, "markdown"),
    (long_markdown, "markdown"),
    (front_matter, "yaml"),
    (yaml, "yaml"),
    (yaml_line, "yaml"),
    (one_edit, "text"),
    (long_edit, "text"),
    (many_edits, "text"),
    (line_endings, "text"),
    (difference, "text"),
    (line_difference, "text"),
    (output, "text"),
    (stream, "text"),
    (mention, "text"),
    (imports, "text"),
    (command, "text"),
    (shown_text, "text"),
    (pdf, "pdf"),
    (notebook, "notebook"),
    (image, "text"),
]
