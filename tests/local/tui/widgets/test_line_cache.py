"""What is kept of drawn blocks: bounded, and never of another width or version."""

from __future__ import annotations

import pytest
from rich.segment import Segment
from tests.support.repl.pilot import desk

from ccb.local.transcript.blocks import Block
from ccb.local.tui.widgets.drawing import Line, LineCache


def lines(count: int) -> list[Line]:
    return [[Segment(" ")]] * count


def test_lines_are_found_under_their_key_only() -> None:
    cache, block = LineCache(100), Block()
    cache.keep(block, (80, 0), lines(3))
    assert cache.lines(block, (80, 0)) == lines(3)
    assert cache.height(block, (80, 0)) == 3
    assert cache.lines(block, (40, 0)) is None
    assert cache.height(block, (80, 1)) is None


def test_lines_used_longest_ago_go_first_and_heights_stay() -> None:
    cache, blocks = LineCache(100), [Block() for _ in range(20)]
    for block in blocks[:10]:
        cache.keep(block, (), lines(10))
    cache.lines(blocks[0], ())
    for block in blocks[10:]:
        cache.keep(block, (), lines(9))
    assert cache.lines(blocks[1], ()) is None
    assert [cache.lines(block, ()) is not None for block in (blocks[0], *blocks[10:])] == [True] * 11
    assert [cache.height(block, ()) for block in blocks] == [10] * 10 + [9] * 10


def test_a_few_long_blocks_stay_together() -> None:
    cache, blocks = LineCache(100), [Block() for _ in range(9)]
    for block in blocks:
        cache.keep(block, (), lines(1_000))
    assert [cache.lines(block, ()) is not None for block in blocks] == [False] + [True] * 8


def test_a_block_that_is_drawn_again_counts_once() -> None:
    cache, block, others = LineCache(100), Block(), [Block() for _ in range(9)]
    for version in range(50):
        cache.keep(block, (version,), lines(10))
    for other in others:
        cache.keep(other, (), lines(10))
    assert cache.lines(block, (49,)) is not None


def test_what_is_forgotten_is_gone() -> None:
    cache, block = LineCache(100), Block()
    cache.keep(block, (), lines(3))
    cache.forget(block)
    assert cache.lines(block, ()) is None
    assert cache.height(block, ()) is None
    cache.keep(block, (), lines(3))
    cache.outdate()
    assert cache.lines(block, ()) is None


@pytest.mark.slow
async def test_a_page_longer_than_the_cache_reads_the_same_up_and_down() -> None:
    async with desk(size=(60, 30)) as at:
        await at.prompt("go")
        for number in range(1_500):
            at.session.text(f"Message {number} of many.", message_id=f"m{number}")
        await at.sees("Message 1499 of many.")
        at.app.view.transcript.scroll_home(animate=False)
        await at.sees("Message 0 of many.", "Message 9 of many.")
        for _ in range(120):
            await at.pilot.press("pagedown")
        await at.sees("Message 1499 of many.", "Message 1490 of many.")
