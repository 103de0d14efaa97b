"""Markdown in the transcript shows every character. What is drawn of its pieces reads like what is drawn of all."""

from __future__ import annotations

import time

import pytest
from rich.console import Console

from ccb.local.transcript.blocks import MarkdownBlock
from ccb.local.transcript.markdown_export import markdown_of
from ccb.local.transcript.pieces import Piece, first_cut, pieces_of
from ccb.local.tui.rendering.block_renderer import BlockRenderer
from ccb.local.tui.rendering.markdown import render_markdown
from ccb.local.tui.rendering.themes import DARK, palette_of
from ccb.local.tui.widgets.drawing import draw_lines, texts_of

PROSE = "".join(
    f"The *{n}*th paragraph says what `module_{n}` does,\nand what it will **never** do.\n\n" for n in range(60)
)
BULLETS = "".join(f"- item {n}: the **quick** fox jumps over `lazy_dogs({n})`\n" for n in range(60))
NUMBERS = "".join(f"{n}. the item of a list with numbers, and some words\n" for n in range(1, 60))
NESTED = "".join(f"- item {n}\n  - a nested **one**\n    ```sh\n    echo {n}\n    ```\n" for n in range(40))
_FUNCTIONS = "".join(f"def f{n}(a):\n    return a + {n}\n\n\n" for n in range(80))
CODE = f"Before.\n\n```python\n{_FUNCTIONS}```\n\nAfter.\n"
ROWS = "".join(f"| {n} | the name {n} | `value_{n}` |\n" for n in range(120))
TABLE = "| n | name | value |\n|---|---|---|\n" + ROWS

PALETTE = palette_of(DARK.to_color_system().generate(), dark=True)
RENDERER = BlockRenderer(PALETTE)


def drawn(block: MarkdownBlock, width: int = 100) -> list[str]:
    return [text.rstrip() for text in texts_of(draw_lines(Console(width=width), RENDERER, block, width))]


def blocks_of(text: str) -> list[MarkdownBlock]:
    blocks: list[MarkdownBlock] = []
    for piece in pieces_of(text):
        tight = bool(blocks) and not blocks[-1].text.endswith("\n\n")
        blocks.append(MarkdownBlock(text=piece.text, opening=piece.opening, tight=tight))
    return blocks


def stacked(text: str, width: int = 100) -> list[str]:
    lines: list[str] = []
    for block in blocks_of(text):
        lines += drawn(block, width) if block.tight or not lines else ["", *drawn(block, width)]
    return lines


@pytest.mark.parametrize("text", [PROSE, BULLETS, NUMBERS, NESTED, CODE], ids=["prose", "-", "1.", "nested", "code"])
def test_the_pieces_are_drawn_like_the_whole(text: str) -> None:
    assert len(pieces_of(text)) > 3
    assert "".join(piece.text for piece in pieces_of(text)) == text
    assert stacked(text) == drawn(MarkdownBlock(text=text))


def test_the_rows_of_a_table_in_pieces_stand_below_each_other_and_each_table_has_its_own_columns() -> None:
    lines = stacked(TABLE)
    assert len(pieces_of(TABLE)) > 3
    assert len(lines) == 2 + 120
    assert lines[0].split() == ["n", "name", "value"]
    assert {line.index("the name") for line in lines[2:]} == {lines[0].index("name")}
    assert {line.index("value") for line in lines[2:]} == {lines[0].index("value")}
    texts = [piece.text for piece in pieces_of("Some words.\n\n" + TABLE + "\nAnd a word after it.\n")]
    assert texts[0] == "Some words.\n\n"
    assert texts[1].startswith("| n | name")
    assert texts[-1].endswith("And a word after it.\n")
    other = "| the first of two columns | the second |\n|---|---|\n| a | b |\n"
    assert drawn(blocks_of(TABLE + "\n" + other)[-1])[0].split("  ")[0] == "the first of two columns"


@pytest.mark.parametrize("width", [30, 58, 78])
def test_no_character_of_a_table_is_lost_where_there_is_little_room(width: int) -> None:
    rows = [
        f"| test_{n} | failed | passed{'_' * n} | the {n}th of the tests, about which there is much to say |"
        for n in range(16)
    ]
    lines = stacked("| test | before | after | remark |\n|---|---|---|---|\n" + "\n".join(rows) + "\n", width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    assert sum(line.count("_") for line in lines) == 16 + sum(range(16))
    if width > 30:  # words of a usual length stay whole
        assert sum("test_15" in line for line in lines) == sum("test_9" in line for line in lines) == 1


@pytest.mark.parametrize("text", [f"```make``` builds it.\n\n{PROSE}", f"| a | b | c |\n|---|---|\n{ROWS}"])
def test_what_only_looks_like_code_or_a_table_opens_none(text: str) -> None:
    assert not any(piece.opening.lines for piece in pieces_of(text))
    assert PROSE not in text or len(pieces_of(text)) > 3


@pytest.mark.parametrize("sign", ["\u2028", "\x85"])
def test_only_the_end_of_a_line_ends_a_line(sign: str) -> None:
    assert len(pieces_of(f"a{sign}b\n\n" + PROSE)) == len(pieces_of("a-b\n\n" + PROSE))


@pytest.mark.parametrize("before", ["| a | b | c |\n|---|---|\n", "<div>\n| a | b |\n|---|---|\n"])
def test_what_only_looks_like_a_table_leaves_the_next_one_as_it_is(before: str) -> None:
    *_, head, _, row = stacked(f"{before}{ROWS}\n\nfirst | second\n---|---\nalpha | beta\n")
    assert (head.split(), row.split()) == (["first", "second"], ["alpha", "beta"])


@pytest.mark.parametrize("end", ["- half an ite", "``", "| 7 | half a ro", "Half a para"])
def test_a_line_that_is_not_complete_is_not_cut_off(end: str) -> None:
    assert first_cut(Piece("".join(f"A line of prose {n}.\n" for n in range(60)) + "\n" + end)) is None


def test_a_piece_of_code_is_coloured_as_code_and_what_follows_the_code_is_not() -> None:
    *_, last = blocks_of(CODE)
    assert last.opening.lines == "```python\n"
    segments = [each for line in draw_lines(Console(width=100), RENDERER, last, 100) for each in line]
    keyword = next(each for each in segments if each.text.strip() == "def")
    after = next(each for each in segments if "After." in each.text)
    assert keyword.style is not None and keyword.style.color is not None
    assert after.style is None or after.style.bgcolor is None


def test_a_document_of_the_conversation_has_lists_tables_and_code_in_one() -> None:
    for text in (BULLETS, TABLE, CODE):
        assert markdown_of("t", blocks_of(text)) == f"# t\n\n{text.strip()}\n"


def test_a_long_line_whose_end_has_not_come_is_looked_at_once() -> None:
    text = "x" * 200_000
    began = time.process_time()
    assert pieces_of(text) == [Piece(text)]
    assert time.process_time() - began < 5  # from each of its characters on it took a minute


def printed(text: str) -> str:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(render_markdown(text, PALETTE))
    return captured.get()


@pytest.mark.parametrize(
    "text",
    [
        *("a List<int> of <b>names</b>", "ssh <user>@<host>", "before <!--hidden--> after"),
        *("<script>alert(1)</script>", "<div>\na block\n</div>", "<!--paragraph-->", "| a |\n|---|\n| <T> |"),
    ],
)
def test_html_is_shown_as_text(text: str) -> None:
    shown = printed(text).split()
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
    assert shown in printed(text)
    assert printed(text).count("example") == shown.count("example")


def test_an_ordered_list_keeps_its_dots_and_a_rule_is_a_line() -> None:
    lines = stacked("1. one\n2. two\n   1. inside\n\n---\n\n8. eight\n9. nine\n", 20)
    assert [line for line in lines if line] == [
        " 1. one", " 2. two", "     1. inside", "─" * 20, "  8. eight", "  9. nine",
    ]  # fmt: skip
