"""What is kept of drawn blocks: bounded, and never of another width or version."""

from __future__ import annotations

import pytest
from rich.console import Console
from tests.support.repl.paper import PALETTE
from tests.support.repl.pilot import desk

from ccb.local.terminal.keymap import DEFAULT_KEYMAP
from ccb.local.transcript.blocks import Block, NoticeBlock
from ccb.local.tui.widgets.drawing import TranscriptDrawing


def drawing(max_lines: int = 100) -> TranscriptDrawing:
    return TranscriptDrawing(lambda: (Console(), PALETTE), lambda block: None, "", DEFAULT_KEYMAP, None, max_lines)


def block(lines: int) -> NoticeBlock:
    """A block that is drawn as so many lines, a blank one among them."""
    return NoticeBlock(text="\n".join("x" * (lines - 1)))


def kept(cache: TranscriptDrawing, of: Block) -> bool:
    return of in cache._lines and cache.height(of, 80) is not None


def test_lines_are_found_under_their_width_and_version_only() -> None:
    cache, shown = drawing(), block(3)
    assert len(cache.lines(shown, 80)) == 3 and cache.height(shown, 80) == 3
    assert cache.height(shown, 40) is None
    shown.changed()
    assert cache.height(shown, 80) is None


def test_lines_used_longest_ago_go_first_and_heights_stay() -> None:
    cache, blocks = drawing(), [*(block(10) for _ in range(10)), *(block(9) for _ in range(10))]
    for each in (*blocks[:10], blocks[0], *blocks[10:]):
        cache.whole(each, 80)
    assert not kept(cache, blocks[1])
    assert all(kept(cache, each) for each in (blocks[0], *blocks[10:]))
    assert [cache.height(each, 80) for each in blocks] == [10] * 10 + [9] * 10


def test_a_few_long_blocks_stay_together() -> None:
    cache, blocks = drawing(), [block(300) for _ in range(9)]
    for each in blocks:
        cache.whole(each, 80)
    assert [kept(cache, each) for each in blocks] == [False] + [True] * 8


def test_a_block_that_is_drawn_again_counts_once() -> None:
    cache, again, others = drawing(), block(10), [block(10) for _ in range(9)]
    for _ in range(50):
        cache.lines(again, 80)
        again.changed()
    cache.lines(again, 80)
    for other in others:
        cache.lines(other, 80)
    assert kept(cache, again)


def test_what_is_forgotten_or_outdated_is_drawn_again() -> None:
    cache, shown = drawing(), block(3)
    for forget in (cache.forget, lambda _: cache.outdate()):
        cache.lines(shown, 80)
        forget(shown)
        assert not kept(cache, shown) and cache.height(shown, 80) is None


@pytest.mark.thorough
@pytest.mark.slow
async def test_a_page_longer_than_the_cache_reads_the_same_up_and_down() -> None:
    async with desk(size=(60, 30)) as at:
        await at.prompt("go")
        for number in range(1_500):
            at.session.text(f"Message {number} of many.", message_id=f"m{number}")
        await at.sees("Message 1499 of many.")
        at.view.transcript.scroll_home(animate=False)
        await at.sees("Message 0 of many.", "Message 9 of many.")
        for _ in range(120):
            await at.press("pagedown")
        await at.sees("Message 1499 of many.", "Message 1490 of many.")
