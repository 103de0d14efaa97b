"""Text of the remote is shown, never obeyed."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.tunnel.plain_text import neutralise

FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
PIECES = ("\x1b", "[", "]", "]52;c;", "P", "\x9b", "\x9d", "\x90", "31m", "2J", "\x07", "\\", "\x9c", *"\r\n\t a")


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]52;c;ZXZpbA==\x07after", "after"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x1b]8;;http://evil/\x1b\\text", "text"),
        ("\x9b2Jafter", "after"),
        ("\x9d52;c;eA==\x9cafter", "after"),
        ("\x1bPpayload\x1b\\after", "after"),
        ("\x1b(0after", "after"),
        ("never ended \x1b]52;c;ZXZ", "never ended "),
        ("\x1b", ""),
        ("one\r\ntwo\rthree\bfour\x7f", "one\ntwo␍three␈four␡"),
        ("a\u202eb\u2066c\u061cd\ufeff", "a�b�c�d�"),
        ("Z" + "\u0301" * 5_000 + "o, e\u0301\u0323 stays", "Z" + "\u0301" * 8 + "�o, e\u0301\u0323 stays"),
        ("half \ud83d of a pair", "half � of a pair"),
        ("\ttab and\nline stay, 日本語 and 👩‍👩‍👧 too", "\ttab and\nline stay, 日本語 and 👩‍👩‍👧 too"),
    ],
)
def test_what_is_shown_of_it(sent: str, shown: str) -> None:
    assert neutralise(sent) == shown


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_no_text_gets_a_control_through_and_what_is_harmless_stays(text: str) -> None:
    shown = neutralise(text)
    assert not FORBIDDEN.search(shown)
    assert neutralise(shown) == shown
    shown.encode("utf-8")


@pytest.mark.parametrize("unit", ["\x1b[", "\x1b]", "\x1b[0", "\x9b1;", "\x1b[ ", "\x90", "\x1b", "\r", "0"])
def test_a_megabyte_of_broken_sequences_costs_no_more_than_its_length(unit: str) -> None:
    began = time.process_time()
    neutralise("\x1b[" + unit * (1_000_000 // len(unit)))
    assert time.process_time() - began < 5
