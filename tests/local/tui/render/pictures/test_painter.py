"""What the terminal gets of an image, for each way to show one."""

from __future__ import annotations

import base64
import io
import re
from typing import cast

import pytest
from PIL import Image

from ccb.local.terminal.asking.graphics import Protocol
from ccb.local.tui.render.pictures.cells import PLACEHOLDER, image_row
from ccb.local.tui.render.pictures.decoding import Picture
from ccb.local.tui.render.pictures.painter import Painter

CELL = (10, 20)
COLUMNS, ROWS = 6, 3


def picture() -> Image.Image:
    """Each cell has a colour of its own."""
    image = Image.new("RGB", (COLUMNS * CELL[0], ROWS * CELL[1]))
    for row in range(ROWS):
        for column in range(COLUMNS):
            box = (column * CELL[0], row * CELL[1], (column + 1) * CELL[0], (row + 1) * CELL[1])
            image.paste(colour(row, column), box)
    return image


def colour(row: int, column: int) -> tuple[int, int, int]:
    return 255 * (row == 1), 51 * column, 255 * (row == 2)


def painter(protocol: Protocol, *, tmux: bool = False) -> tuple[Painter, str]:
    made = Painter(protocol, CELL, tmux=tmux)
    return made, made.take(made.prepared(7, cast("Picture", picture()), COLUMNS, ROWS))


def sent_to_kitty(sequence: str) -> tuple[dict[str, str], bytes]:
    """The keys and the data of what kitty gets."""
    pieces = re.findall(r"\x1b_G([^;\x1b]*);?([^\x1b]*)\x1b\\", sequence)
    assert all(len(data) <= 4096 for _, data in pieces)
    more = [dict(each.split("=") for each in keys.split(","))["m"] for keys, _ in pieces]
    assert more == ["1"] * (len(pieces) - 1) + ["0"]
    return dict(each.split("=") for each in pieces[0][0].split(",")), base64.b64decode(
        "".join(data for _, data in pieces)
    )


def seen_sixels(sequence: str) -> Image.Image:
    """What a terminal shows of a sixel sequence."""
    found = re.fullmatch(r'\x1bP0;1;0q"1;1;(\d+);(\d+)(.*)\x1b\\', sequence, re.DOTALL)
    assert found is not None
    image = Image.new("RGB", (int(found[1]), int(found[2])))
    colours: dict[int, tuple[int, ...]] = {}
    x = y = chosen = 0
    for token in re.findall(r"#\d+;2;\d+;\d+;\d+|#\d+|!\d+[?-~]|[?-~]|\$|-", found[3]):
        if ";" in token:
            number, _, *parts = map(int, token[1:].split(";"))
            colours[number] = tuple(round(each * 255 / 100) for each in parts)
        elif token[0] == "#":
            chosen = int(token[1:])
        elif token in "$-":
            x, y = 0, y + 6 * (token == "-")
        else:
            end = x + (int(token[1:-1]) if token[0] == "!" else 1)
            lit = [bit for bit in range(6) if (ord(token[-1]) - 63) >> bit & 1]
            for place in [(column, y + bit) for column in range(x, end) for bit in lit]:
                image.putpixel(place, cast("tuple[int, int, int]", colours[chosen]))
            x = end
    return image


def test_kitty_gets_the_whole_image_once_and_then_only_cells_of_text() -> None:
    made, sequence = painter(Protocol.KITTY)
    keys, data = sent_to_kitty(sequence)
    assert (keys["a"], keys["U"], keys["c"], keys["r"], keys["f"], keys["q"]) == ("T", "1", "6", "3", "100", "2")
    assert Image.open(io.BytesIO(data)).tobytes() == picture().tobytes()
    row = image_row(7, 1, COLUMNS).text
    written = made.translated(f"before {row} behind")
    colour_number = re.fullmatch(rf"before \x1b\[38;5;(\d+)m{row} behind", written)
    assert colour_number is not None
    assert int(keys["i"]) == 7 << 24 | int(colour_number[1])
    assert made.forget(7) == f"\x1b_Ga=d,d=I,i={keys['i']},q=2\x1b\\"


def test_through_tmux_each_sequence_is_wrapped_and_cells_are_not() -> None:
    made, sequence = painter(Protocol.KITTY, tmux=True)
    wrapped = re.findall(r"\x1bPtmux;((?:[^\x1b]|\x1b\x1b)*)\x1b\\", sequence)
    _, data = sent_to_kitty("".join(wrapped).replace("\x1b\x1b", "\x1b"))
    assert Image.open(io.BytesIO(data)).size == (60, 60)
    assert "tmux" not in made.translated(image_row(7, 0, COLUMNS).text)


def test_a_row_of_cells_becomes_its_sixels_and_the_cursor_goes_on_behind_it() -> None:
    made, sequence = painter(Protocol.SIXEL)
    assert sequence == ""
    written = made.translated(f"a{image_row(7, 1, COLUMNS).text}b")
    found = re.fullmatch(r"a\x1b7 {6}\x1b8\x1b7(\x1bP.*?\x1b\\)\x1b8\x1b\[6Cb", written, re.DOTALL)
    assert found is not None
    assert seen_sixels(found[1]).tobytes() == picture().crop((0, 20, 60, 40)).tobytes()


def test_iterm2_gets_a_row_as_an_image_of_one_line() -> None:
    made, _ = painter(Protocol.ITERM2)
    written = made.translated(image_row(7, 2, COLUMNS).text)
    found = re.search(r"\x1b\]1337;File=inline=1;width=6;height=1;[^:]*:([A-Za-z0-9+/=]+)\x07", written)
    assert found is not None
    image = Image.open(io.BytesIO(base64.b64decode(found[1])))
    assert image.size == (60, 20)
    assert image.getpixel((5, 10)) == pytest.approx(colour(2, 0), abs=8)


@pytest.mark.parametrize("protocol", [Protocol.SIXEL, Protocol.ITERM2])
def test_of_a_row_that_is_cut_the_terminal_gets_the_part_that_is_seen(protocol: Protocol) -> None:
    made, _ = painter(protocol)
    cut = image_row(7, 0, COLUMNS).text[2 * 4 : 5 * 4]
    written = made.translated(cut)
    assert "\x1b[3C" in written
    if protocol is Protocol.SIXEL:
        found = re.search(r"\x1bP.*?\x1b\\", written, re.DOTALL)
        assert found is not None
        assert seen_sixels(found[0]).tobytes() == picture().crop((20, 0, 50, 20)).tobytes()


@pytest.mark.parametrize("protocol", [Protocol.SIXEL, Protocol.ITERM2])
def test_cells_of_an_image_that_was_forgotten_are_blank(protocol: Protocol) -> None:
    made, _ = painter(protocol)
    made.forget(7)
    assert made.translated(f"a{image_row(7, 0, 4).text}b") == "a    b"


def test_text_without_images_passes_as_it_is() -> None:
    made, _ = painter(Protocol.SIXEL)
    for text in ("\x1b[1mbold\x1b[0m ▀", f"{PLACEHOLDER} alone", f"{PLACEHOLDER}\u0305"):
        assert made.translated(text) == text
