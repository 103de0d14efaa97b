"""What a terminal sends, taken apart wherever it is cut, and however far the pieces come apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccb.local.terminal import input_machine as terminal
from ccb.local.terminal.input_machine import Control, Pasted, TerminalAnswer, Typed

COLOUR = "rgb:1c1c/1c1c/1c1c"
ANSWER = TerminalAnswer(COLOUR)
ANSWERS = [f"\x1b]11;{COLOUR}{end}" for end in ("\x07", "\x1b\\")]
STRAY = [
    "\x1b]10;rgb:ffff/ffff/ffff\x07", "\x1b]4;1;rgb:ffff/ffff/ffff\x1b\\", "\x1bP1+r544e=787465726d\x1b\\",
    "\x1b]52;c;" + "QUJD" * 1000 + "\x07", "\x1b_other\x1b\\", "\x1b^private\x1b\\", "\x1bXstring\x1b\\",
    "\x1b_Gi=31;OK\x1b\\", "\x1bP>|kitty(0.32.2)\x1b\\", "\x1b[?62;4;22c", "\x1b[6;20;10t",
    "\x1bP!|00000000\x1b\\", "\x1b]lA title\x1b\\", "\x1b[\x1b]4;1;x\x07",
    "\x1b[<32;NaN;NaNM", "\x1b[<0;12;NaNm", "\x1b[<35;NaN;7M",  # a mouse beside the cells
]  # fmt: skip
PASTE, END = "\x1b[200~", "\x1b[201~"


def read(pieces: Sequence[bytes], gap_s: float, machine: terminal.InputMachine | None = None) -> list[terminal.Token]:
    """Give pieces to a machine, `gap_s` apart, and wait at the end. A clock that ticks stands for the driver."""
    machine, now, told = machine or terminal.InputMachine(), 100.0, []
    for piece in pieces:
        until = now + gap_s
        while machine.deadline is not None and machine.deadline < until:
            told += machine.tick(machine.deadline)
        now = until
        told += machine.feed(piece, now)
    while machine.deadline is not None:
        told += machine.tick(machine.deadline)
    return told


def cut(text: str, size: int) -> list[bytes]:
    data = text.encode("utf-8", "surrogateescape")
    return [data[at : at + size] for at in range(0, len(data), size)]


def typed(tokens: Sequence[terminal.Token]) -> str:
    return "".join(each.text for each in tokens if isinstance(each, Typed))


def pasted(tokens: Sequence[terminal.Token]) -> list[str]:
    return [each.text for each in tokens if isinstance(each, Pasted)]


def answers(tokens: Sequence[terminal.Token]) -> list[TerminalAnswer]:
    return [each for each in tokens if isinstance(each, TerminalAnswer)]


@pytest.mark.parametrize("sequence", ANSWERS, ids=repr)
def test_an_answer_is_taken_out_wherever_it_is_cut(sequence: str) -> None:
    data = f"ab{sequence}cd".encode()
    for first in range(len(data)):
        for second in range(first, len(data)):
            tokens = read([data[:first], data[first:second], data[second:]], 0.1)
            assert (typed(tokens), answers(tokens)) == ("abcd", [ANSWER])


def test_answers_that_come_together_are_taken_out() -> None:
    tokens = read(["x".join(ANSWERS).encode()], 0)
    assert (typed(tokens), answers(tokens)) == ("x" * (len(ANSWERS) - 1), [ANSWER] * len(ANSWERS))


@pytest.mark.parametrize("gap_s", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("sequence", STRAY, ids=repr)
def test_what_nobody_asked_for_is_neither_text_nor_a_key(sequence: str, gap_s: float) -> None:
    data = f"ab{sequence}c".encode()
    for at in range(len(data)):
        assert typed(read([data[:at], data[at:]], gap_s)) == "abc"


OPEN, LINES = "\x1b]11;rgb:1c", f"{PASTE}one\rtwo"
BURSTS = ("one\rtwo", "one\rtwo\rthree\r", "one\ntwo\n", "\rone", "\t" * 40 + "x", "x" * 40 + "\x07y")
AHEAD = ("one\r", "\r", "1\r", "\r\r", "x\x07y", "onr\x7fe\r", "a\r\x04", "\x0e" * 50)
CHORDS = ("\x1b[", "\x1bO", "\x1b]", "\x1bP", "\x1b_")
READ: dict[str, tuple[list[str], float, list[terminal.Token]]] = {
    "the late half of an answer": (["\x1b]11;rgb:1c1c/", "1c1c/1c1c\x07", "x"], 5.0, [ANSWER, Typed("x")]),
    "a string without an end": ([OPEN, "x"], 11.0, [Typed("x")]),
    **{f"{key!r} in a string": ([OPEN, key], 0.5, [Typed(key)]) for key in ("\x03", "\r", "\x11\x11")},
    "an arrow in a string": ([OPEN, "\x1b[A"], 0.5, [Control("\x1b[A")]),
    **{f"the chord {chord!r}": ([chord, "x"], 2.0, [Control(chord), Typed("x")]) for chord in CHORDS},
    "a chord": (["\x1bt"], 0, [Control("\x1bt")]),
    "Esc and then a letter": (["\x1b", "t"], 0.2, [Control("\x1b"), Typed("t")]),
    "Ctrl+C in a paste whose end is lost": ([LINES, "\x03"], 4.0, [Pasted("one\rtwo"), Typed("\x03")]),
    "a letter in such a paste": ([LINES, "x"], 4.0, [Pasted("one\rtwo"), Typed("x")]),
    "an arrow in such a paste": ([LINES, "\x1b[A"], 4.0, [Pasted("one\rtwo"), Control("\x1b[A")]),
    **{f"the burst {text!r} is a paste": ([text], 0, [Pasted(text)]) for text in BURSTS},
    "the rest of a burst": (["one\rtwo", "three\r"], 0.2, [Pasted("one\rtwo"), Pasted("three\r")]),
    "Enter by itself after a burst": (["one\rtwo", "\r"], 0.2, [Pasted("one\rtwo"), Typed("\r")]),
    "long after a burst": (["one\rtwo", "three\r"], 1.0, [Pasted("one\rtwo"), Typed("three\r")]),
    "lines typed ahead, without what was erased": (["twi\x7fo\ronf\x7f\x7fne\r"], 0, [Pasted("two\rone\r")]),
    "a burst over several reads": (["one\r", "two\rthree", "\rfour\r"], 0.01, [Pasted("one\rtwo\rthree\rfour\r")]),
    **{f"the keys {text!r} typed ahead": ([text], 0, [Typed(text)]) for text in AHEAD},
}


@pytest.mark.parametrize("case", READ)
def test_what_comes_is_read_as_keys_pastes_and_answers(case: str) -> None:
    pieces, gap_s, tokens = READ[case]
    assert read([each.encode() for each in pieces], gap_s) == tokens


def test_the_end_of_a_paste_that_was_only_late_is_taken_out() -> None:
    more = read([f"{PASTE}one\r".encode(), b"two\rthree\r", b"\x1b[201~x"], 4.0)
    assert (pasted(more), typed(more)) == (["one\r", "two\rthree\r", ""], "x")


def test_esc_alone_acts_soon_unless_something_speaks_against_it() -> None:
    def waits(*pieces: bytes, expects: bool = False) -> float:
        machine, now = terminal.InputMachine(), 100.0
        machine.expects = expects
        for piece in pieces:
            now += 0.1
            told = machine.feed(piece, now)
            assert Control("\x1b") not in told
        assert machine.deadline is not None
        wait = machine.deadline - now
        assert machine.tick(now + wait) == [Control("\x1b")]
        return wait

    assert waits(b"\x1b") < 0.03
    assert waits(b"\x1b[A\x1b") < 0.03
    assert waits(b"\x1b", expects=True) > 0.4, "an answer may begin"
    assert waits(b"ab\x1b") > 0.4, "nobody types so fast: it is a piece"
    assert waits(b"\x1b[1;", b"5C", b"\x1b") > 0.4, "pieces have come apart"


@pytest.mark.parametrize("keys", ["\x1b[A", "\x1b[1;5C", "\x1b[200~a\x1b[201~", "\x1b[<0;1;1M", "\x1bOP"])
def test_a_sequence_is_whole_also_if_its_esc_was_taken_for_the_key(keys: str) -> None:
    tokens = read([b"\x1b", keys[1:].encode()], 0.1)
    assert tokens[0] == Control("\x1b")
    assert not typed(tokens)
    assert pasted(tokens) == (["a"] if "200~" in keys else [])


def test_what_is_typed_after_esc_stays_text() -> None:
    for text in ("[x] done", "Open it", "[", "]", "[[link]]", "Pay", "_ ", "jj"):
        keys = [bytes([each]) for each in text.encode()]
        assert typed(read([b"\x1b", *keys], 0.2)) == text


def test_a_bracket_after_esc_stays_text_when_an_arrow_follows() -> None:
    tokens = read([b"\x1b", b"]", b"\x1b[A"], 0.3)
    assert tokens == [terminal.Control("\x1b"), terminal.Typed("]"), terminal.Control("\x1b[A")]


@pytest.mark.parametrize("gap_s", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_a_paste_is_one_text_however_its_pieces_come(size: int, gap_s: float) -> None:
    text = "one\rtwo\x07\x03 ä€😀\x1b[A\x1b[20 x\x00"
    tokens = read(cut(f"{PASTE}{text}{END}", size), gap_s)
    assert pasted(tokens) == [text] and not typed(tokens)
    assert [each for each in tokens if isinstance(each, Control)] in ([], [Control("\x1b")])


@pytest.mark.parametrize("size", [3, 1000])
def test_a_marker_in_the_pasted_text_does_not_end_the_paste(size: int) -> None:
    for text in (f"one{END}\rtwo", f"one{END}two{PASTE}three", f"{END}{END}"):
        assert pasted(read(cut(f"{PASTE}{text}{END}", size), 0.1)) == [text]


def test_keys_after_a_paste_are_keys() -> None:
    tokens = read([f"{PASTE}one{END}\r".encode(), b"x"], 0.1)
    assert (pasted(tokens), typed(tokens)) == (["one"], "\rx")
    assert pasted(read([f"{PASTE}one{END}{PASTE}two{END}".encode()], 0)) == ["onetwo"]


def test_a_paste_has_a_limit() -> None:
    machine = terminal.InputMachine()
    machine.feed(PASTE.encode(), 0)
    told = [token for at in range(1000) for token in machine.feed(b"x" * 4096, at / 1000)]
    assert 2 <= len(pasted(told)) <= 4


def test_characters_come_whole_and_broken_ones_are_shown() -> None:
    assert typed(read(cut("ä€😀", 1), 0.1)) == "ä€😀"
    assert typed(read([b"caf\xe9 au lait"], 0)) == "caf\ufffd au lait"


def test_a_line_is_read_without_what_the_terminal_has_sent_between() -> None:
    assert terminal.typed_line("fi\x1b]11;rgb:0/0/0\x07x \x1b[200~it\x1b[201~\x1b[A ä\udce9") == "fix it ä\ufffd"


PARAMETERS = st.text("0123456789:;<=>?", max_size=12)
CSI = st.builds(
    "\x1b[{}{}{}".format,
    PARAMETERS,
    st.text(" !$'*+-/", max_size=2),
    st.characters(min_codepoint=64, max_codepoint=126),
)
STRINGS = st.builds(
    "\x1b{}{}{}".format,
    st.sampled_from("]P_^X"),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
    st.sampled_from(["\x07", "\x1b\\"]),
)
SS3 = st.builds("\x1bO{}".format, st.sampled_from("ABCDFHPQRS"))
SEQUENCES = st.one_of(CSI, STRINGS, SS3).filter(lambda each: not re.search(r"\[M|\[200~|\[\[|\[<[^A-Z]*[Na]", each))


@pytest.mark.hypothesis
@given(
    st.lists(SEQUENCES, min_size=1, max_size=6), st.lists(st.integers(1, 8), max_size=12), st.sampled_from([0.0, 0.1])
)
def test_no_sequence_types_a_character_wherever_it_is_cut(sequences: list[str], sizes: list[int], gap_s: float) -> None:
    data, pieces = "".join(sequences).encode(), []
    for size in sizes:
        if data[size - 1 : size] != b"\x1b" or not gap_s:  # Esc by itself is a key
            pieces.append(data[:size])
            data = data[size:]
    tokens = read([*pieces, data], gap_s)
    assert not typed(tokens) and not pasted(tokens)


@pytest.mark.hypothesis
@given(st.lists(st.binary(max_size=20) | SEQUENCES.map(str.encode) | st.sampled_from([b"\x1b", b"\x1b[200~", b"\x9b"])))
@example([b"\x1b[200~x\x1b[20"])
def test_any_bytes_can_come_and_ctrl_c_works_afterwards(pieces: list[bytes]) -> None:
    machine = terminal.InputMachine()
    read(pieces, 0.05, machine)
    assert machine.feed(b"\x03", 1e6) == [Typed("\x03")]


@pytest.mark.parametrize(
    ("answer", "colour"),
    [
        ("rgb:ffff/ffff/ffff", (255, 255, 255)), ("rgb:fd/f6/e3", (253, 246, 227)), ("rgb:0/0/0", (0, 0, 0)),
        ("rgba:ffff/ffff/ffff/ffff", (255, 255, 255)), ("rgb:2828/2c2c/3434", (40, 44, 52)), ("?", None), ("", None),
    ],
)  # fmt: skip
def test_a_background_is_read_however_many_digits_it_has(answer: str, colour: tuple[int, int, int] | None) -> None:
    assert terminal.colour_of(answer) == colour
