"""The REPL as a program on a real terminal, with a real daemon and a scripted model."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Laptop
from tests.support.person.terminal import Terminal


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "greet.txt").write_text("hello wrold\n")
    return path


@asynccontextmanager
async def repl(laptop: Laptop, project: Path, *arguments: str) -> AsyncIterator[Terminal]:
    async with laptop.on_terminal(str(project), *arguments) as running:
        await running.shows("F1 or /help")
        yield running


def _is_left_as_it_was_found(running: Terminal) -> None:
    after = running.written.rpartition(b"\x1b[?1049h")[2]
    for off in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[23;2t"):
        assert off in after


async def test_an_edit_is_asked_for_approved_and_done(laptop: Laptop, project: Path, fake_model: FakeModel) -> None:
    file = project / "greet.txt"
    edit = {"file_path": str(file), "old_string": "wrold", "new_string": "world"}
    fake_model.add(
        uses("Read", file_path=str(file)),
        uses("Edit", **edit),
        {"text": "Corrected-the-greeting."},
    )
    async with repl(laptop, project) as running:
        assert b"\x1b]2;ccb local:" in running.written
        running.type("fix the typo\r")
        await running.shows("+ hello world")
        assert file.read_text() == "hello wrold\n"
        await running.answer("1")
        await running.shows("Corrected-the-greeting.")
        assert file.read_text() == "hello world\n"
        running.type("\x04")
        assert await running.ended() == 0
        _is_left_as_it_was_found(running)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_signal_ends_it_and_the_terminal_is_usable(
    laptop: Laptop, project: Path, number: signal.Signals, code: int
) -> None:
    async with repl(laptop, project) as running:
        running.process.send_signal(number)
        assert await running.ended() == code
        await running.until(lambda: b"\x1b[?1049l" in running.written)
        _is_left_as_it_was_found(running)
