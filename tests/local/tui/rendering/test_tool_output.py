"""What the transcript shows of a tool's output: its end, true counts, and lines as a terminal would leave them."""

from __future__ import annotations

import time

import pytest
from tests.support.repl.paper import PALETTE, edit_text
from tests.support.repl.pilot import Desk

from ccb.local.transcript.blocks import MAX_BLOCK_CHARS, ToolBlock, ToolState
from ccb.local.tui.rendering.tool_output import MAX_DETAIL_LINES, headline, last_state, tool_output, tool_summary


def shown(result: str, *, name: str = "Bash", details: bool = False, failed: bool = False) -> list[str]:
    block = ToolBlock(name=name, result=result, state=ToolState.FAILED if failed else ToolState.DONE)
    text = tool_output(block, PALETTE, details=details)
    assert text is not None
    return [line[2:] for line in text.plain.splitlines()]


async def _ran(at: Desk, output: str) -> None:
    await at.turn()
    at.session.done(at.session.call("Bash", command="make"), output)
    await at.sees("● Bash make")


@pytest.mark.parametrize("lines", [1_000, 5_000])
async def test_ctrl_o_shows_a_long_output_to_its_end(at: Desk, lines: int) -> None:
    await _ran(at, "".join(f"line {n}\n" for n in range(lines)))
    await at.press("ctrl+o", sees=(f"line {lines - 1}", f"line {lines - 15}"), lacks="Ctrl+O")


def test_what_details_leave_out_of_a_very_long_output_is_its_middle_and_is_counted() -> None:
    lines = shown("".join(f"line {n}\n" for n in range(10_000)), details=True)
    assert (lines[0], lines[-1]) == ("line 0", "line 9999")
    (gap,) = [line for line in lines if "not shown" in line]
    assert gap == f"… {10_000 - MAX_DETAIL_LINES:,} lines in the middle not shown"
    assert len(lines) == MAX_DETAIL_LINES + 1


async def test_a_result_too_long_to_keep_keeps_its_end(at: Desk) -> None:
    await _ran(at, "x" * 100 + "\n" + "y" * MAX_BLOCK_CHARS + "\nTHE END")
    await at.sees("THE END")
    await at.press("ctrl+o", sees="THE END")


def test_blank_lines_count() -> None:
    output = "\n\n".join(f"line {n}" for n in range(1, 11))  # 19 lines
    assert shown(output) == ["… 14 earlier lines (Ctrl+O)", "line 8", "line 9", "line 10"]
    found = shown(output, name="Grep")
    assert found == ["line 1", "line 2", "line 3", "line 4", "… 12 more lines (Ctrl+O)"]
    assert shown("1\n2\n3\n4\n5\n", name="Grep")[-1] == "… 1 more line (Ctrl+O)"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("10%\r20%\r", "20%"),
        ("downloading\rdone", "doneloading"),
        ("downloading\r\x1b[Kdone", "done"),
        ("50%\x1b[2K\r\x1b[32mok\x1b[0m", "ok"),
        ("wait |\x08/\x08-", "wait -"),
        ("one\r\r\ntwo", "one\ntwo"),
        ("\rstart", "start"),
        ("a\x08\x08\x08b", "b"),
        ("abc\x1b[1Kd", "   d"),
    ],
)
def test_a_line_that_was_written_over_is_shown_as_a_terminal_leaves_it(output: str, line: str) -> None:
    assert shown(output) == line.splitlines()
    running = tool_output(ToolBlock(name="Bash", output=output, state=ToolState.RUNNING), PALETTE, details=False)
    assert running is not None and running.plain == "└ " + line.replace("\n", "\n  ")


def test_the_carriage_returns_of_a_file_stay_visible() -> None:
    assert shown("good\revil", name="Grep") == ["good␍evil"]


def test_a_line_written_over_very_often_takes_no_time() -> None:
    began = time.process_time()
    assert len(last_state("x" * 200_000 + "\ry" * 200_000)) == 200_000
    assert time.process_time() - began < 2


def test_marks_for_the_model_are_not_shown_around_an_error() -> None:
    error = "<tool_use_error>InputValidationError: Edit: no old_string\nTry again.</tool_use_error>"
    assert shown(error, name="Edit", failed=True) == ["InputValidationError: Edit: no old_string", "Try again."]
    quoted = "grep found <tool_use_error>x</tool_use_error>"
    assert shown(quoted, failed=True) == [quoted]


def test_the_details_of_a_long_edit_go_to_its_end_and_its_summary_is_counted() -> None:
    written = {"content": "".join(f"line {n}\n" for n in range(10_000))}
    edit = ToolBlock(name="Write", tool_input=written)
    lines = edit_text(edit, PALETTE, MAX_DETAIL_LINES, details=True).plain.splitlines()
    assert (lines[0], lines[-1]) == ("    1 + line 0", "10000 + line 9999")
    assert sum(f"{10_000 - MAX_DETAIL_LINES:,} lines in the middle not shown" in line for line in lines) == 1
    assert edit_text(edit, PALETTE, 24).plain.endswith("… 9,976 more lines (Ctrl+O)")


def test_calls_of_the_web_are_named_by_what_they_seek_and_their_summary_says_more_than_that() -> None:
    assert headline("WebSearch", {"query": "textual 8", "allowed_domains": ["a.org"]}) == "textual 8"
    assert headline("WebFetch", {"url": "https://a.org/b", "prompt": "What is new?"}) == "https://a.org/b"
    found = 'Web search results for "textual 8":\n\nLinks: []\n\nIt is out.'
    block = ToolBlock(name="WebSearch", tool_input={"query": "textual 8"}, result=found, state=ToolState.DONE)
    assert tool_summary(block) == "5 lines"


def test_a_search_names_the_place_that_is_searched() -> None:
    place = {"pattern": "*.conf", "path": "/srv/shop/data"}
    assert headline("Glob", place, "/srv/shop") == "*.conf in data"
    assert headline("Grep", {**place, "path": "/srv/shop"}, "/srv/shop") == "*.conf"
    assert headline("Grep", {**place, "path": "/etc\x1b"}, "/srv/shop") == "*.conf in /etc"
