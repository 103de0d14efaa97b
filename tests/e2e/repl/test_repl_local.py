"""The REPL as a program on a real terminal, with a real daemon and a scripted model."""

from __future__ import annotations

import signal

import pytest
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here
from tests.support.person.terminal import Terminal


def _is_left_as_it_was_found(running: Terminal) -> None:
    after = running.written.rpartition(b"\x1b[?1049h")[2]
    for off in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[23;2t"):
        assert off in after


async def test_an_edit_is_asked_for_approved_and_done(here: Here) -> None:
    file = here.project / "greet.txt"
    file.write_text("hello wrold\n")
    edit = uses("Edit", file_path=str(file), old_string="wrold", new_string="world")
    here.model.add(uses("Read", file_path=str(file)), edit, {"text": "Corrected-the-greeting."})
    async with here.on_terminal() as running:
        await running.shows("F1 or /help")
        await running.shows("claude-sonnet-4-5")  # that no option and no setting chooses
        assert b"\x1b]2;ccb this machine:" in running.written
        running.type("fix the typo\r")
        await running.shows("+ hello world")
        assert file.read_text() == "hello wrold\n"
        await running.answer("1")
        await running.shows("Corrected-the-greeting.")
        assert file.read_text() == "hello world\n"
        running.type("\x04")
        assert await running.ended() == 0
        _is_left_as_it_was_found(running)


async def test_a_page_of_the_guide_is_shown_in_the_pager(here: Here) -> None:
    async with here.laptop.on_terminal("help", "sandbox", PAGER="tail -n 1") as running:
        assert await running.ended() == 0
        assert "shows what the host offers." in running.text and "# The sandbox" not in running.text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_signal_ends_it_and_the_terminal_is_usable(here: Here, number: signal.Signals, code: int) -> None:
    async with here.on_terminal() as running:
        await running.shows("F1 or /help")
        running.process.send_signal(number)
        assert await running.ended() == code
        await running.until(lambda: b"\x1b[?1049l" in running.written)
        _is_left_as_it_was_found(running)


async def test_esc_before_any_output_gives_the_prompt_back_and_the_model_never_sees_it_twice(here: Here) -> None:
    here.model.add({"text": "never", "stall_after": 0}, {"text": "Understood-it."})
    async with here.on_terminal() as running:
        await running.shows("F1 or /help")
        running.type("with a mistak\r")
        await running.shows("❯ with a mistak")  # and the input is empty
        await running.until(lambda: here.model.requests)
        sent = len(running.written)
        running.type("\x1b")
        await running.shows("Gone back to before: with a mistak")
        await running.until(lambda: "│ with a mistak" in running.text_from(sent))
        running.type("e\r")
        await running.shows("Understood-it.")
        last = here.model.requests[-1]
        assert last.last_user_text.endswith("with a mistake") and str(last.messages).count("with a mistak") == 1
        running.type("\x04")
        assert await running.ended() == 0
