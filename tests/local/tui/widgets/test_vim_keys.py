"""Vim's keys in the composer: text, mode, what is marked, undo, history, and Esc between the input and the agent."""

from __future__ import annotations

from tests.support.repl.pilot import Desk


async def with_vim(at: Desk) -> None:
    await at.press(*"/vim", "escape", "enter", sees=" INSERT ")


async def test_the_status_line_shows_the_mode_and_esc_reaches_the_agent_only_from_normal_mode(at: Desk) -> None:
    await with_vim(at)
    await at.turn(then=lambda: at.view.reducer.running)
    await at.press(*"one two", "escape", sees=" NORMAL ")
    assert at.session.interrupts == 0
    await at.press("2", "d", sees=" NORMAL 2d ")
    await at.press("escape")
    assert at.session.interrupts == 0 and at.composer.text == "one two"
    await at.press("escape", then=lambda: at.session.interrupts == 1)


async def test_commands_change_the_text_and_are_undone_one_by_one(at: Desk) -> None:
    await with_vim(at)
    await at.press(*"one two three", "escape", "0", "d", "w", "x")
    assert at.composer.text == "wo three" and at.composer.cursor_at == 0
    await at.press("u", has="two three")
    await at.press("u", has="one two three")
    await at.press("ctrl+r")
    assert at.composer.text == "two three", "Ctrl+R is no search in normal mode"
    await at.press("c", "i", "w", *"new", sees=" INSERT ")
    assert at.composer.text == "new three"


async def test_what_a_command_deletes_and_what_is_typed_for_it_is_undone_at_once(at: Desk) -> None:
    await with_vim(at)
    await at.press(*"one two", "escape", "A", *" bar", "escape", "c", "i", "w", *"baz", "escape", has="one two baz")
    await at.press("u", has="one two bar")
    await at.press("u", has="one two")
    await at.press("ctrl+r", "u", has="one two")


async def test_what_is_marked_is_shown_and_taken(at: Desk) -> None:
    await with_vim(at)
    await at.press(*"one two", "escape", "b", "v", "e", sees=" VISUAL ")
    assert at.composer.selected_text == "two"
    await at.press("d")
    assert at.composer.text == "one " and at.composer.selected_text == ""


async def test_j_and_k_leave_the_text_to_other_prompts_and_enter_sends_from_any_mode(at: Desk) -> None:
    await with_vim(at)
    await at.prompt("earlier")
    await at.press("escape", "k", has="earlier")
    await at.press("j", has="")
    await at.press("k", "enter", then=lambda: at.session.prompts == ["earlier", "earlier"], sees=" INSERT ")
    await at.enter("/vim", loses=" INSERT ")
