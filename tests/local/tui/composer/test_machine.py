"""Vim's keys as a machine: what people expect of each command, and what holds for any keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.local.tui.composer.vim import Vim, VimEffect, VimMode


def play(text: str, keys: str, *, at: int = 0) -> tuple[Vim, str, int, list[VimEffect]]:
    """Press `keys` in normal mode; a letter in insert mode is typed. Names of keys stand in <>."""
    vim, effects = Vim(VimMode.NORMAL), []
    for key in split(keys):
        effect = vim.press(text, at, key)
        if effect is VimEffect.LEFT and (len(key) == 1 or key == "space"):
            text, at = text[:at] + (" " if key == "space" else key) + text[at:], at + 1
        else:
            text, at = vim.text, vim.at
            effects.append(effect)
    return vim, text, at, effects


def split(keys: str) -> list[str]:
    found = []
    while keys:
        if keys.startswith("<") and ">" in keys[2:]:
            name, _, keys = keys[1:].partition(">")
            found.append("escape" if name == "esc" else name)
        else:
            found.append("space" if keys[0] == " " else keys[0])
            keys = keys[1:]
    return found


def drawn(text: str, keys: str) -> str:
    """The text with `|` in front of the cursor, where `text` has it, too."""
    at = text.index("|")
    _, after, place, _ = play(text.replace("|", ""), keys, at=at)
    return after[:place] + "|" + after[place:]


@pytest.mark.parametrize(
    ("before", "keys", "after"),
    [
        ("|one two", "l", "o|ne two"),
        ("one tw|o", "l", "one tw|o"),
        ("one |two", "3h", "o|ne two"),
        ("|one two three", "w", "one |two three"),
        ("|one, two", "w", "one|, two"),
        ("|one, two", "W", "one, |two"),
        ("|one two three", "2e", "one tw|o three"),
        ("one two |three", "2b", "|one two three"),
        ("|one two\nthree", "3w", "one two\nthre|e"),
        ("one |two", "0", "|one two"),
        ("  one t|wo", "^", "  |one two"),
        ("|one two", "$", "one tw|o"),
        ("|one\ntwo\nthree", "G", "one\ntwo\n|three"),
        ("one\ntwo\nth|ree", "gg", "|one\ntwo\nthree"),
        ("|one\ntwo\nthree", "2G", "one\n|two\nthree"),
        ("on|e\n\nthree", "jj", "one\n\nth|ree"),
        ("|one two", "ft", "one |two"),
        ("|one two", "tt", "one| two"),
        ("one tw|o", "Fo", "|one two"),
        ("one tw|o", "Tn", "on|e two"),
        ("|a.b.c", "f.;", "a.b|.c"),
        ("|a.b.c", "f.;,", "a|.b.c"),
        ("|a.b.c", "t.;", "a.|b.c"),
        ("|f(a, (b))", "%", "f(a, (b)|)"),
        ("|one two", "x", "|ne two"),
        ("on|e", "x", "o|n"),
        ("|one two", "3x", "| two"),
        ("on|e two", "X", "o|e two"),
        ("|one two", "dw", "|two"),
        ("|one two\nthree", "wdw", "one| \nthree"),
        ("|one two three", "2dw", "|three"),
        ("|one two three", "d2w", "|three"),
        ("one |two", "db", "|two"),
        ("|one two", "de", "| two"),
        ("one |two three", "d$", "one| "),
        ("one |two three", "D", "one| "),
        ("one |two", "d0", "|two"),
        ("|one two", "dft", "|wo"),
        ("|one two", "dtt", "|two"),
        ("|one\ntwo\nthree", "dd", "|two\nthree"),
        ("one\ntwo\n|three", "dd", "one\n|two"),
        ("|one", "dd", "|"),
        ("|one\ntwo\nthree", "2dd", "|three"),
        ("one\n|two\nthree", "dG", "|one"),
        ("one\ntwo\n|three", "dgg", "|"),
        ("one\n|two\nthree", "dk", "|three"),
        ("|one two", "cwnew<esc>", "ne|w two"),
        ("|a two", "cwnew<esc>", "ne|w two"),
        ("one t|wo", "ciwnew<esc>", "one ne|w"),
        ("|one two three", "daw", "|two three"),
        ("one |two", "daw", "on|e"),
        ('say "he|llo" now', 'di"', 'say "|" now'),
        ('say "he|llo" now', 'da"', "say | now"),
        ('s|ay "hello" now', 'ci"bye<esc>', 'say "by|e" now'),
        ("f(a, |b)", "di(", "f(|)"),
        ("f(a, |b)", "da)", "|f"),
        ("{a [b|c] d}", "di{", "{|}"),
        ("|one two", "ccnew<esc>", "ne|w"),
        ("one |two", "Cnew<esc>", "one ne|w"),
        ("|one", "yyp", "one\n|one"),
        ("|one\ntwo", "yyjp", "one\ntwo\n|one"),
        ("one\n|two", "ddP", "|two\none"),
        ("|one two", "ywP", "one| one two"),
        ("|ab", "xp", "b|a"),
        ("|a", "x3p", "aa|a"),
        ("|ab", "x3p", "baa|a"),
        ("|one", "ihey <esc>", "hey| one"),
        ("|one", "ax<esc>", "o|xne"),
        ("  o|ne", "Ix<esc>", "  |xone"),
        ("|one", "Ax<esc>", "one|x"),
        ("|one\ntwo", "ox<esc>", "one\n|x\ntwo"),
        ("one\n|two", "Ox<esc>", "one\n|x\ntwo"),
        ("|one", "rx", "|xne"),
        ("|one", "3rx", "xx|x"),
        ("|one", "5rx", "|one"),
        ("|One two", "4~", "oNE |two"),
        ("o|ne\ntwo", "9~", "oN|E\ntwo"),
        ("one |\n  two", "J", "one |two"),
        ("on|e\ntwo\nthree", "3J", "one two| three"),
        ("|one two", "dw.", "|"),
        ("|one two three", "cwx<esc>w.", "x |x three"),
        ("|one two", "vey", "|one two"),
        ("|one two", "ved", "| two"),
        ("one |two", "viwcx<esc>", "one |x"),
        ("|one\ntwo\nthree", "Vjd", "|three"),
        ("|one two", "wvbd", "|wo"),
        ("one |two", "veohd", "on|e"),
        ("|one", "vlr-", "|--e"),
        ("|one", "d<esc>x", "|ne"),
        ("|one", "2<esc>x", "|ne"),
        ("|one", "zx", "|ne"),
    ],
)
def test_commands(before: str, keys: str, after: str) -> None:
    assert drawn(before, keys) == after


def test_undo_redo_and_the_history_are_for_the_composer() -> None:
    assert play("one", "u<ctrl+r>jk")[3] == [VimEffect.UNDO, VimEffect.REDO, VimEffect.LATER, VimEffect.EARLIER]


def test_escape_is_the_agent_s_only_in_normal_mode_without_a_command() -> None:
    assert play("one", "i<esc>")[3] == [VimEffect.NONE, VimEffect.NONE]
    assert play("one", "v<esc>")[3] == [VimEffect.NONE, VimEffect.NONE]
    assert play("one", "2d<esc>")[3] == [VimEffect.NONE] * 3
    assert play("one", "<esc>")[3] == [VimEffect.LEFT]


_KEYS = st.one_of(
    st.sampled_from([*"hjklwbeWBE0^$gGfFtTiaIAoOxXdDcCyYpPuJr~vV.;,%'\"(){}123", "space", "escape", "ctrl+r", "up",
                     "down", "left", "right", "home", "end", "delete", "backspace", "enter", "ctrl+c"]),
    st.characters(codec="utf-8"),
)  # fmt: skip
_TEXTS = st.text(st.sampled_from('ab .("\n\tß漢🙂)'), max_size=40)


@given(_TEXTS, st.lists(_KEYS, max_size=25), st.data())
def test_any_keys_leave_a_cursor_in_the_text_and_a_mode_that_can_be_left(
    text: str, keys: list[str], data: st.DataObject
) -> None:
    vim = Vim()
    vim.press(text, data.draw(st.integers(0, len(text))), "escape")
    for key in keys:
        effect = vim.press(text, vim.at, key)
        if effect is not VimEffect.NONE:
            assert vim.text == text, "what the composer does is not done here too"
        text, at = vim.text, vim.at
        assert 0 <= at <= len(text) <= 1_100_000
        if vim.mode is not VimMode.INSERT:
            assert at == len(text) or text[at] != "\n" or at == 0 or text[at - 1] == "\n", "it stands on a character"
    for _ in range(2):
        vim.press(text, vim.at, "escape")
    assert vim.mode is VimMode.NORMAL and not vim.pending


@given(
    _TEXTS, st.data(), st.sampled_from(["w", "b", "e", "0", "$", "gg", "G", "iw", "aw", 'i"', "i(", "ip", "fa", "j"])
)
def test_what_is_deleted_and_put_back_is_the_same_text(text: str, data: st.DataObject, motion: str) -> None:
    at = data.draw(st.integers(0, max(0, len(text) - 1)))
    at = play(text, "h", at=at)[2]
    copied, same, _, _ = play(text, f"y{motion}", at=at)
    deleted, rest, _, _ = play(text, f"d{motion}", at=at)
    assert same == text
    assert deleted.register == copied.register, "y takes what d takes"
    taken = len(text) - len(rest)
    assert taken in (0, len(deleted.register), len(deleted.register) + 1), "and nothing else goes"
