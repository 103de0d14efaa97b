"""The keys of the input that fingers know from shells and other agents."""

from __future__ import annotations

import pytest
from tests.support.repl.pilot import Desk

from ccb.local.session.session_client import LinkState


async def test_a_backslash_before_enter_makes_a_new_line(at: Desk) -> None:
    await at.type("one\\")
    await at.press("enter", has="one\n")
    await at.type("two", has="one\ntwo")
    await at.press("enter", then=lambda: at.session.prompts == ["one\ntwo"])


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize(
    ("keys", "left"),
    [
        (("ctrl+w", "ctrl+w"), "fix "),
        (("ctrl+u",), ""),
        (("home", "ctrl+k"), ""),
        (("home", "alt+d", "alt+d"), " test"),
        (("alt+b", "alt+b", "ctrl+k"), "fix "),
    ],
)
async def test_ctrl_y_inserts_what_was_cut_last_as_one_text(at: Desk, keys: tuple[str, ...], left: str) -> None:
    await at.type("fix the test")
    await at.press(*keys)
    assert at.composer.text == left, at.composer.text
    await at.press("ctrl+y", has="fix the test")


async def test_alt_with_b_and_f_goes_by_words_and_with_another_letter_types_nothing(at: Desk) -> None:
    await at.type("fix the test")
    await at.press("alt+b", "alt+b", "alt+f", "alt+z", "x", has="fix thex test")


async def test_ctrl_p_and_ctrl_n_walk_through_earlier_prompts(at: Desk) -> None:
    await at.prompt("one")
    await at.prompt("two")
    await at.press("x", "ctrl+p", has="two")
    await at.press("ctrl+p", has="one")
    await at.press("ctrl+n", "ctrl+n", has="x")


async def test_esc_twice_clears_the_input_while_the_agent_is_idle(at: Desk) -> None:
    await at.type("not this")
    await at.press("escape", sees="press Esc again to clear the input", has="not this")
    await at.press("escape", sees="cleared: Ctrl+Y brings it back", has="")
    await at.press("ctrl+y", has="not this")


async def test_ctrl_s_lays_a_text_aside_and_brings_it_back_while_the_agent_is_idle(at: Desk) -> None:
    await at.type("later")
    await at.press("ctrl+s", sees="laid aside: Ctrl+S brings it back", has="")
    await at.press("ctrl+s", has="later")
    await at.sees(lacks="laid aside")
    assert at.session.prompts == []


async def test_a_question_mark_alone_shows_the_keys_and_one_before_a_text_does_not(at: Desk) -> None:
    await at.press("?")
    await at.type("why", has="?why")
    await at.press("ctrl+u")
    await at.alone("?", sees="Help: type to search", then=lambda: at.composer.text == "")


async def test_no_key_changes_the_text_of_a_locked_input(at: Desk) -> None:
    await at.type("ls \\")
    await at.link(LinkState.FENCED, "alice drives", sees="only watching")
    await at.press("enter", "ctrl+j", "alt+enter", has="ls \\")


@pytest.mark.usefixtures("lock_over")
async def test_a_lone_digit_stays_in_a_locked_input_while_a_card_waits(at: Desk) -> None:
    await at.turn()
    at.session.ask("ask", "Bash", {"command": "make"})
    await at.sees("Tab to answer", then=lambda: at.view.card is not None)
    await at.type("1", has="1")
    await at.link(LinkState.FENCED, "alice drives", sees="only watching")
    await at.press("enter", has="1")
