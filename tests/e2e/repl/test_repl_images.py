"""Images on a real terminal: what the terminal is asked, and every byte of an image that reaches it."""

from __future__ import annotations

import base64
import io
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from PIL import Image, PngImagePlugin
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop, tidy_laptop
from tests.support.person.terminal import Terminal, terminal

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J"
CELL = "\x1b[6;20;10t"
KITTY = "\x1b_Gi=31;OK\x1b\\\x1bP>|kitty(0.40.1)\x1b\\" + CELL + "\x1b[?62;c"
XTERM = "\x1bP>|XTerm(379)\x1b\\" + CELL + "\x1b[?64;1;4;22c"
ITERM2 = "\x1bP>|iTerm2 3.5.10\x1b\\" + CELL + "\x1b[?62;4c"
ASKED = b"\x1b[c"
"""The last question about images."""


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Iterator[Laptop]:
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        yield laptop


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a red image that has an attack on terminals in its notes and behind its end."""
    path = tmp_path / "project"
    path.mkdir()
    notes, made = PngImagePlugin.PngInfo(), io.BytesIO()
    notes.add_text("Comment", EVIL)
    Image.new("RGB", (200, 100), "red").save(made, "PNG", pnginfo=notes)
    (path / "plot.png").write_bytes(made.getvalue() + EVIL.encode())
    return path


@asynccontextmanager
async def shown(
    laptop: Laptop, project: Path, model: FakeModel, answers: str, **settings: str
) -> AsyncIterator[Terminal]:
    """The REPL on a terminal that gives `answers`, after the agent has read the image."""
    config = laptop.home / ".config" / "ccb" / "settings.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps(settings))
    read = {"type": "tool_use", "name": "Read", "input": {"file_path": str(project / "plot.png")}}
    model.add({"blocks": [read]}, {"text": "It-is-red."})
    env = {**laptop.env, "COLORTERM": "truecolor"}
    async with terminal([sys.executable, "-m", "ccb", str(project)], env, str(laptop.home)) as running:
        await running.shows("F1 or /help")
        if settings.get("images") != "off":
            await running.until(lambda: ASKED in running.written)
        running.type(answers)
        running.type("look\r")
        await running.shows("It-is-red.")
        yield running
        running.type("\x04")
        assert await running.ended() == 0


def kitty_images(written: bytes) -> list[tuple[str, bytes]]:
    """The id and the data of each image that kitty got."""
    found = re.findall(rb"\x1b_Ga=T,U=1,i=(\d+),[^;]*;([A-Za-z0-9+/=]+)\x1b\\", written)
    return [(name.decode(), base64.b64decode(data)) for name, data in found]


async def test_kitty_gets_new_bytes_of_the_pixels_and_is_told_to_forget_them(
    laptop: Laptop, project: Path, fake_model: FakeModel
) -> None:
    async with shown(laptop, project, fake_model, KITTY) as running:
        await running.until(lambda: kitty_images(running.written))
        (name, data), *others = kitty_images(running.written)
        assert not others
        image = Image.open(io.BytesIO(data))
        assert image.convert("RGB").getcolors() == [(200 * 100, (255, 0, 0))]
        assert image.info == {}, "the notes stay behind"
        await running.until(lambda: running.text.count("\U0010eeee") >= 20 * 5)
        assert b"52;c" not in running.written
        before = len(running.written)
    end = running.written[before:]
    assert 0 <= end.find(f"a=d,d=I,i={name},".encode()) < end.find(b"\x1b[?1049l")


async def test_after_another_program_had_the_screen_kitty_gets_the_image_anew(
    laptop: Laptop, project: Path, fake_model: FakeModel
) -> None:
    laptop.env["EDITOR"] = "true"
    async with shown(laptop, project, fake_model, KITTY) as running:
        await running.until(lambda: len(kitty_images(running.written)) == 1)
        running.type("\x07")  # Ctrl+G: the editor
        await running.until(lambda: len(kitty_images(running.written)) == 2)
        lent = running.written.index(b"\x1b[?1049l")
        assert b"\x1b_G" not in running.written[lent : running.written.index(b"\x1b[?1049h", lent)]


async def test_a_terminal_with_sixels_gets_a_line_of_them_for_each_line(
    laptop: Laptop, project: Path, fake_model: FakeModel
) -> None:
    async with shown(laptop, project, fake_model, XTERM) as running:
        pattern = re.compile(rb'\x1bP0;1;0q"1;1;200;20#0;2;100;0;0[#0-9!~A-Z-]*\x1b\\')
        await running.until(lambda: len(pattern.findall(running.written)) >= 5)
        assert "\U0010eeee" not in running.text
        assert b"\x1b_Ga=T" not in running.written


async def test_iterm2_gets_an_image_for_each_line(laptop: Laptop, project: Path, fake_model: FakeModel) -> None:
    async with shown(laptop, project, fake_model, ITERM2) as running:
        pattern = re.compile(rb"\x1b\]1337;File=inline=1;width=20;height=1;[^:]*:([A-Za-z0-9+/=]+)\x07")
        await running.until(lambda: len(pattern.findall(running.written)) >= 5)
        images = [Image.open(io.BytesIO(base64.b64decode(each))) for each in pattern.findall(running.written)]
        assert {each.size for each in images} == {(200, 20)}
        assert b"52;c" not in b"".join(base64.b64decode(each) for each in pattern.findall(running.written))


async def test_a_terminal_that_does_not_answer_gets_characters(
    laptop: Laptop, project: Path, fake_model: FakeModel
) -> None:
    async with shown(laptop, project, fake_model, "") as running:
        await running.until(lambda: running.text.count("▀") >= 20 * 5)
        assert b"\x1b_Ga=T" not in running.written


async def test_an_answer_that_comes_late_is_not_typed_into_the_prompt(
    laptop: Laptop, project: Path, fake_model: FakeModel
) -> None:
    async with shown(laptop, project, fake_model, "") as running:
        await running.until(lambda: running.text.count("▀") >= 20 * 5)
        running.type(f"on{KITTY}e\r")
        await running.until(lambda: any(each.last_user_text == "one" for each in fake_model.requests))


async def test_switched_off_nothing_is_asked_and_nothing_drawn(
    laptop: Laptop, project: Path, fake_model: FakeModel
) -> None:
    async with shown(laptop, project, fake_model, "", images="off") as running:
        assert "PNG 200x100" in running.text
        assert ASKED not in running.written
        assert "▀" not in running.text
