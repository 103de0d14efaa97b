"""Screens as text with their colours, against the files in `goldens`. `make goldens` writes those anew."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.local.tui.rendering.test_themes import contrast
from tests.support.screens.goldens import DIRECTORY, GOLDENS, cells, hex_of, name_of, picture
from tests.support.screens.scenes import Scene, scene

LEAST = 4.5
"""The contrast that WCAG wants of text."""


@pytest.mark.parametrize(("play", "size", "theme"), GOLDENS, ids=[name_of(*each) for each in GOLDENS])
async def test_the_screen_looks_as_it_did_and_all_of_it_can_be_read(
    play: Scene, size: tuple[int, int], theme: str
) -> None:
    golden = (DIRECTORY / name_of(play, size, theme)).read_text(encoding="utf-8")
    async with scene(play, size, theme) as at:
        with suppress(AssertionError):  # the comparison below shows the difference
            await at.until(lambda: picture(at) == golden)
        assert picture(at) == golden, "see `make goldens`"
        ground = at.app.current_theme.background or ""
        faint = {
            f"{char} {hex_of(style.color)} on {hex_of(style.bgcolor)}"
            for line in cells(at)
            for char, style in line
            if char.isalnum() and style.color is not None
            if contrast(hex_of(style.color), hex_of(style.bgcolor) or ground) < LEAST
        }
        assert not faint


def test_there_is_no_golden_that_nothing_makes() -> None:
    assert {each.name for each in DIRECTORY.iterdir()} == {name_of(*each) for each in GOLDENS}
