"""Answers of the terminal among what is typed."""

from __future__ import annotations

import pytest

from ccb.local.terminal.asking.answers import AnswerFilter, AnswerKind, TerminalAnswer
from ccb.local.terminal.asking.background import is_light

COLOUR = "rgb:1c1c/1c1c/1c1c"
ANSWER = f"\x1b]11;{COLOUR}"
ANSWERS = {
    f"{ANSWER}\x07": TerminalAnswer(AnswerKind.BACKGROUND, COLOUR),
    f"{ANSWER}\x1b\\": TerminalAnswer(AnswerKind.BACKGROUND, COLOUR),
    "\x1b_Gi=31;OK\x1b\\": TerminalAnswer(AnswerKind.KITTY_GRAPHICS, "i=31;OK"),
    "\x1bP>|kitty(0.32.2)\x1b\\": TerminalAnswer(AnswerKind.NAME, "kitty(0.32.2)"),
    "\x1b[?62;4;22c": TerminalAnswer(AnswerKind.ATTRIBUTES, "62;4;22"),
    "\x1b[6;20;10t": TerminalAnswer(AnswerKind.CELL, "20;10"),
}


@pytest.mark.parametrize(("sequence", "answer"), ANSWERS.items(), ids=[each.kind.name for each in ANSWERS.values()])
def test_an_answer_is_taken_out_wherever_it_is_cut(sequence: str, answer: TerminalAnswer) -> None:
    text = f"ab{sequence}cd"
    for first in range(len(text)):
        for second in range(first, len(text)):
            answers = AnswerFilter()
            answers.expects = True
            pieces = [answers.feed(text[begin:stop]) for begin, stop in ((0, first), (first, second), (second, None))]
            assert "".join(typed for typed, _ in pieces) == "abcd"
            assert [each for _, found in pieces for each in found] == [answer]


def test_answers_that_come_together_keep_their_order() -> None:
    assert AnswerFilter().feed("x".join(ANSWERS)) == ("x" * (len(ANSWERS) - 1), list(ANSWERS.values()))


@pytest.mark.parametrize(
    "keys", ["\x1b[A\x1bOP", "\x1b[6~", "\x1b[5;2~", "\x1b[1;5R", "\x1b[<0;1;1M", "\x1b[200~?c\x1b[201~"]
)
def test_keys_are_no_answers_wherever_they_are_cut(keys: str) -> None:
    for cut in range(len(keys)):
        answers = AnswerFilter()
        pieces = [answers.feed(keys[:cut]), answers.feed(keys[cut:])]
        assert "".join(typed for typed, _ in pieces) == keys
        assert not any(found for _, found in pieces)


@pytest.mark.parametrize("report", ["\x1b[<32;NaN;NaNM", "\x1b[<0;12;NaNm", "\x1b[<35;NaN;7M"])
def test_a_mouse_beside_the_cells_types_nothing_wherever_its_report_is_cut(report: str) -> None:
    for cut in range(len(report)):
        answers = AnswerFilter()
        answers.expects = True  # else Esc alone does not wait
        pieces = [answers.feed("a" + report[:cut]), answers.feed(report[cut:] + "b")]
        assert "".join(typed for typed, _ in pieces) == "ab"


def test_keys_that_begin_like_an_answer_are_not_lost_and_esc_does_not_wait() -> None:
    answers = AnswerFilter()
    assert answers.feed("\x1b") == ("\x1b", [])
    for keys in ("\x1b]", "\x1bP", "\x1b_", "\x1b["):
        assert answers.feed(keys) == ("", [])
        assert answers.nothing_came() == keys
    assert answers.feed("\x1b]") == ("", [])
    assert answers.feed("x") == ("\x1b]x", [])


def test_what_can_only_be_an_answer_waits_for_its_end_but_not_for_ever() -> None:
    answers = AnswerFilter()
    assert answers.feed("\x1b]11;rgb:") == ("", [])
    assert answers.nothing_came() == ""
    assert answers.feed("0/0/0\x07x") == ("x", [TerminalAnswer(AnswerKind.BACKGROUND, "rgb:0/0/0")])
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
