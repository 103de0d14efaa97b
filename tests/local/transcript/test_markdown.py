"""Markdown in the transcript shows every character that the agent writes."""

from __future__ import annotations

import pytest
from rich.console import Console

from ccb.local.tui.rendering.markdown import render_markdown
from ccb.local.tui.rendering.themes import DARK, palette_of


def drawn(text: str) -> str:
    console = Console(width=80)
    colours = DARK.to_color_system().generate()
    with console.capture() as captured:
        console.print(render_markdown(text, palette_of(colours, dark=True)))
    return captured.get()


@pytest.mark.parametrize(
    "text",
    [
        "a List<int> of <b>names</b>",
        "ssh <user>@<host>",
        "before <!--hidden--> after",
        "<script>alert(1)</script>",
        "<div>\na block\n</div>",
        "<!--paragraph-->",
        "| a |\n|---|\n| <T> |",
    ],
)
def test_html_is_shown_as_text(text: str) -> None:
    shown = drawn(text).split()
    for word in text.replace("|", " ").replace("---", " ").split():
        assert word in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see [**the** docs](https://a.example/x?y=1).", "see the docs (https://a.example/x?y=1)."),
        ("<https://a.example>", "https://a.example"),
        ("<me@a.example>", "me@a.example"),
        ("[https://a.example](https://b.example)", "https://a.example (https://b.example)"),
        ("| a |\n|---|\n| [b](https://c.example) |", "b (https://c.example)"),
    ],
)
def test_a_link_shows_where_it_leads_once(text: str, shown: str) -> None:
    assert shown in drawn(text)
    assert drawn(text).count("example") == shown.count("example")
