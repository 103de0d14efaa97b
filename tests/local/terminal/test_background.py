"""Answers of the terminal about its background among what is typed."""

from __future__ import annotations

import pytest

from ccb.local.terminal.background import AnswerFilter, is_light

ANSWER = "\x1b]11;rgb:1c1c/1c1c/1c1c"


@pytest.mark.parametrize("end", ["\x07", "\x1b\\"])
def test_an_answer_is_taken_out_wherever_it_is_cut(end: str) -> None:
    text = f"ab{ANSWER}{end}cd"
    for first in range(len(text)):
        for second in range(first, len(text)):
            answers = AnswerFilter()
            answers.expects = True
            pieces = [answers.feed(text[begin:stop]) for begin, stop in ((0, first), (first, second), (second, None))]
            assert "".join(typed for typed, _ in pieces) == "abcd"
            assert "".join(answer for _, answer in pieces) == "rgb:1c1c/1c1c/1c1c"


def test_keys_that_begin_like_an_answer_are_not_lost_and_esc_does_not_wait() -> None:
    answers = AnswerFilter()
    assert answers.feed("\x1b") == ("\x1b", "")
    assert answers.feed("\x1b]") == ("", "")
    assert answers.nothing_came() == "\x1b]"
    assert answers.feed("\x1b]") == ("", "")
    assert answers.feed("x") == ("\x1b]x", "")
    assert answers.feed("\x1b[A\x1bOP") == ("\x1b[A\x1bOP", "")


def test_what_can_only_be_an_answer_waits_for_its_end_but_not_for_ever() -> None:
    answers = AnswerFilter()
    assert answers.feed("\x1b]11;rgb:") == ("", "")
    assert answers.nothing_came() == ""
    assert answers.feed("0/0/0\x07x") == ("x", "rgb:0/0/0")
    typed, _ = answers.feed("\x1b]11;" + "y" * 100)
    assert typed.endswith("y" * 100)


@pytest.mark.parametrize(
    ("answer", "light"),
    [
        ("rgb:ffff/ffff/ffff", True), ("rgb:fd/f6/e3", True), ("rgba:ffff/ffff/ffff/ffff", True), ("rgb:0/0/0", False),
        ("rgb:2828/2c2c/3434", False), ("rgb:0000/0000/ffff", False), ("?", None), ("", None),
    ],
)  # fmt: skip
def test_a_background_is_light_or_dark_to_the_eye(answer: str, light: bool | None) -> None:
    assert is_light(answer) is light
