"""The card on which the person answers questions of the model."""

from __future__ import annotations

from tests.support.repl.pilot import Desk, desk

from ccb.tunnel.wire.frames import Json

ONE: Json = {
    "questions": [
        {
            "question": "Which store?",
            "header": "Store",
            "options": [{"label": "SQLite", "description": "A file"}, {"label": "Redis", "description": "A server"}],
        }
    ]
}
SEVERAL: Json = {
    "question": "Which checks?",
    "header": "Checks",
    "multiSelect": True,
    "options": [{"label": "Unit", "description": "Fast"}, {"label": "Lint", "description": "Faster"}],
}
TWO: Json = {"questions": [*ONE["questions"], SEVERAL]}


async def answers(at: Desk) -> Json:
    await at.until(lambda: at.session.answers)
    response = at.session.answers["ask"]
    assert response["behavior"] == "allow"
    given: Json = response["updatedInput"].pop("answers")
    return given


async def test_a_number_marks_an_option_and_enter_gives_it() -> None:
    async with desk(size=(80, 24)) as at:
        await at.asked("AskUserQuestion", ONE)
        await at.sees("The agent asks: Store on devbox:/srv/shop", "? Which store?", "1 ○ SQLite", "A server")
        await at.alone("2")
        assert at.session.answers == {}
        await at.alone("enter")
        assert await answers(at) == {"Which store?": "Redis"}
        await at.until(lambda: at.view.card is None and at.app.focused is at.composer)


async def test_several_questions_come_one_by_one_and_are_shown_together_before_they_are_given() -> None:
    async with desk(size=(80, 24)) as at:
        await at.asked("AskUserQuestion", TWO)
        await at.alone("down", "enter", sees=("Checks (2 of 2)", "1 ☐ Unit", "2 ☐ Lint"))
        await at.alone("1", "2", "enter", sees=("your answers", "→ SQLite", "→ Unit", "→ Lint"))
        await at.alone("left", "1", "enter", loses="→ Unit")
        await at.alone("enter")
        assert await answers(at) == {"Which store?": "SQLite", "Which checks?": "Lint"}


async def test_clicks_mark_tick_and_give(at: Desk) -> None:
    await at.asked("AskUserQuestion", TWO)
    await at.click("Redis")
    await at.click("Redis", sees="Checks (2 of 2)")
    await at.click("Unit", sees="1 ☒ Unit")
    await at.click("Lint", sees="2 ☒ Lint")
    await at.click("Unit", sees="1 ☐ Unit")
    await at.alone("enter", sees="→ Lint")
    await at.alone("enter")
    assert await answers(at) == {"Which store?": "Redis", "Which checks?": "Lint"}


async def test_an_answer_in_own_words(at: Desk) -> None:
    await at.asked("AskUserQuestion", TWO)
    await at.alone("3", "enter")
    await at.type("flat files")
    await at.alone("enter", "2", "down", "enter", sees="Your answer.")
    await at.press("escape")
    await at.alone("3", "enter")
    await at.type("types")
    await at.alone("enter", "enter", "enter")
    assert await answers(at) == {"Which store?": "flat files", "Which checks?": "Lint, types"}


async def test_what_is_typed_after_the_row_for_own_words_is_marked_is_the_answer(at: Desk) -> None:
    await at.asked("AskUserQuestion", TWO)
    await at.alone("1", "3", "f")
    await at.type("lat files", has="")
    await at.alone("enter", "2", "down", *"types", "enter", "enter", "enter")
    assert await answers(at) == {"Which store?": "flat files", "Which checks?": "Lint, types"}


async def test_the_last_row_gives_no_answer_with_a_reason_and_esc_goes_back(at: Desk) -> None:
    await at.asked("AskUserQuestion", ONE)
    await at.alone("up", "enter", sees="Why no answer?")
    await at.alone("escape", "1", sees="1 ○ SQLite")
    await at.alone("escape", then=lambda: at.app.focused is at.composer)
    await at.alone("tab", "enter", sees="Nothing is marked yet")
    await at.alone("up", "enter")
    await at.type("ask later")
    await at.alone("enter", then=lambda: at.session.answers)
    said = "The user declined to answer the questions. The user says: ask later"
    assert at.session.answers["ask"] == {"behavior": "deny", "message": said}
    assert at.session.interrupts == 0


async def test_text_that_begins_like_marks_goes_to_the_composer_and_chooses_nothing(at: Desk) -> None:
    await at.asked("AskUserQuestion", {"questions": [SEVERAL]})
    for char in ("1", "space", "f", "i", "x"):
        await at.alone(char)
    assert at.composer.text == "1 fix"
    await at.sees("1 ☐ Unit")
    assert at.session.answers == {}


async def test_the_space_bar_ticks_the_marked_option(at: Desk) -> None:
    await at.asked("AskUserQuestion", {"questions": [SEVERAL]})
    await at.alone("1", "space", sees="1 ☐ Unit")
    await at.alone("down", "space", sees="2 ☒ Lint")
    await at.alone("enter")
    assert await answers(at) == {"Which checks?": "Lint"}


async def test_enter_gives_nothing_that_was_not_marked(at: Desk) -> None:
    await at.asked("AskUserQuestion", TWO)
    await at.alone("right", "right", sees="no answer yet")
    await at.alone("enter", sees=("This question has no answer yet.", "Store (1 of 2)"))
    assert at.session.answers == {}


async def test_hostile_text_is_shown_exactly(at: Desk) -> None:
    label = "SQLite\x1b[2J\nSandbox: off"
    asked_for = {"questions": [{"question": "a\u202eb?\n1 ● Yes", "header": "\x07H", "options": [{"label": label}]}]}
    await at.asked("AskUserQuestion", asked_for)
    await at.sees("hidden character", "⟨U+202E⟩", "SQLite⟨ESC⟩[2J⟨LF⟩Sandbox: off", "⟨BEL⟩H")
    rows = [line.strip("┃ ") for line in at.screen.splitlines() if "● Yes" in line]
    assert rows == ["1 ● Yes"] and "┃   1 ● Yes" in at.screen, "a line of the question is indented like the question"


async def test_questions_that_cannot_be_read_get_the_approval_card(at: Desk) -> None:
    await at.asked("AskUserQuestion", {"questions": [{"question": 7}]}, sees=("questions = ", "4 No, and say why"))
