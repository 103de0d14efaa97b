"""What the tokens of the terminal are to Textual: keys, pastes, the mouse and the focus.

The tables of keys and the reading of the mouse are private parts of Textual 8.2. Its own parser raises for what
terminals may send, and takes answers for keys.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from enum import IntFlag

from textual import events, messages
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS, IgnoredSequence
from textual._keyboard_protocol import FUNCTIONAL_KEYS, MODIFIER_FUNCTIONAL_KEYS
from textual._xterm_parser import XTermParser
from textual.keys import Keys, _character_to_key
from textual.message import Message

from ..terminal.input_machine import ESC, Control, Pasted, Typed

_EXTENDED = re.compile(
    r"\x1b\[(?:(\d{1,7})(?::(\d{0,7}))?(?::\d{0,7})?)?(?:;(\d{0,3})(?::(\d))?(?:;([\d:]{0,128}))?)?([u~ABCDEFHPQS])"
)
"""A key in the form of Kitty: code, code with Shift, modifiers, press or release, text."""

_OTHER_KEY = re.compile(r"\x1b\[27;(\d{1,3});(\d{1,7})~")  # a key in the form of xterm's modifyOtherKeys
_NO_KEY = re.compile(r"\x1b\[(?:[\d;]*;[\d;]*R|~)")
"""What Textual's table has for keys: the place of the cursor, and a tilde alone."""

_MOUSE = re.compile(r"\x1b\[<\d{1,4};\d{1,5};\d{1,5}[Mm]")
_SYNCHRONIZES = re.compile(r"\x1b\[\?2026;[1-9]\$y")
_RELEASED = "3"
_CHARACTERS: Mapping[str, str] = {"backspace": "\x7f", "enter": "\r", "tab": "\t"}
_NO_TEXT = ("[", "O", "]", "P", "_", "^", "X", "\\")
"""What ends or begins a sequence: after ESC these are a chord at most, and never text."""


class _Modifier(IntFlag):
    """The modifiers of a key, as terminals number them, without those that stay on."""

    SHIFT = 1
    ALT = 2
    CTRL = 4
    SUPER = 8
    HYPER = 16
    META = 32


class KeyDecoder:
    """Makes messages for Textual of tokens. What a terminal says of its size means nothing: SIGWINCH tells it."""

    def __init__(self) -> None:
        self._mouse = XTermParser()
        self._blurred = False

    def messages(self, token: Typed | Pasted | Control) -> Iterator[Message]:
        """Yield what a token means. Nothing, if it means nothing to ccb."""
        for message in self._meant(token):
            if isinstance(message, events.AppBlur | events.AppFocus):
                self._blurred = isinstance(message, events.AppBlur)
            elif self._blurred and isinstance(message, events.Key | events.Paste):
                self._blurred = False  # the report of it was lost: only a window with the focus gets keys
                yield events.AppFocus()
            yield message

    def _meant(self, token: Typed | Pasted | Control) -> Iterator[Message]:
        if isinstance(token, Pasted):
            yield events.Paste(token.text.replace("\0", ""))
        elif isinstance(token, Typed):
            yield from map(_typed, token.text)
        elif token.sequence == "\x1b[I":
            yield events.AppFocus()
        elif token.sequence == "\x1b[O":
            yield events.AppBlur()
        elif _MOUSE.fullmatch(token.sequence):
            if (mouse := self._mouse.parse_mouse_code(token.sequence)) is not None:
                yield mouse
        elif _SYNCHRONIZES.fullmatch(token.sequence):
            yield messages.TerminalSupportsSynchronizedOutput()
        else:
            yield from _keys(token.sequence)


def _typed(char: str) -> events.Key:
    known = ANSI_SEQUENCES_KEYS.get(char)
    if isinstance(known, tuple):
        return events.Key(known[0].value, char)
    return events.Key(_character_to_key(char), char)


def _keys(sequence: str) -> Iterator[events.Key]:
    if sequence == ESC:
        yield events.Key("escape", ESC)
    elif other := _OTHER_KEY.fullmatch(sequence):
        yield from _modified(int(other[2]), "u", _modifiers(other[1]), shifted=int(other[2]))
    elif (sequence[-1] == "u" or ";" in sequence or ":" in sequence) and (key := _EXTENDED.fullmatch(sequence)):
        code, shifted, modifiers, event, text, final = key.groups(default="")
        if event != _RELEASED and not _NO_KEY.fullmatch(sequence):
            held = _modifiers(modifiers)
            yield from _modified(int(code or "1"), final, held, shifted=int(shifted or "0"), text=text)
    elif sequence == "\x1bOM":
        yield events.Key("shift+enter", None)  # as Konsole sends it; ccb never asks for the keys of a keypad
    elif not _NO_KEY.fullmatch(sequence):
        yield from _known(sequence)


def _known(sequence: str) -> Iterator[events.Key]:
    known = ANSI_SEQUENCES_KEYS.get(sequence)
    if isinstance(known, tuple):
        yield from (events.Key(each.value, None) for each in known)
    elif isinstance(known, str):
        yield _typed(known)
    elif len(sequence) == len("\x1bx") and not isinstance(known, IgnoredSequence):
        yield _alt(sequence[1])


def _alt(char: str) -> events.Key:
    if char in "\r\n":
        return events.Key("alt+enter", None)
    if isinstance(known := ANSI_SEQUENCES_KEYS.get(char), tuple) and known[0] is not Keys.Space:
        return events.Key(known[0].value, char)
    name = f"shift+{char.lower()}" if char.isupper() else _character_to_key(char)
    return events.Key(f"alt+{name}", None if char in _NO_TEXT else char)


def _modifiers(number: str) -> _Modifier:
    return _Modifier((max(int(number or "1"), 1) - 1) & 0b111111)  # the others are Caps Lock and Num Lock


def _modified(code: int, final: str, held: _Modifier, *, shifted: int = 0, text: str = "") -> Iterator[events.Key]:
    char = _character(code) if final == "u" else ""
    name = FUNCTIONAL_KEYS.get(f"{code}{final}") or (_character_to_key(char) if char else "")
    typed = "".join(_character(int(each)) for each in text.split(":") if each)
    typed = typed or _typed_with(name, char, held, shifted)
    if typed:
        held &= ~_Modifier.ALT if typed.isspace() else ~(_Modifier.ALT | _Modifier.SHIFT)
        for each in typed:
            functional = name if not char else _character_to_key(each)
            yield events.Key(_with_modifiers(held, functional), None if held & ~_Modifier.SHIFT else each)
    elif name:
        name = name.lower() if len(name) == 1 else name
        yield events.Key(_with_modifiers(held, name), None if held else _CHARACTERS.get(name))


def _typed_with(name: str, char: str, held: _Modifier, shifted: int) -> str:
    """Return the character of a key whose sequence does not tell it."""
    if not held:
        return char or (name if len(name) == 1 else "")
    if held is not _Modifier.SHIFT or not name or not char:
        return ""
    return _character(shifted) or (char.upper() if char.isalpha() else "")


def _with_modifiers(held: _Modifier, name: str) -> str:
    names = [] if name in MODIFIER_FUNCTIONAL_KEYS else sorted(str(each.name).lower() for each in held)
    return "+".join([*names, name])


def _character(code: int) -> str:
    """Return the character that a key code types, "" for a key without a character."""
    char = chr(code) if code <= sys.maxunicode else ""
    return char if char.isprintable() else ""
