"""Vim's keys."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from enum import Enum

from ccb.tunnel.wire.dataclass import dataclass

from . import vim_motions
from .vim_motions import SIMPLE

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


_MAX_REGISTER = 1_000_000


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


@dataclass(frozen=True)
class Vim:
    """The state of the keys. `pending` are the keys of a command that is not complete. `register` is what was deleted
    or copied last, `lines` whether that are whole lines. `found` are the last f, F, t or T and its character, `column`
    is that which j and k keep to, `anchor` where what is marked begins. `last` are the keys of the last change, and
    `typed` the text that was typed in it."""

    mode: VimMode = VimMode.INSERT
    pending: tuple[str, ...] = ()
    register: str = ""
    lines: bool = False
    found: tuple[str, str] = ("", "")
    column: int | None = None
    anchor: int = 0
    last: tuple[str, ...] = ()
    typed: str = ""
    entered: tuple[str, int] | None = None
    """The text and the place at which the person began to insert."""


@dataclass(frozen=True)
class VimStep:
    """What a key has led to. `at` is the place of the cursor."""

    vim: Vim
    text: str
    at: int
    effect: VimEffect = VimEffect.NONE


def advance(vim: Vim, text: str, at: int, key: str) -> VimStep:
    """Return what `key` does: the one transition function. `key` is a character, or Textual's name of another key."""
    if vim.mode is VimMode.INSERT:
        return _to_normal(vim, text, at) if key == "escape" else VimStep(vim, text, at, VimEffect.LEFT)
    if key == "escape":
        if vim.pending or vim.mode is not VimMode.NORMAL:
            return VimStep(replace(vim, mode=VimMode.NORMAL, pending=()), text, _held(text, at))
        return VimStep(vim, text, at, VimEffect.LEFT)
    if len(key) > 1 and not vim.pending and key not in _NAMED:
        return VimStep(vim, text, at, VimEffect.LEFT)
    keys = (*vim.pending, " " if key == "space" and vim.pending else key)
    command = parse_keys(keys, visual=vim.mode is not VimMode.NORMAL)
    if command is UNFINISHED:
        return VimStep(replace(vim, pending=keys), text, at)
    vim = replace(vim, pending=())
    if command is UNKNOWN:
        return VimStep(vim, text, at)
    if command.name == ".":
        return _repeated(vim, text, at)
    step = _Run(vim, text, at).run(command)
    if command.name and (step.text != text or step.vim.mode is VimMode.INSERT) and vim.mode is VimMode.NORMAL:
        step = replace(step, vim=replace(step.vim, last=keys, typed=""))
    return step


_NAMED = frozenset(("space", "left", "right", "up", "down", "home", "end", "backspace", "delete", "ctrl+r"))
"""Keys with a name that mean something in normal mode."""


def _held(text: str, at: int) -> int:
    """Return where the cursor stands in normal mode: on a character."""
    at = min(max(at, 0), len(text))
    return min(at, vim_motions.last_in_line(text, at))


def _to_normal(vim: Vim, text: str, at: int) -> VimStep:
    typed = ""
    if vim.entered is not None:
        before, place = vim.entered
        grown = len(text) - len(before)
        if grown > 0 and text[:place] == before[:place] and text[place + grown :] == before[place:]:
            typed = text[place : place + grown]
    left = max(vim_motions.line_start(text, at), at - 1)
    return VimStep(replace(vim, mode=VimMode.NORMAL, typed=typed, entered=None), text, _held(text, left))


def _repeated(vim: Vim, text: str, at: int) -> VimStep:
    """Carry out the last change again, with what was typed in it."""
    if not vim.last:
        return VimStep(vim, text, at)
    step = _Run(vim, text, at).run(parse_keys(vim.last, visual=False))
    if step.vim.mode is VimMode.INSERT:
        text = step.text[: step.at] + vim.typed + step.text[step.at :]
        step = _to_normal(replace(step.vim, entered=None), text, step.at + len(vim.typed))
    return replace(step, vim=replace(step.vim, last=vim.last, typed=vim.typed))


class _Run:
    """Carries out one command."""

    def __init__(self, vim: Vim, text: str, at: int) -> None:
        self.vim = vim
        self.text = text
        self.at = at

    def run(self, command: VimCommand) -> VimStep:
        if self.vim.mode is not VimMode.NORMAL:
            return self._visual(command)
        if not command.name:
            return self._moved(command)
        if command.name in "dcy":
            return self._operator(command)
        return self._action(command)

    # Motions.

    def _moved(self, command: VimCommand) -> VimStep:
        vim, count = self.vim, command.count or 1
        if command.motion in ("j", "k", "down", "up"):
            down = command.motion in ("j", "down")
            column = self._column if vim.column is None else vim.column
            to = vim_motions.vertical(self.text, self.at, count if down else -count, column)
            if to is None:
                effect = (
                    VimEffect.NONE if vim.mode is not VimMode.NORMAL else VimEffect.LATER if down else VimEffect.EARLIER
                )
                return VimStep(vim, self.text, self.at, effect)
            return VimStep(replace(vim, column=column), self.text, to)
        vim, to = self._target(command)
        if to is None:
            return VimStep(vim, self.text, self.at)
        wish = 1 << 30 if command.motion in ("$", "end") else None
        held = min(to, len(self.text)) if vim.mode is not VimMode.NORMAL else to
        return VimStep(replace(vim, column=wish), self.text, _held(self.text, held))

    @property
    def _column(self) -> int:
        return self.at - vim_motions.line_start(self.text, self.at)

    def _target(self, command: VimCommand) -> tuple[Vim, int | None]:
        """Return where a motion leads, None for nowhere, and the state with what was looked for."""
        vim, text, at, count, motion = self.vim, self.text, self.at, command.count or 1, command.motion
        if motion in vim_motions.SIMPLE:
            for _ in range(min(count, len(text) + 1)):
                at = vim_motions.SIMPLE[motion](text, at)
            return vim, at
        if motion in ("$", "end"):
            below = vim_motions.vertical(text, at, count - 1, 0) if count > 1 else at
            return vim, vim_motions.last_in_line(text, len(text) if below is None else below)
        if motion in ("gg", "G"):
            lines = text.count("\n") + 1
            line = min(command.count or (1 if motion == "gg" else lines), lines)
            start = 0
            for _ in range(line - 1):
                start = vim_motions.line_end(text, start) + 1
            return vim, vim_motions.first_word(text, start)
        if motion == "%":
            return vim, vim_motions.matching(text, at)
        if motion in (";", ","):
            kind, char = vim.found
            if not kind:
                return vim, None
            kind = kind.swapcase() if motion == "," else kind
            step = {"t": 1, "T": -1}.get(kind, 0)  # so that it does not stay where it is
            return vim, vim_motions.found_in_line(
                text, at + step if 0 <= at + step <= len(text) else at, char, count, kind
            )
        to = vim_motions.found_in_line(text, at, command.arg, count, motion)
        return replace(vim, found=(motion, command.arg)), to

    # Operators.

    def _operator(self, command: VimCommand) -> VimStep:
        vim, span, lines = self._span(command)
        self.vim = vim
        if span is None:
            return VimStep(vim, self.text, self.at)
        return self._taken(command.name, *span, lines=lines)

    def _span(self, command: VimCommand) -> tuple[Vim, tuple[int, int] | None, bool]:
        """Return what an operator takes: start and end, and whether that are whole lines."""
        text, at, motion, count = self.text, self.at, command.motion, command.count or 1
        if motion in ("lines", "j", "k", "down", "up", "gg", "G"):
            other: int | None = at
            if motion == "lines":
                below = vim_motions.vertical(text, at, count - 1, 0) if count > 1 else at
                other = len(text) if below is None else below
            elif motion in ("gg", "G"):
                other = self._target(command)[1]
            else:
                other = vim_motions.vertical(text, at, count if motion in ("j", "down") else -count, 0)
            if other is None:
                return self.vim, None, True
            return (
                self.vim,
                (vim_motions.line_start(text, min(at, other)), vim_motions.line_end(text, max(at, other))),
                True,
            )
        if motion in ("i", "a"):
            return self.vim, vim_motions.text_object(text, at, motion == "a", command.arg), False
        if command.name == "c" and motion in ("w", "W") and at < len(text) and not text[at].isspace():
            end = at  # what a word is to c ends with its last letter
            for step in range(count):
                single = step == 0 and self._ends_word(at, big=motion == "W")
                end = at if single else vim_motions.word_end(text, end, big=motion == "W")
            return self.vim, (at, end + 1), False
        vim, to = self._target(command)
        if to is None:
            return vim, None, False
        if motion in ("w", "W") and to > at and "\n" in text[at:to]:
            to = max(at, vim_motions.line_end(text, at)) if count == 1 else to
        start, end = min(at, to), max(at, to)
        if motion in vim_motions.INCLUSIVE and vim_motions.line_start(text, end) != vim_motions.line_end(text, end):
            end = min(len(text), end + 1)
        return vim, (start, end), False

    def _ends_word(self, at: int, *, big: bool) -> bool:
        return (
            vim_motions.word_end(self.text, at - 1, big=big) == at
            if at
            else vim_motions.word_end(" " + self.text, 0) == 1
        )

    def _taken(self, operator: str, start: int, end: int, *, lines: bool) -> VimStep:
        """Carry out an operator on what is between two places."""
        text = self.text
        kept = text[start:end]
        vim = replace(self.vim, register=kept[:_MAX_REGISTER], lines=lines, mode=VimMode.NORMAL, column=None)
        if operator == "y":
            return VimStep(vim, text, _held(text, self.at if lines and self.at >= start else start))
        if operator == "c":
            text = text[:start] + text[end:]
            return self._insert(vim, text, start)
        if lines:  # with one of the line breaks around it
            if end < len(text):
                end += 1
            elif start > 0:
                start -= 1
        text = text[:start] + text[end:]
        at = min(start, len(text))
        return VimStep(vim, text, vim_motions.first_word(text, at) if lines else _held(text, at))

    def _insert(self, vim: Vim, text: str, at: int) -> VimStep:
        return VimStep(replace(vim, mode=VimMode.INSERT, entered=(text, at), column=None), text, at)

    # Actions.

    def _action(self, command: VimCommand) -> VimStep:
        text, at, count, name = self.text, self.at, command.count or 1, command.name
        start, end = vim_motions.line_start(text, at), vim_motions.line_end(text, at)
        if name in ("u", "ctrl+r"):
            return VimStep(self.vim, text, at, VimEffect.UNDO if name == "u" else VimEffect.REDO)
        if name in ("v", "V"):
            mode = VimMode.VISUAL if name == "v" else VimMode.LINES
            return VimStep(replace(self.vim, mode=mode, anchor=at), text, at)
        if name in "iaIA":
            places = {"i": at, "a": min(at + 1, end), "I": vim_motions.first_word(text, at), "A": end}
            return self._insert(self.vim, text, places[name])
        if name == "o":
            return self._insert(self.vim, f"{text[:end]}\n{text[end:]}", end + 1)
        if name == "O":
            return self._insert(self.vim, f"{text[:start]}\n{text[start:]}", start)
        if name in ("x", "delete", "s"):
            return self._taken("c" if name == "s" else "d", at, min(end, at + count), lines=False)
        if name == "X":
            return self._taken("d", max(start, at - count), at, lines=False)
        if name in "DC":
            return self._taken(name.lower(), at, end, lines=False)
        if name in "SY":
            return self._operator(VimCommand("c" if name == "S" else "y", count, "lines"))
        if name in "pP":
            return self._put(count, before=name == "P")
        if name == "J":
            return self._joined(max(1, count - 1))
        if name == "r":
            if at + count > end:
                return VimStep(self.vim, text, at)
            return VimStep(self.vim, text[:at] + command.arg * count + text[at + count :], at + count - 1)
        swapped = text[at : min(end, at + count)].swapcase()
        return VimStep(self.vim, text[:at] + swapped + text[at + count :], _held(text, min(end, at + count)))

    def _put(self, count: int, *, before: bool) -> VimStep:
        vim, text, at = self.vim, self.text, self.at
        if not vim.register:
            return VimStep(vim, text, at)
        count = max(1, min(count, _MAX_REGISTER // len(vim.register)))
        if not vim.lines:
            place = at if before else min(at + 1, vim_motions.line_end(text, at))
            put = vim.register * count
            return VimStep(vim, text[:place] + put + text[place:], max(place, place + len(put) - 1))
        put = "\n".join([vim.register] * count)
        if before:
            place = vim_motions.line_start(text, at)
            text = f"{text[:place]}{put}\n{text[place:]}"
        else:
            place = vim_motions.line_end(text, at) + 1
            text = f"{text[: place - 1]}\n{put}{text[place - 1 :]}"
        return VimStep(vim, text, vim_motions.first_word(text, place))

    def _joined(self, count: int) -> VimStep:
        text, at = self.text, self.at
        for _ in range(count):
            end = vim_motions.line_end(text, at)
            if end == len(text):
                break
            rest = text[end + 1 :].lstrip(" \t")
            blank = "" if not rest or rest[0] in ")\n" or text[:end].endswith((" ", "\t", "\n")) or not end else " "
            text, at = text[:end] + blank + rest, end
        return VimStep(self.vim, text, _held(text, at))

    # What is marked.

    def marked(self) -> tuple[int, int]:
        """Return start and end of what is marked."""
        text, low, high = self.text, min(self.vim.anchor, self.at), max(self.vim.anchor, self.at)
        if self.vim.mode is VimMode.LINES:
            return vim_motions.line_start(text, low), vim_motions.line_end(text, high)
        return low, min(len(text), high + 1)

    def _visual(self, command: VimCommand) -> VimStep:
        vim, text, name = self.vim, self.text, command.name
        if not name:
            if command.motion in ("i", "a"):
                span = vim_motions.text_object(text, self.at, command.motion == "a", command.arg)
                if span is None or span[0] == span[1]:
                    return VimStep(vim, text, self.at)
                return VimStep(replace(vim, anchor=span[0]), text, span[1] - 1)
            return self._moved(command)
        if name in ("v", "V"):
            mode = VimMode.VISUAL if name == "v" else VimMode.LINES
            return VimStep(replace(vim, mode=VimMode.NORMAL if mode is vim.mode else mode), text, self.at)
        if name == "o":
            return VimStep(replace(vim, anchor=self.at), text, vim.anchor)
        if command.arg == "lines":
            self.vim = vim = replace(vim, mode=VimMode.LINES)
        start, end = self.marked()
        if name in ("d", "c", "y"):
            lines = vim.mode is VimMode.LINES
            step = self._taken(name, start, end, lines=lines)
            return replace(step, at=_held(text, start)) if name == "y" else step
        if name in ("p", "P"):
            put, lines = vim.register, vim.lines
            step = self._taken("d", start, end, lines=False)
            text = step.text[:start] + put + step.text[start:]
            return VimStep(step.vim, text, _held(text, max(start, start + len(put) - 1)))
        normal = replace(vim, mode=VimMode.NORMAL)
        if name == "J":
            self.vim, self.at = normal, start
            return self._joined(max(1, text.count("\n", start, end)))
        changed = text[start:end]
        if name == "r":
            changed = "".join(each if each == "\n" else command.arg for each in changed)
        else:
            changed = changed.swapcase()
        text = text[:start] + changed + text[end:]
        return VimStep(normal, text, _held(text, start))


_MAX_UNDONE = 100  # changes


class VimKeys:
    """Off until `use`. Keeps the state of the keys."""

    def __init__(self) -> None:
        self._vim: Vim | None = None
        self._at = 0  # the place of the cursor, which what is marked hides
        self._began: deque[str] = deque(maxlen=_MAX_UNDONE)  # the texts with which changes began

    def use(self, *, on: bool) -> None:
        """Edit with vim's keys from now on, or no longer."""
        self._vim = Vim() if on else None

    @property
    def on(self) -> bool:
        """Whether the person edits with vim's keys."""
        return self._vim is not None

    @property
    def commands(self) -> bool:
        """Whether a letter is a command now, and no text."""
        return self._vim is not None and self._vim.mode is not VimMode.INSERT

    @property
    def label(self) -> str:
        """The mode in a word, with the keys of a command that is not complete; "" without vim."""
        return " ".join((self._vim.mode.value, "".join(self._vim.pending))).rstrip() if self._vim is not None else ""

    def sent(self) -> None:
        """Note that the text was sent: the next one is typed."""
        if self._vim is not None:
            self._vim = replace(self._vim, mode=VimMode.INSERT, pending=(), entered=None)
            self._began.clear()

    def press(self, key: str, text: str, at: int) -> VimStep | None:
        """Take a key. Return what it has led to, None if it is no key of vim's now."""
        if self._vim is None:
            return None
        at = self._at if self._vim.mode in (VimMode.VISUAL, VimMode.LINES) else at
        step = advance(self._vim, text, min(at, len(text)), key)
        if step.effect is VimEffect.LEFT:
            return None
        if step.text != text or (step.vim.mode is VimMode.INSERT and not self._vim.entered):
            self.begins(text)
        self._vim, self._at = step.vim, step.at
        return step

    def begins(self, text: str) -> None:
        """Note that a change begins with `text`."""
        self._began.append(text)

    def undone(self, text: str) -> str | None:
        """Return the text with which the newest change began that has led to `text`; None if that is not known."""
        while self._began:
            if (began := self._began.pop()) != text:
                return began
        return None

    def marked(self, text: str) -> tuple[int, int] | None:
        """Return start and end of what is marked, None if nothing is."""
        if self._vim is None or self._vim.mode not in (VimMode.VISUAL, VimMode.LINES):
            return None
        return _Run(self._vim, text, min(self._at, len(text))).marked()


def changed_part(before: str, after: str) -> tuple[int, int]:
    """Return how many characters at the start, and how many at the end, two texts have in common."""
    most = min(len(before), len(after))
    start = next((at for at in range(most) if before[at] != after[at]), most)
    end = next((at for at in range(most - start) if before[-1 - at] != after[-1 - at]), most - start)
    return start, end
