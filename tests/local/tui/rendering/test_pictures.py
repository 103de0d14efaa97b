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


async def lines_of(image: bytes) -> list[Line]:
    """The lines of an image without their indent."""
    drawn, tasks = asyncio.Event(), []
    shelf, picture = PictureShelf(lambda work: tasks.append(asyncio.create_task(work))), PictureData(encoded(image))
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


async def read(at: Desk, *images: bytes | str, name: str = "plot.png") -> None:
    """Let the agent read images."""
    if not at.session.prompts:
        await at.prompt("look")
        at.session.begin()
    at.session.done(at.session.call("Read", file_path=f"/srv/shop/{name}"), [block(each) for each in images])
    await at.sees(f"Read {name}")


def drawn_lines(at: Desk) -> list[str]:
    return [line for line in at.lines if HALF_BLOCK in line]


async def test_an_image_is_drawn_below_its_name_as_large_as_there_is_room() -> None:
    async with desk(size=(100, 40)) as at:
        await read(at, png((400, 200)))
        await at.until(lambda: len(drawn_lines(at)) == 10)
        assert {line.strip() for line in drawn_lines(at)} == {HALF_BLOCK * 40}
        assert "PNG 400x200" in at.screen
        shown = {"role": "user", "content": [{"type": "text", "text": "like this"}, block(png((4_000, 3_000)))]}
        at.session.input({"type": "user", "message": shown, "uuid": "another"})  # an image of the person's own prompt
        await at.sees("❯ like this")
        await at.until(lambda: len(drawn_lines(at)) == 30)
        await at.pilot.resize_terminal(50, 40)
        await at.until(lambda: drawn_lines(at) and max(map(len, drawn_lines(at))) <= 50)


async def test_what_is_covered_or_scrolled_away_leaves_nothing_of_an_image() -> None:
    async with desk(size=(100, 30)) as at:
        await read(at, png())
        await at.until(lambda: len(drawn_lines(at)) == 10)
        await at.pilot.press("f1")
        await at.until(lambda: "Help" in at.screen)
        help_lines = [line for line in at.lines if line.startswith(("│", "║", "▌"))]
        assert not any(HALF_BLOCK in line for line in help_lines)
        await at.pilot.press("escape")
        at.session.text("\n\n".join(f"paragraph {number}" for number in range(60)))
        await at.sees("paragraph 59")
        assert not drawn_lines(at)


async def test_nothing_is_drawn_where_the_person_has_switched_it_off_or_wants_no_colours() -> None:
    for screen, environ in (
        (ScreenSettings(images=False), COLOURFUL),
        (ScreenSettings(), {**COLOURFUL, "NO_COLOR": "1"}),
    ):
        async with desk(screen=screen, environ=environ) as at:
            await read(at, png())
            await at.sees("PNG 400x200")
            assert at.app.view.transcript.shelf is None
            assert not drawn_lines(at)


@pytest.mark.parametrize(
    "data",
    [
        png()[:200],
        head_of(100, 100),
        head_of(60_000, 60_000),
        head_of(4_000, 4_001),
        head_of(0, 7),
        encoded(png() + bytes(100_000)) + "ü",
    ],
)
async def test_what_is_damaged_or_too_large_to_decode_is_only_named(data: bytes | str) -> None:
    async with desk(size=(100, 40)) as at:
        await read(at, data)
        await at.sees("● Read plot.png  PNG")
        await read(at, png((40, 40)), name="good.png")
        await at.until(lambda: len(drawn_lines(at)) == 2)


async def test_an_image_is_not_copied_as_characters() -> None:
    async with desk(size=(100, 40)) as at:
        await read(at, png())
        await at.until(lambda: drawn_lines(at))
        at.session.text("The plot is red.")
        await at.sees("is red")
        at.app.screen.text_select_all()
        copied = at.app.screen.get_selected_text() or ""
        assert "Read plot.png" in copied
        assert "The plot is red." in copied
        assert HALF_BLOCK not in copied


async def test_many_images_are_drawn_without_end_of_work_and_the_oldest_give_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pictures, "MAX_KEPT", 3)
    decoded: list[object] = []
    draw = pictures._drawn

    def counted(picture: PictureData, room: tuple[int, int]) -> list[Line]:
        decoded.append(picture)
        return draw(picture, room)

    monkeypatch.setattr(pictures, "_drawn", counted)
    async with desk(size=(100, 40)) as at:
        for number in range(6):
            await read(at, png((20, 40), colour=f"#0000{number:02x}"), name=f"{number}.png")
            at.session.text(f"Seen {number}.")
            await at.sees(f"Seen {number}.")
        shelf = at.app.view.transcript.shelf
        assert shelf is not None
        await at.until(lambda: len(drawn_lines(at)) == 12 and not shelf._works)
        assert len(shelf._kept) == 3
        assert len(decoded) == 6


async def test_the_data_of_old_images_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    data = png()
    monkeypatch.setattr(blocks, "_MAX_PICTURE_CHARS", 2 * len(base64.b64encode(data)))
    async with desk(size=(100, 60)) as at:
        for number in range(4):
            await read(at, data, name=f"{number}.png")
        kept = [len(each.pictures) for each in at.app.view.transcript.blocks if isinstance(each, ToolBlock)]
        assert kept == [0, 0, 1, 1]
        await at.until(lambda: len(drawn_lines(at)) == 20)


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


async def test_cells_of_images_of_other_programs_in_text_of_a_host_are_taken_out() -> None:
    assert "\U0010eeee" not in TextOnly().apply([Segment(PLACEHOLDER)], Color(0, 0, 0))[0].text
    async with desk() as at:
        await at.prompt("go")
        at.session.begin()
        at.session.text(f"before {PLACEHOLDER} behind")
        await at.sees("before", "behind")
        assert "\U0010eeee" not in at.screen
