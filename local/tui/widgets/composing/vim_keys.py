"""Vim's keys in the composer, if the person wants them: which key was a command, and what it has led to."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from ...vim.machine import Vim, VimEffect, VimMode, VimStep, advance, marked

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
        return marked(self._vim, text, min(self._at, len(text)))


def changed_part(before: str, after: str) -> tuple[int, int]:
    """Return how many characters at the start, and how many at the end, two texts have in common."""
    most = min(len(before), len(after))
    start = next((at for at in range(most) if before[at] != after[at]), most)
    end = next((at for at in range(most - start) if before[-1 - at] != after[-1 - at]), most - start)
    return start, end
