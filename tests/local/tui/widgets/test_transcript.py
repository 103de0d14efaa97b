"""The transcript: streamed text, tools, and the bottom of the page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace
from weakref import WeakSet

import pytest
from rich.console import Console
from tests.support.repl.paper import PALETTE, Paper
from tests.support.repl.pilot import Desk, desk
from tests.support.repl.scripted_session import ScriptedSession
from textual import events

from ccb.local.session.model_waits import retry_text
from ccb.local.transcript.blocks import Block, MarkdownBlock, NoticeBlock
from ccb.local.tui.rendering.block_renderer import BlockRenderer
from ccb.local.tui.widgets.drawing import MAX_BLOCKS, MAX_BYTES, Line, draw_parts, line_text
from ccb.local.tui.widgets.transcript import Transcript
from ccb.tunnel.wire.messages import SystemMessage, parse_message


def test_text_grows_with_the_deltas_and_is_shown_once_when_it_is_finished(told: Paper) -> None:
    told.streams("The answer ")
    told.sees("The answer")
    told.delta("is **forty-two**.")
    told.sees("The answer is forty-two.")
    told.text("The answer is **forty-two**.")
    told.finish()
    assert told.screen.count("The answer") == 1 and not told.reducer.running


async def test_what_grows_is_drawn_once_a_frame_and_only_its_last_piece(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Block] = []

    def noting(console: Console, renderer: BlockRenderer, block: Block, width: int) -> Iterator[list[Line]]:
        drawn.append(block)
        return draw_parts(console, renderer, block, width)

    monkeypatch.setattr("ccb.local.tui.widgets.drawing.draw_parts", noting)
    await at.turn("hello")
    at.session.open_block("text")
    for number in range(120):
        at.session.delta(f"- item {number} of a long list that is split\n")
    await at.sees("item 119")
    blocks = [each for each in at.view.transcript.blocks if isinstance(each, MarkdownBlock)]
    assert len(blocks) > 5
    await at.until(lambda: not at.view.transcript._drawing.going)
    at.session.delta("- the last item\n")
    drawn.clear()
    await at.sees("the last item")
    now = [each for each in at.view.transcript.blocks if isinstance(each, MarkdownBlock)]
    assert now[-1] in drawn and set(drawn) <= set(now[-2:]), "and the piece that was cut off from it"
    drawn.clear()
    at.session.text("".join(each.text for each in blocks))
    at.session.finish()
    await at.until(lambda: not at.view.reducer.running)
    assert not set(drawn) & set(blocks[:-1])


async def test_what_is_far_from_the_screen_is_drawn_in_slices_and_all_of_it_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ccb.local.tui.widgets.transcript._SLICE_S", 0)
    slices: list[int] = [0]

    def counting(console: Console, renderer: BlockRenderer, block: Block, width: int) -> Iterator[list[Line]]:
        slices[-1] += 1
        return draw_parts(console, renderer, block, width)

    class Sliced(Transcript):
        def _measure(self, start: int, width: int) -> None:
            slices.append(0)
            super()._measure(start, width)

    monkeypatch.setattr("ccb.local.tui.widgets.drawing.draw_parts", counting)
    monkeypatch.setattr("ccb.local.tui.session_view.Transcript", Sliced)
    async with desk(size=(100, 30), turn="go") as at:
        for number in range(100):
            at.session.text(f"Message {number}.", message_id=f"m{number}")
        await at.sees("Message 99.")
        await at.until(lambda: sum(slices) >= 100)
        assert max(slices) < 60, "no frame draws everything"


async def _settled(at: Desk) -> None:
    await at.until(lambda: not at.view.reducer.running and at.view.transcript.virtual_size.height > 300)


async def test_a_long_text_in_many_deltas_looks_like_the_same_text_at_once() -> None:
    text = "# Title\n\n" + "".join(
        f"Paragraph {n} with `code` and *more* words to fill the line of the screen.\n\n- one\n- two\n  still two\n\n"
        "```python\nprint(1)\n\nprint(2)\n```\n\n"
        for n in range(40)
    )
    texts = []
    for streamed in (True, False):
        async with desk(size=(80, 60), turn="hello") as at:
            if streamed:
                at.session.open_block("text")
                for start in range(0, len(text), 33):
                    at.session.delta(text[start : start + 33])
            at.session.text(text)
            at.session.finish()
            await at.sees("Paragraph 39")
            await _settled(at)
            await at.sees("devbox:/srv/shop  ask")
            texts.append(at.lines[:-1])
    assert texts[0] == texts[1]


def test_what_was_streamed_of_a_message_that_was_cut_is_taken_away(told: Paper) -> None:
    told.streams("half a sen", message_id="msg_1")
    told.open_block("tool_use", 1, "msg_1", id="toolu_cut", name="Bash", input={})
    told.sees("half a sen", "Bash")
    told.streams("a whole sentence", message_id="msg_2")
    told.sees("a whole sentence")
    told.loses("half a sen", "Bash")


def test_thinking_is_a_line_until_details_are_asked_for(told: Paper) -> None:
    told.streams("Secretly pondering", kind="thinking")
    told.sees("Thinking…")
    told.assistant({"type": "thinking", "thinking": "Secretly pondering all of it"})
    told.sees("Thought, 5 words")
    told.loses("Secretly")
    told.details = not told.details
    told.sees("Secretly pondering all of it")
    told.details = not told.details
    told.loses("Secretly")


def test_a_tool_shows_its_state_its_newest_output_and_then_its_result(told: Paper) -> None:
    told.open_block("tool_use", id="toolu_1", name="Bash", input={})
    told.sees("○ Bash")
    call = told.call("Bash", tool_id="toolu_1", command="make test")
    told.sees("○ Bash make test")
    told.run(call, "".join(f"line {n}\n" for n in range(1, 31)), 7)
    told.sees("Bash make test  7 s", "line 23", "line 30")
    told.loses("line 22\n")
    told.done(call, "".join(f"line {n}\n" for n in range(1, 31)) + "all passed")
    told.sees("● Bash make test  all passed · 31 lines")
    told.loses("7 s")
    assert told.screen.count("Bash") == 1


def test_calls_that_ended_well_are_a_list_of_one_line_each_and_ctrl_o_shows_what_they_printed(told: Paper) -> None:
    told.done(told.call("Grep", pattern="total"), "cart.py:1\ncart.py:2\ncart.py:3")
    told.done(told.call("Bash", command="git status"), "")
    told.done(told.call("Bash", command="make"), "cc cart.c\n\nok\n")
    failed = told.call("Bash", command="false")
    told.done(failed, "exit code 1", is_error=True)
    told.sees(
        " ● Grep total  cart.py:1 · 3 lines\n"
        " ● Bash git status\n"
        " ● Bash make  ok · 3 lines\n"
        " ✗ Bash false\n"
        "   └ exit code 1"
    )
    told.details = not told.details
    told.sees(" ● Bash make\n   └ cc cart.c\n\n     ok\n\n ✗ Bash false")


def test_a_long_command_leaves_room_for_what_came_of_it() -> None:
    told = Paper(57)
    told.done(told.call("Bash", command="echo " + "long " * 30), "3 failed, 40 passed")
    told.sees("● Bash echo long long", "…  3 failed, 40 passed")


def test_a_file_outside_the_directory_of_the_session_keeps_its_whole_path(told: Paper) -> None:
    told.done(told.call("Read", file_path="/srv/shopping/list"), "1\tmilk")
    told.done(told.call("Read", file_path="/srv/shop/list"), "1\tmilk\n2\t\n\n[the range ends at line 2]")
    told.sees("● Read /srv/shopping/list  1 line\n ● Read list  2 lines")


def test_a_tool_without_a_result_does_not_look_as_if_it_ran_on_after_the_turn(told: Paper) -> None:
    told.run(told.call("Bash", command="sleep 99"), "…", 3)
    told.sees("Bash sleep 99  3 s")
    told.finish(is_error=True, terminal_reason="aborted_tools")
    told.sees("✗ Bash sleep 99")


def retry_note(**fields: object) -> SystemMessage:
    note = parse_message({"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10, **fields})
    assert isinstance(note, SystemMessage)
    return note


@pytest.mark.parametrize(
    ("error", "status", "delay_ms", "text"),
    [
        ("unknown", None, 500, "The model's answer did not arrive; try 1 of 10"),
        (None, 418, 1000, "The model did not answer (HTTP 418); try 1 of 10 in 1 s"),
        ("rate_limit", 429, 30_000, "Too many requests to the model (HTTP 429); try 1 of 10 in 30 s"),
        ("some_new\n\x1b[2Jname", 500, 2000, "The model did not answer (some new name) (HTTP 500); try 1 of 10 in 2 s"),
    ],
)
def test_why_the_model_is_asked_again_is_said(error: str | None, status: int | None, delay_ms: int, text: str) -> None:
    note = retry_note(error=error, error_status=status, retry_delay_ms=delay_ms)
    assert retry_text(note) == text and retry_text(note, waits=False) == text.partition(" in ")[0]


def test_a_laptop_that_reaches_no_model_says_so_and_tells_no_status() -> None:
    message = "this laptop cannot reach api.test: \x1b[2Jno\nroute; check the network"
    note = retry_note(error="unknown", api_error_type="laptop_unreachable", retry_delay_ms=2000, message=message)
    said = "this laptop cannot reach api.test: no route; check the network; try 1 of 10 in 2 s"
    assert retry_text(note) == said[0].upper() + said[1:]


def test_a_long_prompt_is_shown_in_part(told: Paper) -> None:
    told.prompted("\n".join(f"line {n}" for n in range(35)))
    told.sees("line 29", "… 5 more lines (Ctrl+O)")
    told.details = not told.details
    told.sees("line 34")


async def _long_talk(at: Desk, lines: int = 100) -> None:
    await at.turn("count")
    await at.says("\n".join(f"- number {n}" for n in range(lines)), sees=f"number {lines - 1}")


async def test_it_stays_at_the_bottom_until_the_person_scrolls_up(at: Desk) -> None:
    await _long_talk(at)
    await at.press("pageup", loses="number 99")
    await at.until(lambda: "↓ more below" in at.status)
    before = at.lines[:20]
    at.session.text("Something new at the end.", message_id="msg_2")
    await at.until(lambda: at.view.transcript.virtual_size.height > 102)
    assert at.lines[:20] == before
    while at.view.transcript.lines_below:  # what has just come may still be laid out
        await at.press("pagedown")
    await at.sees("Something new at the end.")
    await at.says("And it follows again.", message_id="msg_3", sees="And it follows again.")


async def test_a_page_that_had_nothing_to_scroll_goes_on_following(at: Desk) -> None:
    await at.prompt("hello")
    await at.press("pageup", "pagedown")
    at.session.begin()
    await at.says("\n".join(f"- number {n}" for n in range(100)), sees="number 99")
    assert at.view.transcript.lines_below == 0 and at.view.transcript.scroll_y == at.view.transcript.max_scroll_y


async def test_a_page_up_counts_at_once_however_fast_text_comes(at: Desk) -> None:
    await _long_talk(at)
    page = at.view.transcript.scrollable_content_region.height
    bottom = at.view.transcript.scroll_y
    at.app.action_on_session("page-up")
    assert at.view.transcript.scroll_y == bottom - page
    for n in range(20):
        at.session.text(f"More of it: {n}.", message_id=f"more_{n}")
    await at.until(lambda: "↓ more below" in at.status and at.view.transcript.virtual_size.height > 120)
    assert at.view.transcript.scroll_y == bottom - page


async def test_the_wheel_scrolls_and_sending_goes_back_to_the_bottom(at: Desk) -> None:
    await _long_talk(at)
    for _ in range(3):
        at.view.transcript.post_message(events.MouseScrollUp(at.view.transcript, 5, 5, 0, -1, 0, False, False, False))
    await at.loses("number 99")
    await at.prompt("next", sees=("number 99", "❯ next"))


async def test_what_comes_just_before_the_next_frame_is_shown(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = at.view.transcript
    await at.until(lambda: not shown._layout_waits)
    clock = SimpleNamespace(monotonic=lambda: 100.0, thread_time=time.thread_time)
    monkeypatch.setattr("ccb.local.tui.widgets.transcript.time", clock)
    shown._laid_out_at, shown._frame_s = 100.0, 1e-9
    await at.says("A nanosecond before.", sees="A nanosecond before.")


async def test_a_resize_keeps_the_first_line_in_sight(at: Desk) -> None:
    await at.turn("talk")
    await at.says("\n\n".join(" ".join(f"w{part}x{n}" for n in range(90)) for part in range(30)), sees="w29x89")
    await at.press("pageup", "pageup")
    first = at.lines[0].split()[0]
    await at.pilot.resize_terminal(40, 30)
    await at.until(lambda: first in at.lines[0])
    for columns in (4, 3, 2, 1):  # too narrow for anybody, but no reason to end
        await at.pilot.resize_terminal(columns, 30)
    await at.pilot.resize_terminal(100, 30)
    await at.until(lambda: at.lines[0].split()[:1] == [first])


async def test_a_double_click_copies_the_word(at: Desk) -> None:
    await at.turn("talk")
    await at.says("日本 open (src/app.py:12), please", sees="open (src")
    row = next(n for n, line in enumerate(at.lines) if "open (src" in line)
    column = at.lines[row].index("app.py") + 2  # two wide characters before it
    transcript = at.view.transcript
    await at.pilot.click(transcript, offset=(column, row), times=2)
    await at.until(lambda: at.app.clipboard == "src/app.py:12")
    await at.pilot.click(transcript, offset=(column, row), times=3)
    await at.until(lambda: at.app.clipboard == "日本 open (src/app.py:12), please")


async def test_what_the_mouse_selects_is_copied_as_it_is_written(at: Desk) -> None:
    await at.turn("talk")
    await at.says("日本 copy me please", sees="copy me please")
    row = next(n for n, line in enumerate(at.screen.splitlines()) if "copy me" in line)
    column = at.screen.splitlines()[row].index("copy") + 2  # two wide characters before it
    await at.pilot.mouse_down(at.view.transcript, offset=(column, row))
    await at.pilot.hover(at.view.transcript, offset=(column + 7, row))
    await at.pilot.mouse_up(at.view.transcript, offset=(column + 7, row))
    await at.until(lambda: at.app.clipboard)
    assert at.app.clipboard.startswith("copy me")
    await at.until(lambda: "sent to the terminal's clipboard" in at.status)


@pytest.mark.parametrize("details", [False, True])
async def test_the_oldest_entries_go_when_there_are_too_many(at: Desk, details: bool) -> None:
    if details:
        await at.press("ctrl+o")
    for n in range(MAX_BLOCKS + 10):
        at.view.reducer.notice(f"entry {n}")
    await at.sees(f"entry {MAX_BLOCKS + 9}")
    assert len(at.view.transcript.blocks) <= MAX_BLOCKS
    transcript: Transcript = at.view.transcript
    transcript.scroll_home(animate=False)
    await at.sees("older entries are no longer shown here")


async def test_a_long_file_is_drawn_in_slices_and_looks_as_before_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [0]  # the number of parts in each turn of the event loop
    screens: list[str] = []

    def counting(console: Console, renderer: BlockRenderer, block: Block, width: int) -> Iterator[list[Line]]:
        for part in draw_parts(console, renderer, block, width):
            turns[-1] += 1
            screens.append(at.screen if sum(turns) == 30 else "")
            yield part

    async def turn() -> None:
        while True:
            await asyncio.sleep(0)
            if turns[-1]:
                turns.append(0)

    monkeypatch.setattr("ccb.local.tui.widgets.drawing._SLICE_S", 0)
    async with desk(size=(100, 30), turn="go") as at:
        content = "".join(f"value_{number} = {number}\n" for number in range(1_500))
        call = at.session.call("Write", file_path="/srv/shop/values.py", content=content)
        at.session.done(call, "written")
        await at.sees("1,476 more lines")
        monkeypatch.setattr("ccb.local.tui.widgets.drawing.draw_parts", counting)
        turning = asyncio.create_task(turn())
        at.view.transcript.toggle_details()
        await at.sees("value_1499 = 1499")
        turning.cancel()
        assert sum(turns) > 60 and max(turns) < 10, "60 parts, of which a turn draws only some"
        assert any("1,476 more lines" in screen for screen in screens)


async def test_blocks_that_come_between_two_layouts_keep_no_more_than_the_page_may() -> None:
    """Each is added without text. Nothing is painted of those that had to go."""
    added: WeakSet[MarkdownBlock] = WeakSet()

    def held() -> int:
        return sum(len(each.text) for each in added)

    async with desk(ScriptedSession()) as at:
        transcript = at.view.transcript

        def add(count: int) -> None:
            for number in range(count):
                block = MarkdownBlock()
                added.add(block)
                transcript.add(block)
                block.text = f"block {number}\n\n" + "word " * 80_000
                transcript.update_block(block)

        add(3)
        await at.until(lambda: transcript.lines_below == 0 and transcript.blocks[-1].version == 1)
        add(2 * MAX_BYTES // 400_000)
        for row in range(transcript.size.height):
            transcript.render_line(row)
        assert held() < MAX_BYTES + 400_000
        await at.until(lambda: transcript.blocks[-1].version == 1)
        assert held() < MAX_BYTES + 400_000


def test_a_long_line_is_drawn_in_parts() -> None:
    renderer = BlockRenderer(PALETTE)
    drawn = list(draw_parts(Console(width=80), renderer, MarkdownBlock(text="x" * 100_000), 80))
    assert max(map(len, drawn)) == 20_000 // 80
    assert sum(len(line_text(line)) for part in drawn for line in part) == 100_000


async def test_a_block_that_comes_above_others_shifts_nothing_before_it_is_laid_out(at: Desk) -> None:
    await at.turn("first")
    await at.prompt("second", sees="second  (queued)")
    transcript = at.view.transcript
    before = [transcript.render_line(y).text for y in range(transcript.size.height)]
    new = NoticeBlock(text="an answer begins")
    transcript.add(new, before=transcript.blocks[-1])
    assert [transcript.render_line(y).text for y in range(transcript.size.height)] == before
    await at.sees("an answer begins", "second  (queued)")
    transcript.take_away(new)
    assert "second  (queued)" in "".join(transcript.render_line(y).text for y in range(transcript.size.height))
    await at.loses("an answer begins")
