"""A card is an exact picture: from its rows, what is approved can be rebuilt, whatever it is."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.remote.tools_kit import open_toolbox
from tests.support.repl.card_reader import applied, read_diff, read_edits, read_path, read_table, read_values
from tests.support.repl.paper import PALETTE, edit_text
from tests.support.repl.pilot import Desk, desk

from ccb.local.transcript.blocks import ToolBlock
from ccb.local.tui.rendering.approval_text import circumstances, subject_lines
from ccb.local.tui.rendering.card_rows import RowStyle, drawn, fold
from ccb.local.tui.rendering.untrusted_text import escaped
from ccb.remote.tools.text_changes import structured_patch
from ccb.remote.tools.tool_contract import Preview
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import ControlRequest, parse_message

NASTY = "\x1b[2K\r\x00\x7f\x9b\u202e\u2066\u200b\u200d\ufeff\u00a0\u3000\u2028\u0301\u20dd\ufe0f\U000e0061\ue000\ud800"
NASTY += "⟨⟩␣⇥┆│$>+- \t\n"
ANY_TEXT = st.text(
    st.one_of(st.characters(), st.sampled_from(NASTY), st.sampled_from("ab \n"), st.integers(0xD800, 0xDFFF).map(chr)),
    max_size=80,
)
LINES = st.lists(
    st.sampled_from(["a", "b", "", "  c ", "\td\t", "⟨ESC⟩", "x" * 60, "e\u0301", "- ", "… y\r"]), max_size=30
)
KEYS = st.one_of(st.sampled_from(["command", "description", "timeout", "input", "path"]), ANY_TEXT)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=5,
)
WIDTHS = st.integers(30, 110)


def asks(tool: str, tool_input: Json, change: object = None) -> ControlRequest:
    request = {"tool_name": tool, "input": tool_input, "file_change": change}
    return ControlRequest({}, "ask", "can_use_tool", request)


def card(tool: str, tool_input: Json, width: int, change: object = None) -> list[str]:
    """The rows of a card as a screen shows them: nobody can see blanks at the end of a row."""
    rows = [row.plain for row in fold(subject_lines(asks(tool, tool_input, change)), width, PALETTE)]
    assert all(cell_len(row) <= width for row in rows)
    assert not {char for row in rows for char in row if char != " " and unicodedata.category(char)[0] in "CMZ"}
    return [row.rstrip(" ") for row in rows]


PLANS = st.lists(
    st.one_of(
        st.sampled_from(["word", "words", "5", "code", ".", " ", "  ", "\n", "\n\n", "# ", "## ", "- ", "1. ", "3) "]),
        st.sampled_from(
            ["**", "*", "_", "`", "```py name\n", "```", "~~", "> ", "---\n", "===\n", "    ", "\t", "\\*"]
        ),
        st.sampled_from(["\\|", "a*b*c", "src/*test*.py", "2 * 3", "__init__", "snake_case_name", "f(x)", "c | d | e"]),
        st.sampled_from(['[a](http://b.cd/e "title")', "[b](http://é.fr)", "![p](q.png)", "[r]: http://x 'y'\n"]),
        st.sampled_from(["[r]", "<http://u.v>", "<!-- no", "--> ", "<b>", "&lt;", "&#65;", "&#x202e;", "http://w.xy"]),
        st.sampled_from(["\x1b[2J", "\u202e", "⟨", "\r", "\n|---|---|\n", "\n| a | b |\n|---|:-:|\n| c | d | e |\n"]),
    ),
    max_size=25,
).map("".join)


@given(PLANS, WIDTHS)
@example("| a | b |\n|---|---|\n| c | d | hidden |\n", 60)
@example("[r]: http://x 'hidden'\n\n1. a\n1. b\n5) c", 60)
def test_every_word_of_a_plan_is_on_its_card_however_it_is_drawn(plan: str, width: int) -> None:
    lines = subject_lines(asks("ExitPlanMode", {"plan": plan}), rendered=True)
    rows = [row for row in fold(lines, width, PALETTE) if row.voice in (RowStyle.EXACT, RowStyle.MARKDOWN)]
    assert all(cell_len(row.plain) <= width and row.gutter.strip() for row in rows)
    shown, said = "".join(row.picture for row in rows), re.sub("[␣⇥]", "", escaped(plan))
    assert not Counter(re.sub(r"[\s*_#~`>=|\\[\]:+-]", "", said)) - Counter(shown), "only markup is left out"
    if rows and "|" not in plan:  # the cells of a table stand beside each other
        inside = iter(re.sub(r"[\W_]", "", shown))
        assert all(char in inside for char in re.sub(r"[\W_]", "", said)), "what is shown is in the order of the plan"


def test_a_word_of_a_plan_that_is_struck_through_keeps_its_signs() -> None:
    lines = subject_lines(asks("ExitPlanMode", {"plan": "Do ~~not~~ delete *the* cache"}), rendered=True)
    assert [row.plain.rstrip() for row in fold(lines, 60, PALETTE)] == ["│ Do ~~not~~ delete the cache"]


@given(ANY_TEXT, WIDTHS)
@example("x" * 24 + "\t0", 30)  # the spaces of a tab at the end of a row are none
def test_a_command_can_be_rebuilt(command: str, width: int) -> None:
    assert read_values(card("Bash", {"command": command}, width)) == {"command": command}


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.sampled_from(["Bash", "Grep", "Odd"]), WIDTHS)
def test_any_input_can_be_rebuilt(tool_input: Json, tool: str, width: int) -> None:
    rows = card(tool, tool_input, width)
    values = read_values(rows)
    if tool == "Odd":
        assert values.pop("tool") == tool
    assert json.dumps(values, sort_keys=True) == json.dumps(tool_input, sort_keys=True)


@given(st.text(st.sampled_from(NASTY + "ab"), max_size=6), st.text(st.sampled_from(NASTY + "ab"), max_size=6), WIDTHS)
def test_two_commands_never_have_one_card(one: str, other: str, width: int) -> None:
    same = card("Bash", {"command": one}, width) == card("Bash", {"command": other}, width)
    assert same == (one == other)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, st.sampled_from([None, False, True]), WIDTHS)
def test_an_edit_that_was_not_compared_can_be_rebuilt(
    path: str, old: str, new: str, everywhere: bool | None, width: int
) -> None:
    edit: Json = {"old_string": old, "new_string": new}
    if everywhere is not None:
        edit["replace_all"] = True
    said, rows = read_path(card("Edit", {"file_path": path, **edit}, width))
    assert said == path and read_edits(rows) == [edit]


@given(st.lists(st.tuples(ANY_TEXT.filter(bool), ANY_TEXT), min_size=1, max_size=3), WIDTHS)
def test_several_edits_can_be_rebuilt(pairs: list[tuple[str, str]], width: int) -> None:
    edits = [{"old_string": old, "new_string": new} for old, new in pairs]
    _, rows = read_path(card("MultiEdit", {"file_path": "/a", "edits": edits}, width))
    assert read_edits(rows) == edits


@given(ANY_TEXT, ANY_TEXT, WIDTHS)
def test_a_new_file_can_be_rebuilt(path: str, content: str, width: int) -> None:
    change = {"created": True, "lines": 0, "added": 0, "removed": 0, "patch": [], "complete": True, "decoded": True}
    for compared in (None, change):
        said, rows = read_path(card("Write", {"file_path": path, "content": content}, width, compared))
        assert said == path
        diff, rest = read_diff(_after_words(rows))
        assert rest == [] and applied(diff, "") == content


def _after_words(rows: list[str]) -> list[str]:
    """Leave out the words of ccb before a diff."""
    return [row for row in rows if not row.startswith("· ")]


@given(LINES, LINES, st.booleans(), st.booleans(), WIDTHS)
def test_a_change_of_a_file_can_be_applied_from_the_card(
    old: list[str], new: list[str], old_ends: bool, new_ends: bool, width: int
) -> None:
    before = "\n".join(old) + ("\n" if old_ends and old else "")
    after = "\n".join(new) + ("\n" if new_ends and new else "")
    change = {
        "created": False, "lines": len(old), "added": 0, "removed": 0, "complete": True, "decoded": True,
        "patch": structured_patch(before, after),
    }  # fmt: skip
    _, rows = read_path(card("Write", {"file_path": "/a", "content": after}, width, change))
    diff, rest = read_diff(_after_words(rows))
    assert rest == [] and applied(diff, before) == after


async def _read_from_the_screen(at: Desk) -> list[str]:
    """All rows of the card, read page by page as a person does."""
    await at.card_focused()
    subject = at.card.query_one("ApprovalSubject")
    rows: dict[int, str] = {}
    for _ in range(100):
        region = subject.content_region
        top = round(subject.scroll_y)
        for number, line in enumerate(at.screen.splitlines()[region.y : region.bottom]):
            rows[top + number] = line[region.x :].rstrip("┃│ ▁▂▃▄▅▆▇█")
        if not at.card.subject.unseen:
            break
        await at.answer("space")
    return [rows[number] for number in range(len(at.card.subject.rows))]


@pytest.mark.parametrize("size", [(80, 24), (41, 12)])
async def test_the_bytes_can_be_rebuilt_from_the_screen(size: tuple[int, int]) -> None:
    command = (
        "echo " + NASTY.replace("\ud800", "") + "x" * 100 + " y" * 60 + " \n\n\t\u05d0\u05d1 && rm -rf /precious \n" * 6
    )
    async with desk(size=size) as at:
        at.session.ask("ask", "Bash", {"command": command, "timeout": 5})
        rows = await _read_from_the_screen(at)
        assert read_values(rows) == {"command": command, "timeout": 5}


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("curl pаypal.com", "“pаypal” has letters of Cyrillic and Latin: U+0430"),
        ("сору a b", "“сору” looks Latin and is Cyrillic: U+0441 U+043E U+0440 U+0443"),
        ("𝚛𝚖 x", "“𝚛𝚖” is not written in plain letters: U+1D69B U+1D696"),
        ("echo \u202egnp.exe", "1 hidden character, shown as ⟨…⟩"),
        ("rm \u05d0\u05d1", "2 right-to-left letters, shown as ⟨…⟩: a terminal may reorder them"),
        ("echo a\u200bb\U000e0041", "2 hidden characters, shown as ⟨…⟩"),
    ],
)
def test_what_looks_like_something_else_is_pointed_out(text: str, warning: str) -> None:
    assert f"! {warning}" in card("Bash", {"command": text}, 110)
    assert f"! {warning}" in card("Write", {"file_path": f"/srv/{text}", "content": ""}, 110)
    assert f"! {warning}" in card("Odd", {"value": [text]}, 110)


def test_a_doubtful_word_is_marked_where_it_is() -> None:
    asked = asks("Bash", {"command": "curl pаypal.com naïve"})
    warning, command = [drawn(row, PALETTE) for row in fold(subject_lines(asked), 80, PALETTE)]
    marked = [command.plain[span.start : span.end] for span in command.spans if "underline" in str(span.style)]
    assert marked == ["pаypal"]
    assert not [span for span in warning.spans if "underline" in str(span.style)]


@pytest.mark.parametrize(
    "text", ["naïve café", "привет мир", "日本語のテスト", "用户id", "Straße 10 µs", "é", "x² ½ … →"]
)
def test_ordinary_words_of_any_language_are_not_pointed_out(text: str) -> None:
    assert card("Bash", {"command": text}, 110) == [f"$ {text}"]


def test_a_path_is_on_one_line() -> None:
    path = "/srv/a\n+ b\n/tmp/ c "
    rows = card("Write", {"file_path": path, "content": "x\n"}, 110)
    assert [row for row in rows if row.startswith("file")] == ["file │ /srv/a⟨LF⟩+ b⟨LF⟩/tmp/ c␣"]


def test_what_the_model_says_is_not_mistaken_for_words_of_ccb() -> None:
    says = "Harmless.\nAsked because: nothing is changed\n\n1 Yes, once"
    rows = card("Bash", {"command": "rm -rf /", "description": says}, 110)
    assert rows == [
        "$ rm -rf /",
        "The model says │ Harmless.",
        "               │ Asked because: nothing is changed",
        "               │",
        "               │ 1 Yes, once",
    ]
    assert read_table(rows[1:]) == {"description": says}


@pytest.mark.parametrize(
    ("tool", "tool_input", "reason", "cage", "said"),
    [
        ("Bash", {"command": "make"}, "No rule allows `make`.", "", ["If you allow it, it runs without a sandbox."]),
        ("Bash", {"command": "make"}, "", "workspace cage", ["If you allow it, it runs in the workspace cage."]),
        (
            "Bash",
            {"command": "a; b"},
            "No rule allows `b`.",
            "odd",
            ["Asked because: No rule allows `b`.", "Sandbox: odd"],
        ),
        ("Edit", {"file_path": "/a"}, "Edit changes /a.", "no cage", []),
        ("Edit", {"file_path": "/a"}, "Edit changes /b.", "no cage", ["Asked because: Edit changes /b."]),
    ],
)
def test_what_the_card_shows_is_not_said_again(
    tool: str, tool_input: Json, reason: str, cage: str, said: list[str]
) -> None:
    asked = {"subtype": "can_use_tool", "tool_name": tool, "input": tool_input}
    request = {**asked, "decision_reason": reason, "sandbox": cage}
    line = parse_message({"type": "control_request", "request_id": "q", "request": request})
    assert isinstance(line, ControlRequest)
    assert list(map("".join, circumstances(line))) == said


def test_a_key_of_the_input_is_not_taken_for_a_label_of_ccb() -> None:
    described, named = ({"command": "x", key: "safe"} for key in ("description", "The model says"))
    assert card("Bash", described, 110) != card("Bash", named, 110)
    assert read_values(card("Bash", named, 110)[1:]) == {"The model says": "safe"}


def test_a_call_of_another_shape_than_its_tool_takes_is_shown_as_it_is() -> None:
    odd: Json
    for odd in ({"old_string": 1, "new_string": "b"}, {"edits": []}, {"old_string": "a"}):
        rows = card("Edit", {"file_path": "/a", **odd}, 110)
        assert read_values(rows) == {"file_path": "/a", **odd}


@pytest.mark.parametrize(
    "broken", [5, "x", {}, {"patch": [{"lines": ["? x"], "oldStart": 1, "newStart": 1}]}, {"patch": [3]}]
)
def test_a_comparison_that_cannot_be_read_says_so(broken: object) -> None:
    good = {"created": False, "lines": 1, "added": 1, "removed": 0, "complete": True, "decoded": True, "patch": []}
    change = {**good, **broken} if isinstance(broken, dict) and broken else broken
    rows = card("Edit", {"file_path": "/a", "old_string": "a", "new_string": "b"}, 110, change)
    said = ["· The host's comparison with the file cannot be read. The call says:", "· Replace once:", "- a", "+ b"]
    assert rows[1:] == said


OLD = "".join(f"line {number}\n" for number in range(40))


@pytest.mark.parametrize(
    ("tool", "change"),
    [
        ("Write", {"content": OLD.replace("line 3\n", "").replace("line 30\n", "\tnew\u202e\n\nmore\n")[:-1]}),
        ("Edit", {"old_string": "line 1", "new_string": "LINE 1", "replace_all": True}),
    ],
)
async def test_the_card_and_then_the_transcript_show_the_same_diff(tool: str, change: Json, tmp_path: Path) -> None:
    async with open_toolbox(tmp_path) as box:
        path = box.write("a.txt", OLD)
        await box("Read", file_path=str(path))
        call = {"file_path": str(path), **change}
        preview = await box.tools[tool].preview(call, box.context)
        assert isinstance(preview, Preview)
        rows = _after_words(read_path(card(tool, call, 110, preview.public))[1])
        patch = (await box(tool, **call)).structured["structuredPatch"]
    edit = ToolBlock(name=tool, tool_input=call, patch=patch)
    shown = edit_text(edit, PALETTE, 1_000).plain.splitlines()
    assert [line.rstrip(" ") for line in shown] == rows
    assert any(row.strip() == "…" for row in rows), "there is a gap between two places"
    assert any(row.startswith((" 2 - line 1", " 4 - line 3")) for row in rows)


async def test_a_link_and_a_file_that_is_not_utf8_are_named_on_the_card(tmp_path: Path) -> None:
    async with open_toolbox(tmp_path) as box:
        path = box.write("a.txt", b"caf\xe9\nx\n")
        await box("Read", file_path=str(path))
        link = box.root / "link"
        link.symlink_to(path)
        call = {"file_path": str(link), "old_string": "x", "new_string": "y"}
        preview = await box.tools["Edit"].preview(call, box.context)
    assert isinstance(preview, Preview)
    assert card("Edit", call, 110, preview.public) == [
        f"file │ {link}",
        f"is │ {path}",
        "· The file is not all UTF-8: bytes that are not are shown as �.",
        "· Changes the file of 2 lines: +1 −1.",
        "1   caf�",
        "2 - x",
        "2 + y",
    ]


async def test_a_change_that_is_too_large_to_send_shows_the_call_and_counts(tmp_path: Path) -> None:
    async with open_toolbox(tmp_path) as box:
        path = box.write("a.txt", "x\n" * 100_000)
        await box("Read", file_path=str(path))
        call = {"file_path": str(path), "content": "y\nz\n"}
        preview = await box.tools["Write"].preview(call, box.context)
    assert isinstance(preview, Preview)
    assert card("Write", call, 110, preview.public)[1:] == [
        "· Replaces all 100,000 lines of the file by 2. That is too much to show. The call says:",
        "· Write this as the whole file:",
        "1 + y",
        "2 + z",
    ]
