"""Vim's keys: where motions and text objects lead, what keys are which command, and what that does to the text."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum

from ccb.tunnel.wire.dataclass import dataclass

_PAIRS = {each: pair for pair in ("()", "[]", "{}", "<>") for each in pair} | {"b": "()", "B": "{}"}
_QUOTES = "\"'`"


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def last_in_line(text: str, at: int) -> int:
    """Return the last place of the line on which the cursor stands in normal mode."""
    return max(line_start(text, at), line_end(text, at) - 1)


def first_word(text: str, at: int) -> int:
    """Return the first character of the line that is no blank."""
    end = last_in_line(text, at)
    return end - len(text[line_start(text, at) : end].lstrip(" \t"))


def line_starts(text: str) -> list[int]:
    return [0, *(each.end() for each in re.finditer("\n", text))]


def _kind(char: str, big: bool) -> int:
    if char.isspace():
        return 0
    return 1 if big or char.isalnum() or char == "_" else 2


def word_forward(text: str, at: int, *, big: bool = False) -> int:
    start = _alike(text, at, big)[1] if at < len(text) and not text[at].isspace() else at
    end = _after_blanks(text, start)
    empty_line = text.find("\n\n", start, end)
    return end if empty_line < 0 else empty_line + 1


def word_back(text: str, at: int, *, big: bool = False) -> int:
    end = len(text[:at].rstrip())
    empty_line = text.rfind("\n\n", end, at)
    if empty_line >= 0:
        return empty_line + 1
    return _alike(text, end - 1, big)[0] if end else 0


def word_end(text: str, at: int, *, big: bool = False) -> int:
    """Return the last character of the word, or of the next one."""
    place = _after_blanks(text, at + 1)
    return _alike(text, place, big)[1] - 1 if place < len(text) else max(0, len(text) - 1)


def _after_blanks(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip())


def vertical(text: str, at: int, lines: int, column: int) -> int | None:
    """Return the place so many lines below (above, if negative) in a column. None if there are no such lines."""
    starts = line_starts(text)
    row = text.count("\n", 0, at) + lines
    return min(starts[row] + column, last_in_line(text, starts[row])) if 0 <= row < len(starts) else None


def found_in_line(text: str, at: int, char: str, count: int, kind: str) -> int | None:
    """Return where `kind` (f, F, t or T) leads to the character. None if it is not in the line that often."""
    forward = kind in "ft"
    place = at
    # A repeated t must not stay before the character at which it stands.
    for _ in range(count):
        if forward:
            place = text.find(char, place + 1, line_end(text, at))
        else:
            place = text.rfind(char, line_start(text, at), place)
        if place < 0:
            return None
    return place if kind in "fF" else place - 1 if forward else place + 1


def matching(text: str, at: int) -> int | None:
    """Return the bracket that matches the first one in the rest of the line, or None."""
    place = next((each for each in range(at, line_end(text, at)) if text[each] in "()[]{}"), None)
    if place is None:
        return None
    pair = _PAIRS[text[place]]
    if text[place] == pair[0]:
        return _unmatched(text, place + 1, 1, pair[1], pair[0])
    return _unmatched(text, place - 1, -1, pair[0], pair[1])


def text_object(text: str, at: int, around: bool, name: str) -> tuple[int, int] | None:
    """Return start and end of a text object such as `iw` or `a"`. None if the cursor is in none."""
    if name in "wW":
        return _word(text, at, around, big=name == "W")
    if name in _QUOTES:
        return _quoted(text, at, around, name)
    if name in _PAIRS:
        return _bracketed(text, at, around, _PAIRS[name])
    if name == "p":
        return _paragraph(text, at, around)
    return None


def _word(text: str, at: int, around: bool, *, big: bool) -> tuple[int, int] | None:
    low, high = line_start(text, at), line_end(text, at)
    if low == high:
        return None
    at = min(at, high - 1)
    start, end = _alike(text[low:high], at - low, big)
    start, end = start + low, end + low
    if not around:
        return start, end
    if text[at].isspace() and end < high:
        return start, _alike(text, end, big)[1]
    after = high - len(text[end:high].lstrip(" \t"))
    before = low + len(text[low:start].rstrip(" \t"))
    return (before, end) if after == end else (start, after)


def _alike(text: str, at: int, big: bool) -> tuple[int, int]:
    """Return where the characters of one kind begin and end that are around a place."""
    start, end, kind = at, at, _kind(text[at], big)
    while start > 0 and _kind(text[start - 1], big) == kind:
        start -= 1
    while end < len(text) and _kind(text[end], big) == kind:
        end += 1
    return start, end


def _quoted(text: str, at: int, around: bool, quote: str) -> tuple[int, int] | None:
    low, high = line_start(text, at), line_end(text, at)
    marks = [each for each in range(low, high) if text[each] == quote and (each == low or text[each - 1] != "\\")]
    for opening, closing in zip(marks[::2], marks[1::2], strict=False):
        if at <= closing:
            return (opening, closing + 1) if around else (opening + 1, closing)
    return None


def _bracketed(text: str, at: int, around: bool, pair: str) -> tuple[int, int] | None:
    opening, closing = pair[0], pair[1]
    closes = text[at : at + 1] == closing  # the cursor is on the end of the object
    start = _unmatched(text, min(at, len(text) - 1) - closes, -1, opening, closing)
    end = _unmatched(text, start + 1, 1, closing, opening) if start is not None else None
    if start is None or end is None:
        return None
    return (start, end + 1) if around else (start + 1, end)


def _unmatched(text: str, at: int, step: int, wanted: str, other: str) -> int | None:
    depth = 0
    for place in range(at, len(text) if step > 0 else -1, step):
        if text[place] == wanted and not depth:
            return place
        depth += (text[place] == other) - (text[place] == wanted)
    return None


def _paragraph(text: str, at: int, around: bool) -> tuple[int, int]:
    def blank(start: int) -> bool:
        return not text[start : line_end(text, start)].strip()

    start = line_start(text, at)
    kind = blank(start)
    while start > 0 and blank(line_start(text, start - 1)) == kind:
        start = line_start(text, start - 1)
    end = line_end(text, at)
    while end < len(text) and blank(end + 1) == kind:
        end = line_end(text, end + 1)
    while around and end < len(text) and blank(end + 1) != kind:
        end = line_end(text, end + 1)
    return start, min(end + 1, len(text))


SIMPLE: Mapping[str, Callable[[str, int], int]] = {
    "0": line_start,
    "home": line_start,
    "^": first_word,
    "w": word_forward,
    "W": lambda text, at: word_forward(text, at, big=True),
    "b": word_back,
    "B": lambda text, at: word_back(text, at, big=True),
    "e": word_end,
    "E": lambda text, at: word_end(text, at, big=True),
    "h": lambda text, at: max(line_start(text, at), at - 1),
    "left": lambda text, at: max(line_start(text, at), at - 1),
    "backspace": lambda text, at: max(0, at - 1),
    "l": lambda text, at: min(line_end(text, at), at + 1),
    "right": lambda text, at: min(line_end(text, at), at + 1),
    "space": lambda text, at: min(len(text), at + 1),
}
"""Motions of one step, which a count repeats."""

INCLUSIVE = frozenset(("e", "E", "$", "end", "f", "t", "%"))
"""Motions whose last character belongs to what an operator takes."""


_OPERATORS = frozenset("dcy")
_FINDS = frozenset("fFtT")
_VERTICAL = {"j": 1, "down": 1, "k": -1, "up": -1}
_MOTIONS = frozenset((*SIMPLE, *_VERTICAL, "$", "end", "%", "G", ";", ","))
_LINEWISE = frozenset((*_VERTICAL, "lines", "gg", "G"))
_VISUAL_OPERATORS = {"d": "d", "c": "c", "y": "y", "x": "d", "delete": "d", "s": "c", "S": "c", "R": "c", "X": "d",
                     "D": "d", "Y": "y", "C": "c"}  # fmt: skip
_ACTIONS = frozenset(("i", "a", "I", "A", "o", "O", "x", "X", "s", "S", "D", "C", "Y", "p", "P", "u", "ctrl+r",
                      "J", "~", "v", "V", ".", "delete"))  # fmt: skip
_VISUAL_ACTIONS = frozenset(("v", "V", "o", "p", "P", "~", "J"))
_NAMED = frozenset(("space", "left", "right", "up", "down", "home", "end", "backspace", "delete", "ctrl+r"))
"""Keys with a name that mean something in normal mode."""
_MAX_COUNT = 9_999
_MAX_REGISTER = 1_000_000
_MAX_UNDONE = 100  # changes
_LINE_END = 1 << 30  # the column of who has gone to the end of a line


@dataclass(frozen=True)
class VimCommand:
    """`name` is an operator, an action, or "" for a motion alone. `motion` leads away from the cursor, or is a text
    object; `arg` is its character. `count` is 0 if none was typed."""

    name: str
    count: int = 0
    motion: str = ""
    arg: str = ""


UNFINISHED = VimCommand("unfinished")
UNKNOWN = VimCommand("unknown")


def parse_keys(keys: tuple[str, ...], *, visual: bool) -> VimCommand:
    """Return the command that `keys` are, UNFINISHED if more must follow, UNKNOWN if nothing can make them one."""
    count, rest = _count(keys)
    key = rest[0] if rest else ""
    if not rest or rest == ("r",):
        return UNFINISHED
    if key == "r":
        return VimCommand("r", count, arg=rest[1])
    if key in (_VISUAL_ACTIONS if visual else _ACTIONS):
        return VimCommand(key, count)
    if visual and key in _VISUAL_OPERATORS:
        return VimCommand(_VISUAL_OPERATORS[key], count, arg="lines" if key in "SRXDYC" else "")
    if visual or key not in _OPERATORS:
        return _motion("", count, rest, objects=visual)
    return _operator(key, count, *_count(rest[1:]))


def _operator(key: str, count: int, again: int, rest: tuple[str, ...]) -> VimCommand:
    count = min(_MAX_COUNT, (count or 1) * (again or 1)) if count or again else 0
    return VimCommand(key, count, "lines") if rest == (key,) else _motion(key, count, rest, objects=True)


def _count(keys: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Split the digits at the start from the rest. A 0 alone is a motion."""
    end = 0
    while end < len(keys) and keys[end] in "0123456789" and (end or keys[end] != "0"):
        end += 1
    return min(_MAX_COUNT, int("".join(keys[:end]) or 0)), keys[end:]


def _motion(name: str, count: int, keys: tuple[str, ...], *, objects: bool) -> VimCommand:
    if keys and keys[0] in _MOTIONS and len(keys) == 1:
        return VimCommand(name, count, keys[0])
    takes_char = bool(keys) and (keys[0] in _FINDS or (objects and keys[0] in ("i", "a")))
    if not keys or (len(keys) == 1 and (keys[0] == "g" or takes_char)):
        return UNFINISHED
    if keys == ("g", "g"):
        return VimCommand(name, count, "gg")
    return VimCommand(name, count, keys[0], keys[1]) if takes_char and len(keys[1]) == 1 else UNKNOWN


class VimMode(Enum):
    """What a letter does: it is text, a command, or it changes what is marked."""

    INSERT = "INSERT"
    NORMAL = "NORMAL"
    VISUAL = "VISUAL"
    LINES = "V-LINE"


class VimEffect(Enum):
    """What the composer does besides taking over the text."""

    NONE = "none"
    LEFT = "left"  # the key is for the composer, as without vim
    UNDO = "undo"
    REDO = "redo"
    EARLIER = "earlier"  # the prompt before this one
    LATER = "later"


_EFFECTS = {"u": VimEffect.UNDO, "ctrl+r": VimEffect.REDO}
_MARKING = {"v": VimMode.VISUAL, "V": VimMode.LINES}


class Vim:
    """Vim's keys in the composer, once they are `on`. After a key, `text` and `at` are what it has led to. `pending`
    are the keys of a command that is not complete. `register` is what was deleted or copied last."""

    def __init__(self, mode: VimMode = VimMode.INSERT) -> None:
        self.on = False
        self.mode = mode
        self.text = ""
        self.at = 0
        self.pending: tuple[str, ...] = ()
        self.register = ""
        self.entered: tuple[str, int] | None = None  # the text and the place at which the person began to insert
        self._whole_lines = False  # in the register
        self._found = ("", "")  # the last f, F, t or T, and its character
        self._column: int | None = None  # the one that j and k keep to
        self._anchor = 0  # where what is marked begins
        self._last: tuple[str, ...] = ()  # the keys of the last change
        self._typed = ""  # in it
        self._began: deque[str] = deque(maxlen=_MAX_UNDONE)  # the texts with which changes began

    def use(self, *, on: bool) -> None:
        self.on = on
        self.sent()

    @property
    def commands(self) -> bool:
        return self.on and self.mode is not VimMode.INSERT

    @property
    def label(self) -> str:
        """The mode in a word, with the keys of a command that is not complete; "" without vim."""
        return " ".join((self.mode.value, "".join(self.pending))).rstrip() if self.on else ""

    def sent(self) -> None:
        self.mode, self.pending, self.entered = VimMode.INSERT, (), None
        self._began.clear()

    def press(self, text: str, at: int, key: str) -> VimEffect:
        """Take a key: a character, or Textual's name of another key."""
        hidden = self.mode in (VimMode.VISUAL, VimMode.LINES)  # what is marked hides the cursor
        self.text, self.at = text, min(self.at if hidden else at, len(text))
        entered, effect = self.entered, self._pressed(key)
        inserts = self.mode is VimMode.INSERT and not entered and effect is not VimEffect.LEFT
        if self.text != text or inserts or effect is VimEffect.REDO:
            self._began.append(text)
        return effect

    def undone(self, text: str) -> str | None:
        """Return the text with which the newest change began that has led to `text`; None if that is not known."""
        while self._began:
            if (began := self._began.pop()) != text:
                return began
        return None

    def _pressed(self, key: str) -> VimEffect:
        if self.mode is VimMode.INSERT:
            if key != "escape":
                return VimEffect.LEFT
            self._to_normal()
        elif key == "escape":
            if not self.pending and self.mode is VimMode.NORMAL:
                return VimEffect.LEFT
            self.mode, self.pending = VimMode.NORMAL, ()
            self._go(self.at)
        elif len(key) > 1 and not self.pending and key not in _NAMED:
            return VimEffect.LEFT
        else:
            return self._command((*self.pending, " " if key == "space" and self.pending else key))
        return VimEffect.NONE

    def _command(self, keys: tuple[str, ...]) -> VimEffect:
        before, normal = self.text, self.mode is VimMode.NORMAL
        command = parse_keys(keys, visual=not normal)
        self.pending = keys if command is UNFINISHED else ()
        if command in (UNFINISHED, UNKNOWN):
            return VimEffect.NONE
        if command.name == ".":
            self._repeat()
            return VimEffect.NONE
        effect = self._run(command)
        if normal and command.name and (self.text != before or self.mode is VimMode.INSERT):
            self._last, self._typed = keys, ""
        return effect

    def _run(self, command: VimCommand) -> VimEffect:
        if self.mode is not VimMode.NORMAL and command.name:
            self._change_marked(command)
        elif not command.name:
            return self._move(command)
        elif command.name in _OPERATORS:
            self._operate(command)
        else:
            return self._act(command)
        return VimEffect.NONE

    def _repeat(self) -> None:
        """Carry out the last change again, with what was typed in it."""
        if self._last:
            self._run(parse_keys(self._last, visual=False))
        if self.mode is VimMode.INSERT:
            typed, self.entered = self._typed, None
            self.text = self.text[: self.at] + typed + self.text[self.at :]
            self.at += len(typed)
            self._to_normal()
            self._typed = typed

    def _go(self, at: int) -> None:
        """Put the cursor where it stands in normal mode: on a character."""
        at = min(max(at, 0), len(self.text))
        self.at = min(at, last_in_line(self.text, at))

    def _insert(self, at: int) -> None:
        self.mode, self.at, self.entered, self._column = VimMode.INSERT, at, (self.text, at), None

    def _to_normal(self) -> None:
        self._typed = ""
        if self.entered is not None:
            before, place = self.entered
            grown = len(self.text) - len(before)
            if grown > 0 and self.text[:place] == before[:place] and self.text[place + grown :] == before[place:]:
                self._typed = self.text[place : place + grown]
        self.mode, self.entered = VimMode.NORMAL, None
        self._go(max(line_start(self.text, self.at), self.at - 1))

    # Motions.

    def _move(self, command: VimCommand) -> VimEffect:
        if command.motion in ("i", "a"):
            span = text_object(self.text, self.at, command.motion == "a", command.arg)
            if span is not None and span[0] != span[1]:
                self._anchor, self.at = span[0], span[1] - 1
        elif command.motion in _VERTICAL:
            down = _VERTICAL[command.motion]
            column = self.at - line_start(self.text, self.at) if self._column is None else self._column
            to = vertical(self.text, self.at, down * (command.count or 1), column)
            if to is None and self.mode is VimMode.NORMAL:
                return VimEffect.LATER if down > 0 else VimEffect.EARLIER
            if to is not None:
                self._column, self.at = column, to
        elif (to := self._target(command)) is not None:
            self._column = _LINE_END if command.motion in ("$", "end") else None
            self._go(to)
        return VimEffect.NONE

    def _target(self, command: VimCommand) -> int | None:
        """Return where a motion leads, None for nowhere."""
        text, at, count, motion = self.text, self.at, command.count or 1, command.motion
        if motion in SIMPLE:
            for _ in range(min(count, len(text) + 1)):
                at = SIMPLE[motion](text, at)
            return at
        if motion in ("$", "end"):
            return last_in_line(text, self._below(count))
        if motion in ("gg", "G"):
            starts = line_starts(text)
            line = command.count or (1 if motion == "gg" else len(starts))
            return first_word(text, starts[min(line, len(starts)) - 1])
        if motion == "%":
            return matching(text, at)
        if motion not in (";", ","):
            self._found = motion, command.arg
            return found_in_line(text, at, command.arg, count, motion)
        kind, char = self._found
        kind = kind.swapcase() if motion == "," else kind
        step = {"t": 1, "T": -1}.get(kind, 0)  # so that it does not stay where it is
        at = at + step if 0 <= at + step <= len(text) else at
        return found_in_line(text, at, char, count, kind) if kind else None

    def _below(self, count: int) -> int:
        below = vertical(self.text, self.at, count - 1, 0) if count > 1 else self.at
        return len(self.text) if below is None else below

    # Operators.

    def _operate(self, command: VimCommand) -> None:
        lines = command.motion in _LINEWISE
        span = self._lines(command) if lines else self._span(command)
        if span is not None:
            self._take(command.name, *span, lines=lines)

    def _lines(self, command: VimCommand) -> tuple[int, int] | None:
        at, motion, count = self.at, command.motion, command.count or 1
        if motion in _VERTICAL:
            other = vertical(self.text, at, _VERTICAL[motion] * count, 0)
        else:
            other = self._below(count) if motion == "lines" else self._target(command)
        if other is None:
            return None
        return line_start(self.text, min(at, other)), line_end(self.text, max(at, other))

    def _span(self, command: VimCommand) -> tuple[int, int] | None:
        text, at, motion, count = self.text, self.at, command.motion, command.count or 1
        if motion in ("i", "a"):
            return text_object(text, at, motion == "a", command.arg)
        if command.name == "c" and motion in ("w", "W") and at < len(text) and not text[at].isspace():
            return at, self._end_of_words(count, big=motion == "W") + 1
        to = self._target(command)
        if to is None:
            return None
        if motion in ("w", "W") and to > at and "\n" in text[at:to] and count == 1:
            to = max(at, line_end(text, at))
        start, end = min(at, to), max(at, to)
        if motion in INCLUSIVE and line_start(text, end) != line_end(text, end):
            end = min(len(text), end + 1)
        return start, end

    def _end_of_words(self, count: int, *, big: bool) -> int:
        text, at = self.text, self.at
        ends_here = word_end(text, at - 1, big=big) == at if at else word_end(" " + text, 0) == 1
        end = at
        for _ in range(count - ends_here):
            end = word_end(text, end, big=big)
        return end

    def _take(self, operator: str, start: int, end: int, *, lines: bool) -> None:
        self.register, self._whole_lines = self.text[start:end][:_MAX_REGISTER], lines
        self.mode, self._column = VimMode.NORMAL, None
        if operator == "y":
            self._go(self.at if lines and self.at >= start else start)
            return
        if lines and operator == "d":  # with one of the line breaks around it
            start, end = (start, end + 1) if end < len(self.text) else (max(0, start - 1), end)
        self.text = self.text[:start] + self.text[end:]
        if operator == "c":
            self._insert(start)
        elif lines:
            self.at = first_word(self.text, min(start, len(self.text)))
        else:
            self._go(start)

    # Actions.

    def _act(self, command: VimCommand) -> VimEffect:
        text, at, count, name = self.text, self.at, command.count or 1, command.name
        start, end = line_start(text, at), line_end(text, at)
        right = min(end, at + count)
        taken = {"x": ("d", at, right), "delete": ("d", at, right), "s": ("c", at, right), "D": ("d", at, end),
                 "C": ("c", at, end), "X": ("d", max(start, at - count), at)}  # fmt: skip
        begun = {"i": at, "a": min(at + 1, end), "I": first_word(text, at), "A": end}
        opened = {"o": (end, end + 1), "O": (start, start)}
        if name in _EFFECTS:
            return _EFFECTS[name]
        if name in taken:
            self._take(*taken[name], lines=False)
        elif name in begun:
            self._insert(begun[name])
        elif name in opened:
            place, to = opened[name]
            self.text = f"{text[:place]}\n{text[place:]}"
            self._insert(to)
        elif name in ("S", "Y"):
            self._operate(VimCommand({"S": "c", "Y": "y"}[name], count, "lines"))
        elif name in _MARKING:
            self.mode, self._anchor = _MARKING[name], at
        elif name in ("p", "P"):
            self._put(count, before=name == "P")
        elif name == "J":
            self._join(max(1, count - 1))
        elif name == "~":
            self.text = text[:at] + text[at:right].swapcase() + text[right:]
            self._go(right)
        elif at + count <= end:  # r
            self.text, self.at = text[:at] + command.arg * count + text[at + count :], at + count - 1
        return VimEffect.NONE

    def _put(self, count: int, *, before: bool) -> None:
        text, at = self.text, self.at
        if not self.register:
            return
        count = max(1, min(count, _MAX_REGISTER // len(self.register)))
        if not self._whole_lines:
            place, put = at if before else min(at + 1, line_end(text, at)), self.register * count
            self.text, self.at = text[:place] + put + text[place:], max(place, place + len(put) - 1)
            return
        put = "\n".join([self.register] * count)
        place = line_start(text, at) if before else line_end(text, at) + 1
        if before:
            self.text = f"{text[:place]}{put}\n{text[place:]}"
        else:
            self.text = f"{text[: place - 1]}\n{put}{text[place - 1 :]}"
        self.at = first_word(self.text, place)

    def _join(self, count: int) -> None:
        for _ in range(count):
            text, end = self.text, line_end(self.text, self.at)
            if end == len(text):
                break
            rest = text[end + 1 :].lstrip(" \t")
            blank = "" if not rest or rest[0] in ")\n" or text[:end].endswith((" ", "\t", "\n")) or not end else " "
            self.text, self.at = text[:end] + blank + rest, end
        self._go(self.at)

    # What is marked.

    def marked(self) -> tuple[int, int]:
        """Return start and end of what is marked. If nothing is, both are the place of the cursor."""
        if self.mode not in (VimMode.VISUAL, VimMode.LINES):
            return self.at, self.at
        low, high = min(self._anchor, self.at), max(self._anchor, self.at)
        if self.mode is VimMode.LINES:
            return line_start(self.text, low), line_end(self.text, high)
        return low, min(len(self.text), high + 1)

    def _change_marked(self, command: VimCommand) -> None:
        name = command.name
        if name in _MARKING:
            self.mode = VimMode.NORMAL if self.mode is _MARKING[name] else _MARKING[name]
            return
        if name == "o":
            self._anchor, self.at = self.at, self._anchor
            return
        if command.arg == "lines":
            self.mode = VimMode.LINES
        start, end = self.marked()
        if name in _OPERATORS:
            self._take(name, start, end, lines=self.mode is VimMode.LINES)
            if name == "y":
                self._go(start)
            return
        self.mode = VimMode.NORMAL
        if name == "J":
            self.at = start
            self._join(max(1, self.text.count("\n", start, end)))
            return
        marked, at = self.text[start:end], start
        if name in ("p", "P"):
            put = self.register
            self._take("d", start, end, lines=False)
            at, end = max(start, start + len(put) - 1), start
        elif name == "r":
            put = "".join(each if each == "\n" else command.arg for each in marked)
        else:
            put = marked.swapcase()
        self.text = self.text[:start] + put + self.text[end:]
        self._go(at)


def changed_part(before: str, after: str) -> tuple[int, int]:
    """Return how many characters at the start, and how many at the end, two texts have in common."""
    most = min(len(before), len(after))
    start = next((at for at in range(most) if before[at] != after[at]), most)
    end = next((at for at in range(most - start) if before[-1 - at] != after[-1 - at]), most - start)
    return start, end
