"""The input: a text area with history, completion, vim's keys, pastes and files that go along."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from ccb.tunnel.plain_text import neutralise, one_line

from ...config.prompt_history import PromptRecall, PromptStore
from ...terminal.clipboard import NoImage, clipboard_image
from ...terminal.keymap import Keymap
from ...terminal.stdio import in_thread
from .attachments import AttachedFile, Attachments, NotAttached, dropped_files, image_attachment, may_name_files
from .vim import Vim, VimEffect, changed_part

_MAX_READ_S = 5.0  # seconds for reading what was dropped; a path on a file system that hangs stays text
_INVITATION = "Ask for a change, or /help"
_ACTS = ("steer", "send", "paste", "newline", "editor")  # the ids of keys
_ARROWS = {"ctrl+p": "up", "ctrl+n": "down"}  # the same keys, as shells have them
_CUTS_BEFORE, _CUTS_AFTER = ("ctrl+w", "ctrl+u"), ("ctrl+k", "alt+d")  # what they cut, Ctrl+Y inserts


class Composer(TextArea):
    """A text area of one to ten lines. It can be locked, and single letters can be shortcuts while it is empty."""

    DEFAULT_CSS = """
    Composer {
        height: auto; max-height: 10; min-height: 3;
        border: round $border-blurred; background: $background; padding: 0 1;
        &:focus { border: round $accent; background-tint: $foreground 0%; }
        .text-area--cursor-line { background: transparent; }
        .text-area--placeholder { color: $foreground 70%; }
        &:ansi .text-area--placeholder { color: $foreground; text-style: dim; }
        &:ansi .text-area--cursor { text-style: reverse; }
        &.locked, &.locked:focus { border: round $border-blurred; color: $foreground 70%; }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+underscore", "undo", "Undo", show=False, id="undo"),  # Ctrl+Z stops ccb, as any program
        Binding("alt+b", "cursor_word_left", show=False),
        Binding("alt+f", "cursor_word_right", show=False),
        Binding("alt+d", "delete_word_right", show=False),
        # Also here, so that it wins over what a text area does with the key that the person may choose.
        Binding("escape", "app.on_session('interrupt')", show=False, id="interrupt"),
    ]

    @dataclass
    class Submitted(Message):
        """The person sends `text`, before the waiting prompts `before`. `steers`: the agent gets it while it works."""

        text: str
        before: tuple[str, ...] = ()
        steers: bool = False

    class EditorWanted(Message):
        """The person wants to write the text in their own editor."""

    def __init__(self, keymap: Keymap) -> None:
        super().__init__(soft_wrap=True, tab_behavior="focus", highlight_cursor_line=False, id="composer")
        self.cursor_blink = False  # it would draw twice a second while nothing happens
        self.placeholder = _INVITATION
        self.keymap = keymap
        self.recall = PromptRecall()
        self.shortcuts = ShortcutLetters()
        self.last_key = 0.0
        self.around = Surroundings()
        self.vim = Vim()
        self.attachments = Attachments()
        self._kept = KeptText()

    def set_locked(self, why: str) -> None:
        """Take no text, and show why; with an empty `why` take it again. What is typed already stays."""
        if why == (self.placeholder if self.read_only else ""):
            return
        self.read_only = bool(why)
        self.show_cursor = not why
        self.set_class(bool(why), "locked")
        self.placeholder = why or _INVITATION

    def is_shortcut(self, key: str) -> bool:
        return key in self.shortcuts.active and (self.read_only or not self.text)

    async def _on_key(self, event: events.Key) -> None:
        if self.around.answers(event):
            event.prevent_default()
            event.stop()
            return
        self.last_key = time.monotonic()
        letter = self.shortcuts.begun_word(self.last_key, printable=event.is_printable)
        if letter and not self.text:
            self.insert(letter)
        before, key = self._kept.key, event.key
        if key in _ARROWS and not (self.keymap.uses(key) or self.vim.commands):
            key = _ARROWS[key]
        taken = self._is_shortcut_key(event) or self._is_for_completion(key) or self._vim_took(event)
        if taken or self._acted(key) or await self._bound_action(key, before) or self._is_unbound(event):
            event.prevent_default()
            event.stop()
            return
        await super()._on_key(event)
        if self.text == event.character == "?":
            self.around.question_mark()

    async def _bound_action(self, key: str, before: str) -> bool:
        """Do what a key of the text area does, such as Backspace; Textual would let the next letters overtake it.
        `before` is the key before it: cuts that follow each other are one."""
        bound = [] if self.keymap.uses(key) else self._bindings.key_to_bindings.get(key, [])
        own = next((each for each in bound if not each.id), None)  # the settings change the keys of ids
        text = self.text
        if own is None or not await self.app.run_action(own.action, self):
            return False
        if key in _CUTS_BEFORE + _CUTS_AFTER and text != self.text:
            at, count = self.cursor_at, len(text) - len(self.text)
            cut, kept = text[at : at + count], self._kept.cut * (before in _CUTS_BEFORE + _CUTS_AFTER)
            self._kept.cut = cut + kept if key in _CUTS_BEFORE else kept + cut
        return True

    def _is_unbound(self, event: events.Key) -> bool:
        """Whether a key with Alt means nothing. Vim's keys may follow Esc so fast that both look like one with Alt."""
        return event.key.startswith("alt+") and event.is_printable and not self.vim.on

    def _acted(self, key: str) -> bool:
        before, self._kept.key = self._kept.key, key
        act = next((each for each in _ACTS if self.keymap.has(each, key)), "")
        if key == "ctrl+e" and before == "ctrl+x":
            act = "editor"
        match act:
            case "editor":
                if not self.read_only:
                    self.post_message(self.EditorWanted())
            case "paste" if not self.read_only:
                self.paste_image()
            case "newline":
                self.type("\n")
            case "send":
                self._submit()
            case "steer":
                self._steer()
            case _:
                return self._edited(key)
        return True

    def _edited(self, key: str) -> bool:
        """Do what a key means that no action of the keymap has taken."""
        if key == "backspace":
            return self._remove_placeholder()
        if self.keymap.uses(key):
            return self._handle_arrow(key)
        if key == "ctrl+y":
            self.type(self._kept.cut)
            return True
        # Ctrl+X may begin Ctrl+X Ctrl+E; without a selection there is nothing to cut
        return (key == "ctrl+x" and self.selection.is_empty) or self._handle_arrow(key)

    def _is_shortcut_key(self, event: events.Key) -> bool:
        if event.character is None or not self.is_shortcut(event.character):
            return False
        typed = not (self.read_only or self.vim.commands)
        self.shortcuts.pressed(event.character, self.last_key, may_begin_word=typed)
        self.around.shortcut()
        return True

    def _is_for_completion(self, key: str) -> bool:
        if not self.vim.commands and self.keymap.has("history", key) and self.around.completes("history"):
            return True
        return (key in ("enter", "up", "down", "escape") or (not self.text and key != "tab")) and self.around.completes(
            key
        )

    def _vim_took(self, event: events.Key) -> bool:
        if self.read_only or not self.vim.on:
            return False
        key = event.character if event.is_printable and event.character not in (None, " ") else event.key
        before = self.text
        vim, effect = self.vim, self.vim.press(before, self.cursor_at, key or "")
        if effect is VimEffect.LEFT:
            return vim.commands and event.is_printable
        if effect is VimEffect.UNDO:
            self._undo_change()
        elif effect is VimEffect.REDO:
            self.redo()
        elif effect in (VimEffect.EARLIER, VimEffect.LATER):
            self._recall(-1 if effect is VimEffect.EARLIER else 1)
        else:
            self.history.checkpoint()  # what is typed next is another change
            if vim.text != before:
                start, end = changed_part(before, vim.text)
                self.put(vim.text[start : len(vim.text) - end], start, len(before) - end)
            self.selection = Selection(*map(self._location, vim.marked()))
        return True

    def _undo_change(self) -> None:
        """Undo a change of vim's: it may be more than one step of the text area, as `cw` with what is typed then."""
        began, before = self.vim.undone(self.text), None
        self.undo()
        while began is not None and self.text not in (began, before):
            before = self.text
            self.undo()

    def _handle_arrow(self, key: str) -> bool:
        if key == "up" and self.navigator.is_first_wrapped_line(self.cursor_location):
            return (not self.text and self.around.take_back()) or self._recall(-1)
        if key == "down" and self.navigator.is_last_wrapped_line(self.cursor_location):
            return self._recall(1)
        return False

    @property
    def whole_text(self) -> str:
        return self.attachments.expanded(self.text)

    def rewritten(self, text: str) -> None:
        self.last_key = time.monotonic()
        self.text = _harmless(text)
        self.move_cursor(self.document.end)

    def _remove_placeholder(self) -> bool:
        at = self.cursor_at
        may = self.selection.is_empty and not self.read_only
        placeholder = self.attachments.placeholder_before(self.text[:at]) if may else ""
        if placeholder:
            self.put("", at - len(placeholder), at)
        return bool(placeholder)

    def remember(self, keeper: PromptStore, prompts: Sequence[str], draft: str) -> None:
        """Go on with the prompts of earlier runs, and with what was begun then. `keeper` keeps those of this run."""
        self.recall.continue_from(keeper, [neutralise(each) for each in prompts])
        if draft and not self.text and not self.read_only:
            self.text = neutralise(draft)
            self.move_cursor(self.document.end)

    def on_unmount(self) -> None:
        unsent = "\n".join(filter(None, (self._kept.aside, self.text)))
        self.recall.keep_draft(self.attachments.with_paths(self.attachments.expanded(unsent).rstrip()))

    def give_back(self, text: str) -> None:
        """Put a prompt that was not sent in front of what the person has typed since."""
        self.text = f"{text}\n{self.text}" if self.text else text
        self.move_cursor(self.document.end)

    def edit_again(self, text: str, before: Sequence[str]) -> None:
        self.give_back(text)
        self.recall.before = tuple(before)
        self.recall.keep_draft(self.attachments.with_paths(text))

    def on_text_area_changed(self) -> None:
        if not self.text:
            self.recall.before = ()
        meant = {"!": "A shell command on", "#": "A note for every agent on"}.get(self.text[:1])
        self.border_title = Content(f"{meant} {one_line(self.around.host)}" if meant else "")

    async def _on_paste(self, event: events.Paste) -> None:
        self.last_key = time.monotonic()
        event.prevent_default()
        event.stop()
        if not self.read_only:
            await self._pasted_text(event.text)

    async def _pasted_text(self, text: str) -> None:
        taken = await self._taken(text) if may_name_files(text) else None
        if self.read_only:
            return
        self.type(self.attachments.shortened(_harmless(text)))
        if taken is not None and taken.shown:
            end = self.cursor_at
            self.history.checkpoint()  # so that undo gives the path back
            self.put(f"{taken.shown} ", end - len(_harmless(text)), end)
        if taken is not None:
            self.around.says(taken.said)

    async def _taken(self, text: str) -> AttachedFile | None:
        """Return what became of the files that a text names, None if it names none. A slow thread counts as none."""
        try:
            async with asyncio.timeout(_MAX_READ_S):
                files = await in_thread(lambda: dropped_files(text))
        except TimeoutError:
            return AttachedFile("", f"it was not read within {_MAX_READ_S:.0f} seconds: the path stays text")
        except NotAttached as error:
            return AttachedFile("", str(error))
        return self.attachments.take(files, self.text) if files and not self.read_only else None

    @work(exclusive=True, group="clipboard")
    async def paste_image(self) -> None:
        """Let the image in the clipboard go along with the prompt. Without one, insert what was copied in ccb."""
        try:
            data = await self.around.clipboard_image()
        except NoImage as error:
            self.type(self.app.clipboard)
            if not self.app.clipboard:
                self.around.says(str(error))
            return
        try:
            image = await in_thread(lambda: image_attachment(data, "the image in the clipboard", None))
        except NotAttached as error:
            self.around.says(str(error))
            return
        if self.read_only:
            return
        taken = self.attachments.take([image], self.text)
        self.type(f"{taken.shown} " if taken.shown else "")
        self.around.says(taken.said)

    def type(self, text: str) -> None:
        """Insert text at the cursor. Control characters in it are made visible."""
        if self.read_only:
            return
        self.last_key = time.monotonic()
        result = self.replace(_harmless(text), *self.selection)
        self.move_cursor(result.end_location)

    @property
    def cursor_at(self) -> int:
        row, column = self.cursor_location
        return sum(len(line) + 1 for line in self.text.split("\n")[:row]) + column

    def put(self, text: str, start: int, end: int, back: int = 0) -> None:
        """Put `text` in place of the characters from `start` to `end`, and the cursor `back` before its end."""
        self.replace(text, self._location(start), self._location(end))
        self.move_cursor(self._location(start + len(text) - back))

    def _location(self, at: int) -> tuple[int, int]:
        before = self.text[:at]
        return before.count("\n"), at - (before.rfind("\n") + 1)

    def _steer(self) -> None:
        """Send the text to the working agent. While it is idle, lay it aside, or take back what was laid aside."""
        if not self.around.works() and not self.read_only and (self.text or self._kept.aside):
            self.text, self._kept.aside = self._kept.aside, self.text
            self.move_cursor(self.document.end)
            self.around.says(f"laid aside: {self.keymap.name('steer')} brings it back" if self._kept.aside else "")
        else:
            self._submit(steers=True)

    def _submit(self, *, steers: bool = False) -> None:
        at, text = self.cursor_at, self.whole_text.rstrip()
        if self.read_only:
            self.around.refused()
            return
        if not steers and self.selection.is_empty and self.text[:at].endswith("\\"):
            self.put("\n", at - 1, at)
            return
        if not text:
            if steers:
                self.around.steer_next()
            return
        self.vim.sent()
        self.recall.add(text, kept=self.attachments.with_paths(text))
        self.attachments.submitted(text)
        before, self.recall.before = self.recall.before, ()
        self.text = ""
        self.post_message(self.Submitted(text, before, steers))

    def clear_to_cut(self) -> None:
        """Clear the input; Ctrl+Y brings the text back."""
        self._kept.cut, self.text = self.text, ""

    def _recall(self, step: int) -> bool:
        text = None if self.read_only else self.recall.step(step, self.text)
        if text is None:
            return False
        self.text = text
        self.move_cursor(self.document.end)
        return True


def _harmless(text: str) -> str:
    return neutralise(text.replace("\r\n", "\n").replace("\r", "\n"))


@dataclass
class KeptText:
    """What the input remembers: the last key, the text that was cut last, and the text that is laid aside."""

    key: str = ""
    cut: str = ""
    aside: str = ""


_TYPING_S = 0.4  # the longest time between two keys of a person who is typing


class ShortcutLetters:
    """Which letters are shortcuts now, and the newest one that was pressed. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.active: frozenset[str] = frozenset()
        self._letter = ""  # the last key, if it was a shortcut that may be the first letter of a word
        self._pressed_at = 0.0

    def pressed(self, letter: str, at: float, *, may_begin_word: bool) -> None:
        self._letter, self._pressed_at = letter if may_begin_word else "", at

    def begun_word(self, at: float, *, printable: bool) -> str:
        """Take the next key. Return the shortcut before it if that was the first letter of a word, else ""."""
        letter, self._letter = self._letter, ""
        return letter if printable and at - self._pressed_at < _TYPING_S else ""


@dataclass
class Surroundings:
    """What the composer calls. `completes`, `answers` and `take_back` return whether they did something;
    `works` returns whether the agent works. `question_mark`: a single one is all that is typed. `clipboard_image` may
    raise NoImage; `says` shows a short answer."""

    host: str = ""
    completes: Callable[[str], bool] = lambda key: False
    answers: Callable[[events.Key], bool] = lambda event: False
    shortcut: Callable[[], object] = lambda: None
    refused: Callable[[], object] = lambda: None
    take_back: Callable[[], bool] = lambda: False
    steer_next: Callable[[], object] = lambda: None
    works: Callable[[], bool] = lambda: True
    question_mark: Callable[[], object] = lambda: None
    says: Callable[[str], None] = lambda text: None
    clipboard_image: Callable[[], Awaitable[bytes]] = lambda: clipboard_image(os.environ)
