"""How the transcript draws an edit: in the colours of the language, and on a wide screen side by side."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from tests.support.repl.paper import edit_text

from ccb.local.transcript.blocks import ToolBlock
from ccb.local.tui.rendering.diffs import edit_parts
from ccb.local.tui.rendering.themes import ANSI_DARK, DARK, Palette, palette_of

PATCH = [
    {
        "oldStart": 3,
        "newStart": 3,
        "lines": [" def total(items):", "-    return sum(items)", "+    found = sum(items)", "+    return found", " "],
    }
]


def palette(ansi: bool = False) -> Palette:
    theme = ANSI_DARK if ansi else DARK
    colours = theme.to_color_system().generate()
    return palette_of({**colours, **theme.variables}, dark=True)


def edit(path: str = "cart.py") -> ToolBlock:
    return ToolBlock(name="Edit", tool_input={"file_path": path}, patch=PATCH)


def rows(width: int, block: ToolBlock) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system="truecolor")
    lines = [line for part in edit_parts(block, palette(), 24) for line in console.render_lines(part, pad=False)]
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


def test_on_a_wide_screen_the_old_text_stands_beside_the_new_one() -> None:
    wide = rows(160, edit())
    assert len(wide) == 4
    assert "4 -     return sum(items)" in wide[1] and "4 +     found = sum(items)" in wide[1]
    assert "return found" in wide[2] and "sum" not in wide[2]


def test_on_a_usual_screen_the_lines_are_one_below_the_other() -> None:
    assert rows(100, edit()) == [
        "3   def total(items):",
        "4 -     return sum(items)",
        "4 +     found = sum(items)",
        "5 +     return found",
        "6",
    ]


@pytest.mark.parametrize("path", ["cart.py", "cart.unknown", "Makefile"])
def test_the_colours_of_the_language_change_no_character(path: str) -> None:
    assert edit_text(edit(path), palette(), 24).plain.count("return") == 2


def test_changed_code_has_a_ground_and_the_colours_of_its_language() -> None:
    drawn = edit_text(edit(), palette(), 24)
    styles = [str(span.style) for span in drawn.spans if "found = sum" in drawn.plain[span.start : span.end]]
    assert any(style.startswith("on #") for style in styles)
    keyword = drawn.plain.index("return")
    assert any(span.start <= keyword < span.end and "color" in repr(span.style) for span in drawn.spans)


def test_in_few_colours_a_changed_line_has_the_colour_of_its_sign() -> None:
    drawn = edit_text(edit(), palette(ansi=True), 24)
    added = drawn.plain.index("found = sum")
    assert [str(span.style) for span in drawn.spans if span.start <= added < span.end] == ["green"]


def test_a_very_long_edit_has_grounds_and_no_colours_of_its_language() -> None:
    written = {"file_path": "a.py", "content": "return 1\n" * 1_000}
    drawn = edit_text(ToolBlock(name="Write", tool_input=written), palette(), 1_600, details=True)
    styles = {str(span.style) for span in drawn.spans}
    assert any(style.startswith("on #") for style in styles) and len(styles) < 8
