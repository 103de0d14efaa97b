"""What a shell of the host prints: all that draws gets through, what reads from or acts on this machine does not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.terminal.attacks import ATTACK_TEXTS, ATTACKS
from tests.support.terminal.strict_parser import strangers

from ccb.local.terminal.output_filter import ENTER, OutputFilter, last_command

DRAWS = (
    r"\x1b\[[0-9;:]*[@A-MPSTXZ`a-hlmnrsu]",  # no window operations, no printer, no locked keyboard below
    r"\x1b\[\?[0-9;]*[JKhlmnrsu]",
    r"\x1b\[(?:>[0-9;]*[cmnqu]|=[0-9;]*[cu]|<[0-9;]*u|[0-9]* q|!p|\?[0-9;]*\$p)",
    r"\x1b[78=>DEHMNOc]|\x1b[()*+][0-9A-Z]|\x1b#[3-68]",
    r"\x1b\][012];[^\x00-\x1f\x7f-\x9f]{0,200}\x1b\\",
    r"[\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f]",
    r"[\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]",  # text, as in any terminal
)


def filtered(*pieces: bytes) -> str:
    it = OutputFilter()
    return "".join(it.feed(each) for each in pieces)


def sequences_left(text: str) -> list[str]:
    return [each for each in strangers(text, *DRAWS) if each[0] in "\x1b\x9b" or each < " " or "\x7f" <= each < "\xa0"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_taken_out_wherever_a_read_ends(attack: str) -> None:
    data = attack.encode(errors="surrogateescape") if attack.isprintable() else attack.encode(errors="replace")
    for at in range(0, len(data), max(1, len(data) // 60)):
        assert not sequences_left(filtered(data[:at], data[at:]))


@given(ATTACK_TEXTS, st.integers(1, 5))
def test_no_text_gets_a_sequence_through_that_does_not_draw(text: str, step: int) -> None:
    data = text.encode(errors="surrogatepass")
    assert not sequences_left(filtered(*(data[at : at + step] for at in range(0, len(data), step))))


@pytest.mark.parametrize(
    "sent",
    [
        "\x1b[1;38:2:1:2:3mred\x1b[0m \x1b[2J\x1b[H\x1b[?1049h\x1b[?1000;1006h\x1b[?2004h",
        "\x1b[?1;7;25l\x1b=\x1b[4h\x1b[1;20r\x1b(0lqk\x1b(B\x1b7\x1b8\x1bM\x1b[2 q",
        "\x1b[>1u\x1b[<u\x1b[>4;2m\x1b[6n\x1b[c\x1b[?2026$p",
        "漢字 é \U0001f600\r\n\t\x07\x08",
        "\x1b]0;a title\x1b\\",
    ],
)
def test_what_full_screen_programs_draw_gets_through_byte_by_byte(sent: str) -> None:
    data = sent.encode()
    assert filtered(*(data[at : at + 1] for at in range(len(data)))) == sent


@pytest.mark.parametrize(
    "sent, left",
    [
        ("a\x1b]52;c;ZXZpbA==\x07b", "ab"),
        ("a\x1bPq#0\x1b\\b\x1b_Gx\x1b\\c\x1b^x\x1b\\d\x1bXx\x1b\\e", "abcde"),
        ("\x1bka title of screen\x1b\\$ ", "$ "),
        ("a\x1b[21t\x1b[14tb\x05c\x1bZd\x1b[5ie", "abcde"),
        ("\x1b[?1043;25h", "\x1b[?25h"),
        ("\x1b[2h\x1b[?3h", ""),
        ("\x1b]2;a\nb", "\x1b]2;a\x1b\\\nb"),
        ("a\x1bP" + "x" * 100_000 + "\x1b\\b", "ab"),
        ("a\x1b]52;c;" + "x" * 100_000 + "\x07b", "ab"),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_what_acts_on_this_machine_is_taken_out_and_the_rest_stays(sent: str, left: str, step: int) -> None:
    data = sent.encode()
    assert filtered(*(data[at : at + step] for at in range(0, len(data), step))) == left


def test_leaving_turns_off_what_tmux_and_editors_turn_on() -> None:
    reset = re.findall(r"\x1b\[\?([0-9;]+)l", OutputFilter().reset)
    assert {"1", "69", "1000", "1002", "1003", "1004", "1006", "2004", "2026"} <= set(";".join(reset).split(";"))


def test_the_last_command_and_its_output_are_text_as_it_was_read() -> None:
    typed = "old\r\n$ ", "\x1b[1mma\x1b[0mxe\b\bke\x1b]0;t\x07\r\n\x1b[?1049hdrawn", "\x1b[?1049l 10%\r100%\r\n\r\n$ "
    it = OutputFilter()
    assert last_command(ENTER.join(it.feed(each.encode()) for each in typed)) == ["$ make", "100%"]
    assert last_command("no Enter") == ["no Enter"] and last_command("") == []
