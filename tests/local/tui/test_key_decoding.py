"""Which keys the sequences of terminals are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from ccb.local.terminal.input_machine import Control, Pasted, Typed
from ccb.local.terminal.keymap import DEFAULT_KEYMAP
from ccb.local.tui.key_decoding import KeyDecoder

ESC = "\x1b"


def keys(sequence: str) -> list[tuple[str, str | None]]:
    token = Control(sequence) if sequence[0] == ESC else Typed(sequence)
    messages = [each for each in KeyDecoder().messages(token) if isinstance(each, events.Key)]
    return [(each.key, each.character if each.is_printable else None) for each in messages]


@pytest.mark.parametrize("code", ["13", "57414"])
@pytest.mark.parametrize("modifier", ["2", "3", "5", "2:1", "5:1", "3:2", "66", "130", "133:1"])
def test_enter_with_a_modifier_is_a_new_line_in_kittys_form(code: str, modifier: str) -> None:
    [(key, typed)] = keys(f"{ESC}[{code};{modifier}u")
    assert DEFAULT_KEYMAP.has("newline", key) and typed is None
    assert keys(f"{ESC}[{code};{modifier.partition(':')[0]}:3u") == [], "the release of a key is no key"


@pytest.mark.parametrize(
    "sequence", [f"{ESC}[27;2;13~", f"{ESC}[27;3;13~", f"{ESC}[27;5;13~", f"{ESC}\r", f"{ESC}\n", f"{ESC}OM", "\n"]
)
def test_enter_with_a_modifier_is_a_new_line_in_the_other_forms(sequence: str) -> None:
    [(key, typed)] = keys(sequence)
    assert DEFAULT_KEYMAP.has("newline", key) and typed is None


@pytest.mark.parametrize(
    ("sequence", "key", "typed"),
    [
        ("a", "a", "a"), ("Ä", "Ä", "Ä"), (" ", "space", " "), ("\r", "enter", None), ("\x7f", "backspace", None),
        ("\x03", "ctrl+c", None), ("/", "slash", "/"), ("😀", "grinning_face", "😀"),
        ("[A", "up", None), ("OA", "up", None), ("[1;5A", "ctrl+up", None), ("[1;3A", "alt+up", None),
        ("[3~", "delete", None), ("[3;5~", "ctrl+delete", None), ("[Z", "shift+tab", None), ("[5A", "ctrl+up", None),
        ("[15;2~", "shift+f5", None), ("OP", "f1", None), ("[[A", "f1", None), ("[1;1:2D", "left", None),
        ("", "escape", None), ("t", "alt+t", "t"), ("T", "alt+shift+t", "T"), (".", "alt+full_stop", "."),
        ("[", "alt+left_square_bracket", None), ("P", "alt+shift+p", None), ("\\", "alt+backslash", None),
        ("[97;;97u", "a", "a"), ("[97;2;65u", "A", "A"), ("[97:65;2;65u", "A", "A"), ("[97;1:1u", "a", "a"),
        ("[97;1:2u", "a", "a"), ("[97u", "a", "a"), ("[97;2u", "A", "A"), ("[49:33;2u", "!", "!"),
        ("[99;5u", "ctrl+c", None), ("[97;6u", "ctrl+shift+a", None), ("[97;3u", "alt+a", None),
        ("[27u", "escape", None), ("[9;2u", "shift+tab", None), ("[127u", "backspace", None),
        ("[57399;;48u", "0", "0"), ("[13;129u", "enter", None), ("[57441;2u", "left_shift", None),
        ("[27;5;99~", "ctrl+c", None), ("[27;6;65~", "ctrl+shift+a", None),
        ("[27;2;64~", "at", "@"), ("[32;2;32u", "shift+space", " "),
    ],
)  # fmt: skip
def test_a_sequence_is_the_key_that_was_pressed(sequence: str, key: str, typed: str | None) -> None:
    whole = sequence if sequence[:1] in tuple("aÄ \r\x7f\x03/😀") else ESC + sequence
    [(named, character)] = keys(whole)
    assert (named if named != "exclamation_mark" else "!", character) == (key, typed)


@pytest.mark.parametrize(
    "sequence",
    [
        "[97;1:3u", "[99999999999999999999u", "[1114112u", "[55296u", "[57358;1:3u", "[3u", "[128u", "[:C", "[;:u",
        "[97;9999u", "[1;2;3;4;5u", "[12;40R", "[1;5R", "[>1;10;0c", "[?1u", "[0n", "[8;24;80t", "[?12;1$y", "[~",
        "[201~", "[65;30;97;1;0;1_", "[E", "[<0;999999;1M", "[<0;NaN;1M", "[48;24;80;1;1t", "[?2048;2$y",
    ],
)  # fmt: skip
def test_what_is_no_key_is_nothing(sequence: str) -> None:
    assert list(KeyDecoder().messages(Control(ESC + sequence))) == []


def test_a_window_that_gets_keys_has_the_focus() -> None:
    decoder = KeyDecoder()
    assert [type(each) for each in decoder.messages(Control(f"{ESC}[O"))] == [events.AppBlur]
    assert [type(each) for each in decoder.messages(Typed("ab"))] == [events.AppFocus, events.Key, events.Key]
    assert [type(each) for each in decoder.messages(Pasted("ab"))] == [events.Paste]


@pytest.mark.hypothesis
@given(st.text("0123456789:;<?", max_size=20), st.sampled_from([*"u~ABCDEFHPQSRMmtcnyIOZ_", "$y", "^"]))
def test_any_sequence_can_come(parameters: str, final: str) -> None:
    decoder = KeyDecoder()
    for message in decoder.messages(Control(f"{ESC}[{parameters}{final}")):
        assert not isinstance(message, events.Key) or message.key.isprintable()
