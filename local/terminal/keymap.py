"""The keys of the REPL by their ids, which stay the same, and how the setting `keys` changes them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_KEYS: Mapping[str, tuple[str, ...]] = {
    "send": ("enter",),
    "steer": ("ctrl+s",),
    "newline": ("ctrl+j", "shift+enter"),
    "history": ("ctrl+r",),
    "editor": ("ctrl+g",),
    "paste": ("ctrl+v",),
    "undo": ("ctrl+underscore",),
    "queue": ("alt+q",),
    "background": ("ctrl+b",),
    "open": ("alt+o",),
    "interrupt": ("escape",),
    "approval-tab": ("tab",),
    "approval": ("alt+a",),
    "mode": ("shift+tab",),
    "todos": ("ctrl+t",),
    "details": ("ctrl+o",),
    "page-up": ("pageup",),
    "page-down": ("pagedown",),
    "retry": ("alt+r", "f5"),
    "take-back": ("alt+t", "f8"),
    "ladder": ("ctrl+c",),
    "quit": ("ctrl+q",),
    "suspend": ("ctrl+z",),
    "leave": ("ctrl+d",),
    "help": ("f1",),
}
"""The keys of each id, the first one as ccb names it to the person."""

_NAMES = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "delete": "Del", "insert": "Ins"}
_SPOKEN = {**{shown.lower(): name for name, shown in _NAMES.items()}, "return": "enter"}
_MODIFIERS = ("ctrl", "alt", "shift")
_EDITING = ("up", "down", "left", "right", "home", "end", "backspace", "delete", "space")
_NAMED = (*_EDITING, *_NAMES, "enter", "tab", *(f"f{number}" for number in range(1, 25)))
_SAME = {"ctrl+i": "Tab", "ctrl+m": "Enter", "ctrl+left_square_bracket": "Esc"}
"""Keys that terminals send as others."""


class KeyRefused(Exception):
    """A key of the setting `keys` cannot be used. `id` is its id there."""

    def __init__(self, key_id: str, why: str) -> None:
        super().__init__(why)
        self.id = key_id


@dataclass(frozen=True)
class Keymap:
    """Which keys each id has. Keys have the names that Textual gives them."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: DEFAULT_KEYS)

    def has(self, key_id: str, key: str) -> bool:
        """Return whether a key belongs to an id."""
        return key in self.keys[key_id]

    def uses(self, key: str) -> bool:
        """Return whether a key belongs to any id."""
        return any(key in keys for keys in self.keys.values())

    def name(self, key_id: str) -> str:
        """Return the first key of an id as the person knows it: `Ctrl+O`."""
        return shown_key(self.keys[key_id][0])

    def names(self, key_id: str) -> str:
        """Return all keys of an id."""
        return ", ".join(map(shown_key, self.keys[key_id]))

    def filled(self, text: str) -> str:
        """Return a text with the keys in place of `{id}`."""
        return re.sub(r"\{([a-z-]+)\}", lambda found: self.names(found[1]), text)


DEFAULT_KEYMAP = Keymap()


def keymap_of(chosen: Mapping[str, object]) -> Keymap:
    """Return the keys with what the setting `keys` says of them: ids with a key each, or a list of keys. Raise
    KeyRefused."""
    keys = dict(DEFAULT_KEYS)
    for key_id, given in chosen.items():
        if key_id not in DEFAULT_KEYS:
            raise KeyRefused(key_id, f"there is no key of this name; there are {', '.join(DEFAULT_KEYS)}")
        texts = given if isinstance(given, list) else [given]
        if not texts:
            raise KeyRefused(key_id, "it needs a key")
        keys[key_id] = tuple(_named_key(key_id, text) for text in texts)
    owners: dict[str, str] = {}
    for key_id in [*(each for each in keys if each not in chosen), *chosen]:  # the refusal names one that was chosen
        for key in keys[key_id]:
            if owners.setdefault(key, key_id) != key_id:
                other = owners[key]
                raise KeyRefused(key_id, f"{shown_key(key)} is the key of {other!r}, too: give {other!r} another one")
    return Keymap(keys)


def shown_key(key: str) -> str:
    """Return Textual's name of a key as the person knows it."""
    *modifiers, last = key.split("+")
    if last in _NAMED or len(last) == 1:
        last = _NAMES.get(last, last.capitalize())
    else:
        last = next((char for char in map(chr, range(33, 127)) if _name_of(char) == last), last)
    return "+".join([*(each.capitalize() for each in modifiers), last])


def _named_key(key_id: str, text: object) -> str:
    """Return Textual's name of a key that a person wrote."""
    written = text.strip().lower() if isinstance(text, str) else ""
    *modifiers, last = [written] if written == "+" else re.split(r"\+(?!$)", written)
    last = _SPOKEN.get(last, last)
    if last not in _NAMED and len(last) == 1 and 32 < ord(last) < 127:
        last = _name_of(last)
    elif last not in _NAMED:
        raise KeyRefused(key_id, f"{text!r} is no key that ccb knows; write one like Ctrl+O, Alt+Shift+X, F5 or PgUp")
    if len(set(modifiers)) < len(modifiers) or not set(modifiers) <= set(_MODIFIERS):
        raise KeyRefused(key_id, f"{text!r} is no key that ccb knows: in front of the last + stand ctrl, alt and shift")
    key = "+".join([*sorted(modifiers), last])
    plain = not set(modifiers) & {"ctrl", "alt"}
    if plain and (last in _EDITING or last not in _NAMED):
        raise KeyRefused(key_id, f"{text!r} is needed to type")
    if key in _SAME:
        raise KeyRefused(key_id, f"terminals send {text!r} as {_SAME[key]}")
    return key


def _name_of(char: str) -> str:
    """Return Textual's name of a printable character."""
    if char.isalnum():
        return char
    name = unicodedata.name(char).lower().replace("-", "_").replace(" ", "_")
    return {"solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
            "plus_sign": "plus", "low_line": "underscore"}.get(name, name)  # fmt: skip
