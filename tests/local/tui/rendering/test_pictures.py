"""Images of results on the screen: drawn as half blocks where they can be, otherwise only named."""

from __future__ import annotations

import asyncio
import base64
import io
import struct
from typing import Any

import pytest
from PIL import Image
from rich.segment import Segment
from tests.support.repl.paper import Paper
from tests.support.repl.pilot import COLOURFUL, Desk, desk
from textual.color import Color

from ccb.local.config.settings_loading import ScreenSettings
from ccb.local.transcript import blocks
from ccb.local.transcript.blocks import PictureData, ToolBlock
from ccb.local.tui.rendering import pictures
from ccb.local.tui.rendering.pictures import HALF_BLOCK, Line, PictureShelf
from ccb.local.tui.rendering.untrusted_text import TextOnly

PLACEHOLDER = "\U0010eeee\u030d\u030d"
"""A part of an image of any program, to kitty."""


def png(size: tuple[int, int] = (400, 200), colour: str = "red") -> bytes:
    return saved(Image.new("RGB", size, colour))


def saved(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    made = io.BytesIO()
    image.save(made, form, **options)
    return made.getvalue()


def shelf_and_signal() -> tuple[PictureShelf, asyncio.Event]:
    tasks: list[asyncio.Task[None]] = []
    return PictureShelf(lambda work: tasks.append(asyncio.create_task(work))), asyncio.Event()


async def lines_of(image: bytes) -> list[Line]:
    """The lines of an image without their indent."""
    (shelf, drawn), picture = shelf_and_signal(), PictureData(encoded(image))
    assert shelf.lines(picture, 82, large=False, redraw=drawn.set) == []
    await asyncio.wait_for(drawn.wait(), 60)
    return [line[1:] for line in shelf.lines(picture, 82, large=False, redraw=drawn.set)]


def head_of(width: int, height: int) -> bytes:
    """The beginning of an image that announces these pixels, and has none."""
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\2\0\0\0" + bytes(100)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def block(data: bytes | str) -> dict[str, Any]:
    text = data if isinstance(data, str) else encoded(data)
    source = {"type": "base64", "media_type": "image/png", "data": text}
    return {"type": "image", "source": source}


def drawn_lines(at: Desk) -> list[str]:
    return [line for line in at.lines if HALF_BLOCK in line]


async def test_an_image_is_drawn_below_its_name_as_large_as_there_is_room_and_not_copied() -> None:
    async with desk(size=(100, 40), turn="go") as at:
        at.session.done(at.session.call("Read", file_path="/srv/shop/plot.png"), [block(png((400, 200)))])
        await at.until(lambda: len(drawn_lines(at)) == 10)
        assert {line.strip() for line in drawn_lines(at)} == {HALF_BLOCK * 40}
        assert "PNG 400x200" in at.screen
        shown = {"role": "user", "content": [{"type": "text", "text": "like this"}, block(png((4_000, 3_000)))]}
        at.session.input({"type": "user", "message": shown, "uuid": "another"})  # an image of the person's own prompt
        await at.sees("❯ like this")
        await at.until(lambda: len(drawn_lines(at)) == 30)
        await at.pilot.resize_terminal(50, 40)
        await at.until(lambda: drawn_lines(at) and max(map(len, drawn_lines(at))) <= 50)
        at.app.screen.text_select_all()
        copied = at.app.screen.get_selected_text() or ""
        assert "Read plot.png" in copied and HALF_BLOCK not in copied


async def test_nothing_is_drawn_where_the_person_has_switched_it_off_or_wants_no_colours() -> None:
    for screen, environ in (
        (ScreenSettings(images=False), COLOURFUL),
        (ScreenSettings(), {**COLOURFUL, "NO_COLOR": "1"}),
    ):
        async with desk(screen=screen, environ=environ) as at:
            assert at.view.transcript.shelf is None


@pytest.mark.parametrize(
    "data",
    [
        encoded(png()[:200]),
        encoded(head_of(100, 100)),
        encoded(head_of(60_000, 60_000)),
        encoded(head_of(4_000, 4_001)),
        encoded(head_of(0, 7)),
        encoded(png() + bytes(100_000)) + "ü",
    ],
)
def test_what_is_damaged_or_too_large_to_decode_is_only_named(told: Paper, data: str) -> None:
    told.done(told.call("Read", file_path="/srv/shop/plot.png"), [block(data)])
    told.sees("● Read plot.png  PNG")
    assert pictures._drawn(PictureData(data), (80, 20)) == []


async def test_the_lines_of_the_oldest_images_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_KEPT", 3)
    shelf, drawn = shelf_and_signal()
    for number in range(6):
        shelf.lines(PictureData(encoded(png((20, 40), f"#0000{number:02x}"))), 82, large=False, redraw=drawn.set)
        await asyncio.wait_for(drawn.wait(), 60)
        drawn.clear()
    assert len(shelf._kept) == 3


def test_the_data_of_old_images_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(png())
    monkeypatch.setattr(blocks, "_MAX_PICTURE_CHARS", 2 * len(data))
    told = Paper()
    for number in range(4):
        told.done(told.call("Read", file_path=f"/srv/shop/{number}.png"), [block(data)])
    told.apply()
    kept = [len(each.pictures) for each in told.container.blocks if isinstance(each, ToolBlock)]
    assert kept == [0, 0, 1, 1]


async def test_a_cell_shows_two_pixels_in_its_two_colours() -> None:
    image = Image.new("RGBA", (1, 2), "red")
    image.putpixel((0, 1), (0, 0, 0, 0))
    ((cell,),) = await lines_of(saved(image))
    assert (cell.text, str(cell.style)) == (HALF_BLOCK, "#ff0000 on #ffffff"), (
        "white is behind what can be seen through"
    )


async def test_a_photograph_that_lies_on_its_side_keeps_its_shape_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    lines = await lines_of(saved(Image.new("RGB", (400, 200), "red"), "JPEG", exif=exif))
    assert [[segment.text for segment in line] for line in lines] == [[HALF_BLOCK * 20]] * 20


def test_cells_of_images_of_other_programs_in_text_of_a_host_are_taken_out() -> None:
    assert "\U0010eeee" not in TextOnly().apply([Segment(PLACEHOLDER)], Color(0, 0, 0))[0].text
