"""How the terminal shows images: asked of the terminal itself, never guessed from anything that a host says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum

from ccb.tunnel.wire.dataclass import dataclass

from .answers import AnswerKind, TerminalAnswer
from .background import NO_ANSWER

_KITTY_ASKED = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"
_NAME_ASKED = "\x1b[>q"
CELL_ASKED = "\x1b[16t"
"""Asks for the size of a character."""

_ATTRIBUTES_ASKED = "\x1b[c"
_KITTY_ANSWERED = re.compile(r"i=31(?:,[^;]*)?;OK")
_SIXEL = "4"  # among the attributes
_KITTY = re.compile(r"kitty\((\d+)\.(\d+)")
_PLACEHOLDERS_SINCE = (0, 28)  # of kitty
_ITERM2_NAMES = ("iTerm2", "WezTerm", "mintty")
_MIN_CELL, _MAX_CELL = 4, 100  # pixels


class Protocol(Enum):
    """How an image gets on the screen. BLOCKS are characters with two colours, which every terminal shows."""

    KITTY = "kitty"
    ITERM2 = "iterm2"
    SIXEL = "sixel"
    BLOCKS = "blocks"


@dataclass(frozen=True)
class Graphics:
    """What the terminal has said of itself so far. `cell` are width and height of a character in pixels, None if
    unknown. `tmux`: what is written goes through tmux, whose client calls itself `name`."""

    tmux: bool = False
    name: str = ""
    kitty: bool = False
    sixel: bool = False
    cell: tuple[int, int] | None = None
    complete: bool = False

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Graphics:
        """Return what is known before the terminal is asked."""
        return cls(tmux=bool(environ.get("TMUX")))

    def told(self, answer: TerminalAnswer) -> Graphics:
        """Return what is known with one more answer. The terminal answers in order, and the attributes were asked for
        last; tmux gives its own attributes before its client has answered."""
        if answer.kind is AnswerKind.KITTY_GRAPHICS:
            return replace(self, kitty=_KITTY_ANSWERED.fullmatch(answer.text) is not None)
        if answer.kind is AnswerKind.NAME:
            return self if self.tmux else replace(self, name=answer.text)
        if answer.kind is AnswerKind.CELL:
            height, width = (int(part) for part in answer.text.split(";"))
            usable = _MIN_CELL <= width <= _MAX_CELL and _MIN_CELL <= height <= _MAX_CELL
            return replace(self, cell=(width, height)) if usable else self
        if answer.kind is AnswerKind.ATTRIBUTES:
            return replace(self, sixel=_SIXEL in answer.text.split(";")[1:], complete=not self.tmux)
        return self

    def inside(self, name: str) -> Graphics:
        """Return what is known once tmux has named the terminal around it."""
        return replace(self, name=name)

    def best(self, *, colours: bool) -> Protocol | None:
        """Return the best way to show images, or None. `colours`: the terminal has 256 or more."""
        if self.kitty and self._has_placeholders:
            return Protocol.KITTY
        if not self.tmux and self.name.startswith(_ITERM2_NAMES):
            return Protocol.ITERM2
        if self.sixel and self.cell is not None:
            return Protocol.SIXEL
        return Protocol.BLOCKS if colours else None

    @property
    def _has_placeholders(self) -> bool:
        """Whether images can be cells of text. Other terminals that know kitty's images have no such cells."""
        version = _KITTY.match(self.name)
        if version is not None:
            return (int(version[1]), int(version[2])) >= _PLACEHOLDERS_SINCE
        return self.name.startswith("ghostty")


def can_be_asked(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal ignores what it does not know. GNU screen passes questions on to nobody."""
    term = environ.get("TERM", "")
    return term not in NO_ANSWER and (bool(environ.get("TMUX")) or not term.startswith("screen"))


def questions(*, tmux: bool) -> str:
    """Return what asks the terminal about images. Each question is ignored by a terminal that does not know it."""
    kitty = through_tmux(_KITTY_ASKED) if tmux else _KITTY_ASKED
    return f"{kitty}{'' if tmux else _NAME_ASKED}{CELL_ASKED}{_ATTRIBUTES_ASKED}"


def through_tmux(sequence: str) -> str:
    """Return a sequence for the terminal around tmux. tmux drops it unless its option `allow-passthrough` is on."""
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
