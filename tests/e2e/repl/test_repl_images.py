"""An image on a real terminal: what of it reaches the terminal."""

from __future__ import annotations

import io

import pytest
from PIL import Image, PngImagePlugin
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J"


@pytest.mark.parametrize(("depth", "colour"), [("truecolor", "2;255;0;0"), ("", "5;196")])
async def test_a_terminal_gets_coloured_characters_and_no_byte_of_the_file(here: Here, depth: str, colour: str) -> None:
    notes, made = PngImagePlugin.PngInfo(), io.BytesIO()
    notes.add_text("Comment", EVIL)
    Image.new("RGB", (200, 100), "red").save(made, "PNG", pnginfo=notes)
    plot = here.project / "plot.png"
    plot.write_bytes(made.getvalue() + EVIL.encode())
    here.model.add(uses("Read", file_path=str(plot)), {"text": "It-is-red."})
    async with here.laptop.on_terminal(str(here.project), COLORTERM=depth) as running:
        await running.shows("F1 or /help")
        running.type("look\r")
        await running.shows("It-is-red.")
        row = f"\x1b[38;{colour};48;{colour}m{'▀' * 20}\x1b[0m".encode()
        await running.until(lambda: running.written.count(row) >= 5)
        assert b"52;c" not in running.written
        assert b"\x1b_G" not in running.written and b"\x1b[c" not in running.written, "nothing is asked about images"
        running.type("\x04")
        assert await running.ended() == 0
