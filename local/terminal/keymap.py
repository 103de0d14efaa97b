"""The keys of the REPL by their ids, which stay the same, and how the setting `keys` changes them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import field

from ccb.tunnel.wire.dataclass import dataclass

BURST_S = 0.05  # keys that come faster are text: a paste, or a script
HOLD_S = 0.2  # a chord counts when no other key has followed for so long. Esc and a word typed after it are no chord.
DEFAULT_KEYS: Mapping[str, tuple[str, ...]] = {
    "send": ("enter",),
    "steer": ("ctrl+s",),
    "newline": ("ctrl+j", "shift+enter", "ctrl+enter", "alt+enter"),
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
    "answer-once": ("1", "y"),
    "answer-session": ("2",),
    "answer-always": ("3",),
    "answer-deny": ("4", "n"),
    "answer-reads": ("r",),
    "answer-caged": ("c",),
    "answer-rule": ("e",),
    "next-question": ("ctrl+n",),
    "previous-question": ("ctrl+p",),
    "queue-edit": ("enter", "e"),
    "queue-steer": ("s", "ctrl+s"),
    "queue-drop": ("d", "D", "delete"),
    "queue-up": ("shift+up", "K"),
    "queue-down": ("shift+down", "J"),
    "session-rename": ("f2", "ctrl+r"),
    "session-delete": ("delete", "ctrl+x"),
    "view-search": ("slash", "ctrl+f"),
    "view-next": ("n",),
    "view-previous": ("N",),
    "view-start": ("home", "g"),
    "view-end": ("end", "G"),
    "view-copy": ("y",),
    "view-pager": ("p",),
    "view-fold": ("enter",),
    "view-unfold-all": ("plus",),
    "view-fold-all": ("minus",),
    "rule-add": ("a", "A", "plus"),
    "rule-remove": ("d", "D", "delete"),
    "model-take": ("enter",),
    "task-open": ("enter", "right"),
    "task-stop": ("x", "X", "delete"),
    "port-open": ("o",),
    "port-forward": ("f",),
    "port-ignore": ("x",),
}  # the keys of each id, the first one as ccb names it to the person
_COMPOSER = ("send", "steer", "newline", "history", "editor", "paste", "undo")  # the ids that hold in the input only
_PLACES = (
    "answer-",
    "queue-",
    "session-",
    "view-",
    "rule-",
    "model-",
    "task-",
    "port-",
)  # cards, lists and pages have keys of their own
_CHARACTERS = ("answer-", "queue-", "view-", "rule-", "task-", "port-")  # nothing is typed there
_NAMES = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "delete": "Del", "insert": "Ins"}
_SPOKEN = {**{shown.lower(): name for name, shown in _NAMES.items()}, "return": "enter"}
_MODIFIERS = ("ctrl", "alt", "shift")
_EDITING = ("up", "down", "left", "right", "home", "end", "backspace", "delete", "space")
_NAMED = (*_EDITING, *_NAMES, "enter", "tab", *(f"f{number}" for number in range(1, 25)))
_SAME = {"ctrl+i": "Tab", "ctrl+m": "Enter", "ctrl+left_square_bracket": "Esc"}  # keys that terminals send as others
ID = re.compile(r"\{([a-z-]+)(!?)\}")  # an id in a text that `Keymap.filled` fills


class KeyRefused(Exception):
    """A key of the setting `keys` cannot be used. `id` is its id there."""

    def __init__(self, key_id: str, why: str) -> None:
        super().__init__(why)
        self.id = key_id


@dataclass(frozen=True)
class Keymap:
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: DEFAULT_KEYS)

    def has(self, key_id: str, key: str) -> bool:
        return key in self.keys[key_id]

    def pressed(self, key_id: str, key: str, character: str | None) -> bool:
        return self.has(key_id, key) or (character is not None and self.has(key_id, character))

    def uses(self, key: str) -> bool:
        return any(key in keys for key_id, keys in self.keys.items() if _place(key_id) in ("", "send"))

    def characters(self, key_id: str) -> list[str]:
        return [each for each in map(shown_key, self.keys[key_id]) if len(each) == 1]

    def name(self, key_id: str) -> str:
        return shown_key(self.keys[key_id][0])

    def names(self, key_id: str) -> str:
        return ", ".join(map(shown_key, self.keys[key_id]))

    def filled(self, text: str) -> str:
        """Return a text with the keys in place of `{id}`, or the first one in place of `{id!}`."""
        return ID.sub(lambda found: self.name(found[1]) if found[2] else self.names(found[1]), text)


DEFAULT_KEYMAP = Keymap()


def keymap_of(chosen: Mapping[str, object]) -> Keymap:
    """Return the keys with what the setting `keys` says of them. Raise KeyRefused."""
    keys = dict(DEFAULT_KEYS)
    for key_id, given in chosen.items():
        if key_id not in DEFAULT_KEYS:
            raise KeyRefused(key_id, f"there is no key of this name; there are {', '.join(DEFAULT_KEYS)}")
        texts = given if isinstance(given, list) else [given]
        if not texts:
            raise KeyRefused(key_id, "it needs a key")
        keys[key_id] = tuple(_named_key(key_id, text) for text in texts)
    for key_id in keys.keys() - chosen.keys():
        taken = {key for each in chosen if _gives_way(key_id, each) for key in keys[each]}
        # It has other keys, too, or the refusal below names it.
        keys[key_id] = tuple(key for key in keys[key_id] if key not in taken) or keys[key_id]
    _refuse_shared(keys, chosen)
    return Keymap(keys)


def _refuse_shared(keys: Mapping[str, tuple[str, ...]], chosen: Mapping[str, object]) -> None:
    owners: dict[str, list[str]] = {}
    for key_id in (*(each for each in keys if each not in chosen), *chosen):  # the refusal names one that was chosen
        for key in keys[key_id]:
            for other in owners.setdefault(key, []):
                places = _place(key_id), _place(other)
                if key_id != other and (places[0] == places[1] or "" in places):
                    why = f"{shown_key(key)} is the key of {other!r}, too: give {other!r} another one"
                    raise KeyRefused(key_id, why)
            owners[key].append(key_id)


def _place(key_id: str) -> str:
    if key_id in _COMPOSER:
        return "send"
    if key_id.endswith("-question"):
        return "answer-"
    return next((each for each in _PLACES if key_id.startswith(each)), "")


def _gives_way(key_id: str, chosen: str) -> bool:
    """Return whether the usual keys of an id are fewer where the person has chosen them for another id."""
    return (_place(key_id) != "" and not _place(chosen)) or (key_id == "newline" and _place(chosen) == "send")


def shown_key(key: str) -> str:
    *modifiers, last = key.split("+")
    if not modifiers and len(last) == 1:
        return last
    if last in _NAMED or len(last) == 1:
        last = _NAMES.get(last, last.capitalize())
    else:
        last = next((char for char in map(chr, range(33, 127)) if _name_of(char) == last), last)
    return "+".join([*(each.capitalize() for each in modifiers), last])


def _named_key(key_id: str, text: object) -> str:
    written = text.strip() if isinstance(text, str) else ""
    if key_id.startswith(_CHARACTERS) and _is_character(written):
        return _name_of(written)
    if key_id.startswith("answer-"):
        raise KeyRefused(key_id, f"{text!r} is no single character, as the key of an answer has to be")
    written = written.lower()
    *modifiers, last = [written] if written == "+" else re.split(r"\+(?!$)", written)
    last = _SPOKEN.get(last, last)
    if last not in _NAMED and not _is_character(last):
        raise KeyRefused(key_id, f"{text!r} is no key that ccb knows; write one like Ctrl+O, Alt+Shift+X, F5 or PgUp")
    types = last in _EDITING or last not in _NAMED
    last = _name_of(last)
    if len(set(modifiers)) < len(modifiers) or not set(modifiers) <= set(_MODIFIERS):
        raise KeyRefused(key_id, f"{text!r} is no key that ccb knows: in front of the last + stand ctrl, alt and shift")
    key = "+".join([*sorted(modifiers), last])
    if types and not set(modifiers) & {"ctrl", "alt"} and not _is_free(key_id, key):
        raise KeyRefused(key_id, f"{text!r} is needed to type")
    if key in _SAME:
        raise KeyRefused(key_id, f"terminals send {text!r} as {_SAME[key]}")
    return key


def _is_character(text: str) -> bool:
    return len(text) == 1 and 32 < ord(text) < 127


def _is_free(key_id: str, key: str) -> bool:
    """Return whether a key that edits text does something else at the place of the id: in a list or on a page."""
    if _place(key_id) in ("", "send", "answer-"):
        return False
    free = ("delete", "shift+delete", "shift+up", "shift+down", "shift+left", "shift+right")
    return key in free or (key_id.startswith("view-") and key in ("home", "end"))


def _name_of(char: str) -> str:
    if char.isalnum():
        return char
    name = unicodedata.name(char).lower().replace("-", "_").replace(" ", "_")
    return {"solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
            "plus_sign": "plus", "low_line": "underscore"}.get(name, name)  # fmt: skip
