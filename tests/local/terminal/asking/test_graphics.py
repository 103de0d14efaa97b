"""Which way to show images the terminal's own answers lead to."""

from __future__ import annotations

import pytest

from ccb.local.terminal.asking.answers import TerminalAnswer
from ccb.local.terminal.asking.graphics import Graphics, Protocol, can_be_asked, questions
from ccb.local.terminal.input_machine import InputMachine

OK = "\x1b_Gi=31;OK\x1b\\"
CELL = "\x1b[6;20;10t"
SIXEL, PLAIN = "\x1b[?62;4c", "\x1b[?64;1;2;22c"


def name(text: str) -> str:
    return f"\x1bP>|{text}\x1b\\"


NOTHING = Graphics()


def told(answers: str, graphics: Graphics = NOTHING) -> Graphics:
    for answer in InputMachine().feed(answers.encode(), 0):
        assert isinstance(answer, TerminalAnswer)
        graphics = graphics.told(answer)
    return graphics


@pytest.mark.parametrize(
    ("answers", "best"),
    [
        (OK + name("kitty(0.32.2)") + CELL + PLAIN, Protocol.KITTY),
        (OK + name("ghostty 1.1.3") + CELL + PLAIN, Protocol.KITTY),
        (OK + name("kitty(0.26.5)") + CELL + PLAIN, Protocol.BLOCKS),  # its images cannot be cells of text
        (OK + name("WezTerm 20240203") + CELL + SIXEL, Protocol.ITERM2),
        (name("iTerm2 3.5.0") + CELL + SIXEL, Protocol.ITERM2),
        (OK + name("Konsole 23.08") + CELL + SIXEL, Protocol.SIXEL),
        (name("XTerm(379)") + CELL + SIXEL, Protocol.SIXEL),
        (name("XTerm(379)") + SIXEL, Protocol.BLOCKS),  # how many pixels a cell has is not known
        (CELL + "\x1b[?4;1c", Protocol.BLOCKS),  # the first number is not an ability
        (name("kitty(0.32.2)") + CELL + PLAIN, Protocol.BLOCKS),
        ("\x1b_Gi=31;ENOTSUPPORTED\x1b\\" + name("kitty(0.32.2)") + PLAIN, Protocol.BLOCKS),
        ("", Protocol.BLOCKS),
    ],
)
def test_the_best_way_follows_from_what_the_terminal_says(answers: str, best: Protocol) -> None:
    graphics = told(answers)
    assert graphics.best(colours=True) is best
    assert graphics.best(colours=False) is (None if best is Protocol.BLOCKS else best)


def test_the_answers_are_complete_with_the_one_that_every_terminal_gives() -> None:
    assert not told(OK + name("kitty(0.32.2)")).complete
    assert told(PLAIN).complete


def test_inside_tmux_its_client_counts_which_answers_through_it() -> None:
    inside = told(name("tmux 3.4") + PLAIN, Graphics.of({"TMUX": "/tmp/tmux"}))
    assert not inside.complete, "the terminal around tmux answers later"
    assert told(OK, inside.inside("kitty(0.32.2)")).best(colours=True) is Protocol.KITTY
    assert inside.inside("kitty(0.32.2)").best(colours=True) is Protocol.BLOCKS, "nothing passes through this tmux"
    assert told(OK, inside.inside("iTerm2 3.5.0")).best(colours=True) is Protocol.BLOCKS
    assert questions(tmux=True).startswith("\x1bPtmux;\x1b\x1b_Gi=31")


@pytest.mark.parametrize("cell", ["0;0", "99999;99999", "20;3"])
def test_a_size_of_a_character_that_cannot_be_is_not_taken(cell: str) -> None:
    assert told(f"\x1b[6;{cell}t").cell is None


def test_terminals_that_would_show_the_questions_are_not_asked() -> None:
    assert can_be_asked({"TERM": "xterm-256color"})
    assert can_be_asked({"TERM": "screen-256color", "TMUX": "/tmp/tmux"})
    assert not any(can_be_asked({"TERM": term}) for term in ("dumb", "linux", "screen"))
