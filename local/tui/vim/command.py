"""One command of normal or visual mode, read from the keys typed so far."""

from __future__ import annotations

from ccb.tunnel.wire.dataclass import dataclass

from .motions import SIMPLE

_OPERATORS = frozenset("dcy")
_FINDS = frozenset("fFtT")
_MOTIONS = frozenset((*SIMPLE, "$", "end", "%", "j", "k", "down", "up", "G", ";", ","))
_VISUAL_OPERATORS = {"x": "d", "delete": "d", "s": "c", "S": "c", "R": "c", "X": "d", "D": "d", "Y": "y", "C": "c"}
_ACTIONS = frozenset(("i", "a", "I", "A", "o", "O", "x", "X", "s", "S", "D", "C", "Y", "p", "P", "u", "ctrl+r",
                      "J", "~", "v", "V", ".", "delete"))  # fmt: skip
_VISUAL_ACTIONS = frozenset(("v", "V", "o", "p", "P", "~", "J"))
_MAX_COUNT = 9_999


@dataclass(frozen=True)
class VimCommand:
    """`name` is an operator (d, c, y) or an action; "" for a motion alone. `motion` is what leads away from the cursor,
    a text object (`i` or `a`) included, and `arg` its character. `count` is 0 if none was typed. In visual mode an
    operator has no motion."""

    name: str
    count: int = 0
    motion: str = ""
    arg: str = ""


UNFINISHED = VimCommand("unfinished")
UNKNOWN = VimCommand("unknown")


def parse_keys(keys: tuple[str, ...], *, visual: bool) -> VimCommand:
    """Return the command that `keys` are, UNFINISHED if more must follow, UNKNOWN if nothing can make them one."""
    count, rest = _count(keys)
    if not rest:
        return UNFINISHED
    key = rest[0]
    if visual:
        if key in _OPERATORS or key in _VISUAL_OPERATORS:
            return VimCommand(_VISUAL_OPERATORS.get(key, key), count, arg="lines" if key in "SRXDYC" else "")
        if key in _VISUAL_ACTIONS:
            return VimCommand(key, count)
        if key == "r":
            return VimCommand("r", count, arg=rest[1]) if len(rest) == 2 else UNFINISHED
        return _motion("", count, rest, objects=True)
    if key in _OPERATORS:
        again, rest = _count(rest[1:])
        count = min(_MAX_COUNT, (count or 1) * (again or 1)) if count or again else 0
        if rest == (key,):
            return VimCommand(key, count, "lines")
        return _motion(key, count, rest, objects=True)
    if key == "r":
        return VimCommand("r", count, arg=rest[1]) if len(rest) == 2 else UNFINISHED
    if key in _ACTIONS:
        return VimCommand(key, count)
    return _motion("", count, rest, objects=False)


def _count(keys: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Split the digits at the start from the rest. A 0 alone is a motion."""
    end = 0
    while end < len(keys) and keys[end] in "0123456789" and (end or keys[end] != "0"):
        end += 1
    return min(_MAX_COUNT, int("".join(keys[:end]) or 0)), keys[end:]


def _motion(name: str, count: int, keys: tuple[str, ...], *, objects: bool) -> VimCommand:
    if not keys:
        return UNFINISHED
    key = keys[0]
    if key in _MOTIONS and len(keys) == 1:
        return VimCommand(name, count, key)
    if key == "g":
        if len(keys) == 1:
            return UNFINISHED
        return VimCommand(name, count, "gg") if keys[1:] == ("g",) else UNKNOWN
    if key in _FINDS or (objects and key in ("i", "a")):
        if len(keys) == 1:
            return UNFINISHED
        return VimCommand(name, count, key, keys[1]) if len(keys[1]) == 1 or keys[1] == "space" else UNKNOWN
    return UNKNOWN
