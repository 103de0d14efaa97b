"""An image on a real terminal: what of it reaches the terminal."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from PIL import Image, PngImagePlugin
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop
from tests.support.person.terminal import terminal

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J"


@pytest.mark.parametrize(("depth", "colour"), [("truecolor", "2;255;0;0"), ("", "5;196")])
async def test_a_terminal_gets_characters_in_colours_that_it_has_and_no_byte_of_the_file(
    laptop: Laptop, tmp_path: Path, fake_model: FakeModel, depth: str, colour: str
) -> None:
    notes, made = PngImagePlugin.PngInfo(), io.BytesIO()
    notes.add_text("Comment", EVIL)
    Image.new("RGB", (200, 100), "red").save(made, "PNG", pnginfo=notes)
    (tmp_path / "plot.png").write_bytes(made.getvalue() + EVIL.encode())
    read = {"type": "tool_use", "name": "Read", "input": {"file_path": str(tmp_path / "plot.png")}}
    fake_model.add({"blocks": [read]}, {"text": "It-is-red."})
    env = {**laptop.env, "COLORTERM": depth}
    async with terminal([sys.executable, "-m", "ccb", str(tmp_path)], env, str(laptop.home)) as running:
        await running.shows("F1 or /help")
        running.type("look\r")
        await running.shows("It-is-red.")
        row = f"\x1b[38;{colour};48;{colour}m{'▀' * 20}\x1b[0m".encode()
        await running.until(lambda: running.written.count(row) >= 5)
        assert b"52;c" not in running.written
        assert b"\x1b_G" not in running.written and b"\x1b[c" not in running.written, "nothing is asked about images"
        running.type("\x04")
        assert await running.ended() == 0
