"""Where the person types: Enter sends, history at the edges."""

from __future__ import annotations

import time
from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from ccb.tunnel.plain_text import neutralise

_MAX_HISTORY = 1_000
_INVITATION = "Ask for a change, or /help"
_TYPING_S = 0.4  # between two keys of somebody who types


class Composer(TextArea):
    """A text area of one to ten lines."""

    DEFAULT_CSS = """
    Composer {
        height: auto; max-height: 10; min-height: 3;
        border: round $border-blurred; background: $background; padding: 0 1;
        &:focus { border: round $accent; background-tint: $foreground 0%; }
        .text-area--cursor-line { background: transparent; }
        .text-area--placeholder { color: $foreground 70%; }
        &.locked, &.locked:focus { border: round $border-blurred; color: $foreground 70%; }
    }
    """

    @dataclass
    class Sent(Message):
        """The person pressed Enter on `text`."""

        text: str

    @dataclass
    class Shortcut(Message):
        """A letter of `shortcuts` was pressed where it is no text."""

        key: str

    @dataclass
    class Refused(Message):
        """The person pressed Enter while the composer is locked."""

    def __init__(self) -> None:
        super().__init__(soft_wrap=True, tab_behavior="focus", highlight_cursor_line=False, id="composer")
        self._invitation = self.placeholder = _INVITATION
        self.sent: list[str] = []
        self.last_key = 0.0
        self._place = 0
        self._draft = ""
        self.shortcuts: frozenset[str] = frozenset()
        self._eaten = ""
        self._closed_for = ""

    def close_for(self, why: str) -> None:
        """Take no text, and say why; with an empty `why` take it again. What is typed already stays."""
        if why == self._closed_for:
            return
        self._closed_for = why
        self.read_only = bool(why)
        self.show_cursor = not why
        self.set_class(bool(why), "locked")
        self.placeholder = why or self._invitation

    def invite(self, text: str) -> None:
        """Say `text` where nothing is typed."""
        self._invitation = text
        if not self._closed_for:
            self.placeholder = text

    def takes(self, key: str) -> bool:
        """Whether a letter is a shortcut now, and not text."""
        return key in self.shortcuts and (self.read_only or not self.text)

    async def _on_key(self, event: events.Key) -> None:
        before, self.last_key = self.last_key, time.monotonic()
        eaten, self._eaten = self._eaten, ""
        if eaten and event.is_printable and not self.text and self.last_key - before < _TYPING_S:
            self.insert(eaten)  # it was the first letter of a word
        if event.character is not None and self.takes(event.character):
            event.prevent_default()
            event.stop()
            self._eaten = "" if self.read_only else event.character
            self.post_message(self.Shortcut(event.character))
        elif event.key == "enter":
            event.prevent_default()
            event.stop()
            self._send()
        elif event.key in ("ctrl+j", "shift+enter"):
            event.prevent_default()
            event.stop()
            self.insert("\n")
        elif (
            event.key == "up" and self.navigator.is_first_wrapped_line(self.cursor_location) and self._recall(-1)
        ) or (event.key == "down" and self.navigator.is_last_wrapped_line(self.cursor_location) and self._recall(1)):
            event.prevent_default()
            event.stop()
        else:
            await super()._on_key(event)

    def give_back(self, text: str) -> None:
        """Put a prompt that was not sent in front of what was typed since."""
        self.text = f"{text}\n{self.text}" if self.text else text
        self.move_cursor(self.document.end)

    async def _on_paste(self, event: events.Paste) -> None:
        self.last_key = time.monotonic()
        event.prevent_default()
        event.stop()
        self.type(event.text)

    def type(self, text: str) -> None:
        """Put text where the cursor is; control characters in it are made harmless."""
        if self.read_only:
            return
        self.last_key = time.monotonic()
        result = self.replace(neutralise(text.replace("\r\n", "\n").replace("\r", "\n")), *self.selection)
        self.move_cursor(result.end_location)

    def rest(self) -> None:
        """Start the quiet time anew, as if a key had been pressed."""
        self.last_key = time.monotonic()

    def _send(self) -> None:
        text = self.text.strip()
        if self.read_only:
            self.post_message(self.Refused())
            return
        if not text:
            return
        if not self.sent or self.sent[-1] != text:
            self.sent.append(text)
            del self.sent[:-_MAX_HISTORY]
        self._place = len(self.sent)
        self.text = ""
        self.post_message(self.Sent(text))

    def _recall(self, step: int) -> bool:
        """Show the previous or next prompt; the draft is kept at the end. False when there is none."""
        place = self._place + step
        if self.read_only or not 0 <= place <= len(self.sent):
            return False
        if self._place == len(self.sent):
            self._draft = self.text
        self._place = place
        self.text = self._draft if place == len(self.sent) else self.sent[place]
        self.move_cursor(self.document.end)
        return True

    def quiet_for(self) -> float:
        """Seconds since the last key."""
        return time.monotonic() - self.last_key
