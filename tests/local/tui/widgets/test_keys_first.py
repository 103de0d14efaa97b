"""A key is drawn before what the agent writes, and asks for no more than its own widget."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.repl.pilot import Desk, key_event
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from ccb.local.tui.composer.composer import Composer
from ccb.local.tui.widgets.painting import KeyPriority, WorkSlices
from ccb.local.tui.widgets.transcript import Transcript

_MOVE_FOR_NOTHING = re.compile(r"\x1b\[\d+;\d+H(?=\x1b\[\d+;\d+H|\n|$)")


async def _streaming(at: Desk, lines: int = 60) -> None:
    await at.turn()
    at.session.open_block("text")
    for number in range(lines):
        at.session.delta(f"- item {number}\n")
    await at.sees(f"item {lines - 1}")


async def test_a_key_is_painted_before_the_text_that_came_with_it(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    painted: list[str] = []
    render_lines: dict[type, Callable[[Any, Region], list[Strip]]] = {
        kind: kind.render_lines for kind in (Composer, Transcript)
    }

    def noting(widget: Widget, crop: Region) -> list[Strip]:
        painted.append(type(widget).__name__)
        return render_lines[type(widget)](widget, crop)

    await _streaming(at)
    for kind in (Composer, Transcript):
        monkeypatch.setattr(kind, "render_lines", noting)
    driver = at.app._driver
    assert driver is not None
    for number in range(5):
        await asyncio.sleep(0.1)  # the frame before is over
        at.session.delta(f"\n\n- much later {number}\n")
        for _ in range(50):
            at.session.delta("word ")
        painted.clear()
        at.app.keys_first.came()  # as the thread says that reads the terminal
        driver.send_message(key_event("x"))
        await at.sees(f"much later {number}")
        assert painted[0] == "Composer", painted
        assert "x" * (number + 1) in at.composer.text


async def test_the_stream_stands_still_for_a_key_that_is_not_shown_yet_but_not_for_long(at: Desk) -> None:
    await _streaming(at)
    laid_out = at.view.transcript.virtual_size.height
    at.app.keys_first.came()  # and nothing is ever painted for it
    began = time.monotonic()
    at.session.delta("- the last item\n")
    await at.until(lambda: at.view.transcript.virtual_size.height > laid_out)
    assert time.monotonic() - began > 0.03, "it waited"
    await at.sees("the last item")


def test_keys_that_change_nothing_leave_time_for_work_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("ccb.local.tui.widgets.painting.time.monotonic", lambda: now[0])
    keys, free = KeyPriority(), 0
    for _ in range(1_000):
        keys.came()
        free += not keys.waits
        now[0] += 0.001
    assert free > 400
    keys.shown()
    assert not keys.waits
    keys.came()
    assert keys.waits, "a key after one that was shown goes first at once"


async def test_much_work_is_cut_into_slices_between_which_others_run() -> None:
    slices, turns, running = WorkSlices(KeyPriority()), 0, True

    async def other() -> None:
        nonlocal turns
        while running:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        await slices.next()
    running = False
    await beside
    assert turns > 10


async def test_a_key_lays_nothing_out_and_asks_no_other_widget_for_its_rows(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out: list[str] = []
    asked: set[str] = set()
    lay_out, render_lines = Screen._refresh_layout, Widget.render_lines

    def noting_layout(screen: Screen[None], *args: object, **kwargs: object) -> None:
        laid_out.append("layout")
        lay_out(screen, *args, **kwargs)  # type: ignore[arg-type]

    def noting(widget: Widget, crop: Region) -> list[Strip]:
        asked.add(type(widget).__name__)
        return render_lines(widget, crop)

    await at.type("a")
    await asyncio.sleep(0.2)
    monkeypatch.setattr(Screen, "_refresh_layout", noting_layout)
    monkeypatch.setattr(Widget, "render_lines", noting)
    await at.type("b word", has="ab word")
    assert not laid_out
    assert "Composer" in asked and "Transcript" not in asked
