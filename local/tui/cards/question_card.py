"""Focus and keys of every card.

A card listens only after the person has gone to it: with Tab, Alt+A, a click, or the character of an answer at an empty
input. A character only marks an answer, which Enter gives, and text goes to the composer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import ControlRequest

from ...terminal.keymap import BURST_S, Keymap
from ..rendering.themes import Palette
from ..rendering.untrusted_text import escaped_name
from ..widgets.painting import call_once_after
from .answer_keys import AnswerKeys, Enter
from .card_subject import ApprovalSubject

_MAX_SHARE = 0.7  # of the screen
_OTHER_LINES = 3  # lines of transcript, composer and status line, which stay on a small screen
_BORDER_LINES = 2  # of the composer on a screen that is not small
_FAR = 10_000_000  # lines
_WIDE = 60  # cells of a screen whose cards have room for another key in their border
_TOO_FAST = "The keys came all at once, as pasted text does: press them again."
BUTTON, MARKED = "button", "marked button"  # the styles of an answer
ANSWER_KEY = "answer key"  # in the style of what is shown of an answer
_SCROLL_KEYS = {"home": -_FAR, "end": _FAR}
_WALKS = {"next-question": 1, "previous-question": -1}
STEPS: Mapping[str, int] = {"left": -1, "up": -1, "right": 1, "down": 1}
"""The arrow keys, and the direction in which each one goes."""


@dataclass(frozen=True)
class CardAnswer:
    """The person's answer. `response` is the payload of the public answer to the request."""

    request_id: str
    response: Json


@dataclass(frozen=True)
class Asked:
    """A question, the place where its call would run, and the colours and keys of its card. `typed` takes text that is
    typed at the card and no answer."""

    request: ControlRequest
    place: str
    palette: Palette
    keymap: Keymap
    typed: Callable[[str], object]


class _Choices(Static):
    ALLOW_SELECT = False  # a click that gives the marked answer is a double click, which would copy the text


class QuestionCard(Vertical, can_focus=True):
    """Shows one open question, `subject`. While the person types into `field`, the card has the class `typing`."""

    DEFAULT_CSS = """
    QuestionCard { height: auto; border: round $warning; padding: 0 1; background: $background; }
    QuestionCard:focus, QuestionCard:focus-within { border: heavy $warning; }
    QuestionCard.settling { border: round $border-blurred; }
    QuestionCard Static { height: auto; }
    QuestionCard Input {
        border: none; height: 1; padding: 0; background: $surface; display: none;
        &:focus { border: none; background-tint: $foreground 0%; }
    }
    QuestionCard.typing Input { display: block; }
    QuestionCard.typing .choices { display: none; }
    """
    ASKS_FOR: ClassVar[str] = "question"
    """What the status line says to wait while the person is elsewhere."""

    MARKS: str = ""
    """The characters that mark an answer."""

    STACKS: ClassVar[bool] = False
    """Whether answers that are too wide for a line stand one below the other, if the screen is high enough."""

    @dataclass
    class Answered(Message):
        """The person has answered."""

        answer: CardAnswer

    @dataclass
    class Walked(Message):
        """The person wants to see the next question (`by` is 1) or the one before (-1)."""

        by: int

    class Left(Message):
        """The person goes back to the composer."""

    def __init__(self, asked: Asked, subject: ApprovalSubject) -> None:
        super().__init__(id="approval")
        self.asked = asked
        self.subject = subject
        self.field = Input(compact=True)
        self.settling = False  # it takes no focus yet, because it has just taken the place of another
        self._driving_and_note = (True, "")
        self.answered = False
        self._waiting = ""
        self._problem = ""
        self._choices = _Choices(classes="choices")
        self._titles = ("", "")
        self._pressed: events.MouseDown | None = None
        self._keys = AnswerKeys()

    # What a kind of card adds.

    def title(self) -> str:
        return escaped_name(self.asked.request.tool_name)

    def hint(self) -> str:
        return ""

    def details(self, *, more: bool) -> str:
        """Return what the key for details does now; `more`: there is more to read below."""
        return "whole screen" if more and not self.has_class("-whole") else ""

    def compose(self) -> ComposeResult:
        self.show_titles()
        yield self.subject
        yield from self.below()

    def below(self) -> list[Widget]:
        return [self._choices, self.field]

    def entries(self) -> list[tuple[str, str, str]]:
        """Return what is possible now: a key, what it does, and the style of that, which may be `BUTTON`."""
        raise NotImplementedError

    @property
    def quiet(self) -> str:
        """The style of what only counts once the person has come to the card."""
        return "" if self.has_focus else self.asked.palette.dim

    def mark(self, char: str) -> None:
        """Mark the answer of a character; "" unmarks all, because the characters so far were text."""

    @property
    def first_mark(self) -> str:
        """The character of the answer that Tab marks, "" if it marks none."""
        return ""

    @property
    def is_marked(self) -> bool:
        return True

    @property
    def space_marks(self) -> bool:
        return False

    def space(self) -> None:
        self.subject.read_on()

    @property
    def wants_text(self) -> bool:
        """Whether the marked answer is one in the person's own words."""
        return False

    def text_begins(self, char: str) -> None:
        """The person types the first character of such an answer."""

    def enter(self) -> None:
        """Give the marked answer."""

    def clicked(self, event: events.MouseDown) -> bool:
        """Mark the answer that is clicked on. Return whether it was marked before: then the click gives it."""
        return False

    def escape(self) -> None:
        self.post_message(self.Left())

    def step(self, key: str) -> None:
        """The person pressed an arrow key that does not scroll."""

    def field_given(self, text: str) -> None:
        """The person has typed a text into the field."""

    # The screen.

    def on_mount(self) -> None:
        self.watch(self.subject, "scroll_y", self.show_titles, init=False)
        self.call_after_refresh(self.fit)

    @property
    def reason(self) -> str:
        """What the person has typed into the card and not given yet."""
        return "" if self.answered else self.field.value

    def show_choices(self) -> None:
        """Show what is possible now, or why nothing is, and what happens to an answer."""
        (driving, note), palette = self._driving_and_note, self.asked.palette
        if not driving:
            self._choices.update(Text(note, style=palette.dim))
            return
        entries = self.entries()
        parts = [self._entry(*each, palette) for each in entries]
        text = Text("  ").join(parts)
        may_stack = self.STACKS and self.is_attached and self.screen.has_class("-tall")
        if may_stack and text.cell_len > self._choices.content_size.width:
            answers = [part for part, (*_, style) in zip(parts, entries, strict=True) if style in (BUTTON, MARKED)]
            others = Text("  ").join(part for part in parts if part not in answers)
            text = Text("\n").join([*answers, others])
        for warning in filter(None, (self._problem, note)):
            text.append(f"\n{warning}", style=f"not bold {palette.warn}")
        self._choices.update(text)

    def _entry(self, key: str, does: str, style: str, palette: Palette) -> Text:
        """Return what is possible in one text: an answer looks like a button."""
        if style != BUTTON and style != MARKED:
            return Text.assemble((key, f"bold {palette.accent}"), f" {does}" if key else does, style=style)
        if style == MARKED:
            text = Text(f" {key} {does} ", "bold reverse")
        else:
            weight, surface = "bold " if self.has_focus else "", palette.surface
            text = Text.assemble((f" {key}", f"bold {palette.accent}"), f" {does} ", style=f"{weight}on {surface}")
        text.apply_meta({ANSWER_KEY: key})
        return text

    def more_waiting(self, count: int, covered: int = 0) -> None:
        self._waiting = f"{count} more waiting: {self.asked.keymap.name('next-question')}" if count else ""
        self.show_titles()

    @property
    def grants_suggestion(self) -> bool:
        return False

    def show_titles(self) -> None:
        """Show who asks and the host, whether there is more to read below, and the number of waiting questions."""
        title = f"{self.title()} on {self.asked.place}" if self.asked.place else self.title()
        below = self.subject.max_scroll_y - round(self.subject.scroll_y) if self.is_attached else 0
        more = f"↓ {below:,} more line{'s' if below != 1 else ''}" if below > 0 else ""
        short = self.is_attached and self.screen.has_class("-short")  # such a card has no lower border
        title = f"{more} · {title}" if more and short else title
        wide = self.is_attached and self.app.size.width >= _WIDE
        does = self.details(more=bool(more)) if wide else ""
        details = f"{self.asked.keymap.name('details')} {does}" if does else ""
        said: tuple[str, ...] = (self.hint(), "" if short else more, details, self._waiting)
        if self.has_class("typing") and self.field.value:
            said = (self.hint(), self.field.placeholder)  # which a text covers
        subtitle = " · ".join(filter(None, said))
        if (title, subtitle) != self._titles:  # whoever sets a title paints the whole card; a tick comes here, too
            self._titles = (title, subtitle)
            self.border_title, self.border_subtitle = Content(title), Content(subtitle)

    def set_situation(self, *, driving: bool, note: str) -> None:
        """Set whether the person may answer here, and a note about what happens to an answer now."""
        if (driving, note) == self._driving_and_note:
            return
        self._driving_and_note = (driving, note)
        self.let_settle(self.settling)
        if not driving:
            self.remove_class("typing")
        if self.is_attached:
            self.fit()

    def let_settle(self, settling: bool) -> None:
        self.settling = settling
        self.set_class(settling, "settling")
        self.can_focus = self._driving_and_note[0] and not settling

    def come(self, marks: str = "", text: str = "", *, marks_first: bool = False) -> None:
        """Give the card the focus, and mark the answers of characters, or else the first one. `text` are those of them
        that may begin a text."""
        self._keys.led_by = (marks, text, marks_first)
        if self.has_focus:
            self._arrive()
        else:
            self.focus()

    def _arrive(self) -> None:
        (marks, text, first), self._keys.led_by = self._keys.led_by, ("", "", False)
        self._keys.begin(time.monotonic(), text)
        for char in marks or (self.first_mark if first else ""):
            self.mark(char)

    def fit(self) -> None:
        """Limit the height of the subject, so that the answers fit on the screen."""
        if not self.is_attached:
            return
        self.show_choices()
        below = self._lines_below()
        height = self.app.size.height
        room = height - _OTHER_LINES
        if self.screen.has_class("-tall"):
            room = room - _BORDER_LINES if self.has_class("-whole") else int(height * _MAX_SHARE)
        self.subject.limit(room - self.gutter.height - below)
        self.call_after_refresh(self._fit_again, below)

    def _lines_below(self) -> int:
        return sum(each.size.height for each in self.below() if each.display)

    def _fit_again(self, below: int) -> None:
        if self.is_attached and self._lines_below() != below:
            self.fit()

    def toggle_whole(self) -> None:
        self.toggle_class("-whole")
        self.fit()
        self.show_titles()

    def on_resize(self) -> None:
        self.call_after_refresh(self.fit)

    def on_approval_subject_rows_seen(self) -> None:
        self.show_choices()

    def watch_has_focus(self, _has_focus: bool) -> None:
        super().watch_has_focus(_has_focus)
        self._keys.enter_waits = False
        if _has_focus:
            self._arrive()
        if self.is_attached:
            self.fit()

    def on_focus(self) -> None:
        if self.has_class("typing"):
            self.typed_into().focus()

    # Keys.

    def typed_into(self) -> Widget:
        return self.field

    def ask_for_text(self, placeholder: str, value: str = "", *, selected: bool = True) -> None:
        self.field.select_on_focus = selected
        self.field.placeholder = placeholder
        self.field.value = value
        self.add_class("typing")
        self.show_titles()
        self.field.focus()

    def end_of_text(self) -> None:
        self.remove_class("typing")
        self.field.value = ""
        self.show_titles()
        self.focus()

    def on_key(self, event: events.Key) -> None:
        if self.has_focus and self._keys.waited(event.time) and not self.answered:
            self.enter()  # which may begin a text, to which this key belongs
        if self.has_class("typing"):
            if event.key == "escape":
                event.stop()
                self.end_of_text()
            elif self.has_focus and event.is_printable and event.character:  # the field gets the focus a moment later
                event.stop()
                self.field.insert_text_at_cursor(event.character)
            return
        if not self.has_focus:
            return
        if event.is_printable and event.character:
            self._character(event.character, event.time)
        elif not self._other_key(event):
            return
        event.stop()
        event.prevent_default()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._pressed = event  # the answers may move when the card gets the focus, before the click is complete

    def on_click(self) -> None:
        pressed, self._pressed = self._pressed, None
        if pressed is not None and self.has_focus and not self.answered and not self.has_class("typing"):
            self._keys.release()
            if self.clicked(pressed):
                self.enter()

    def _enter_waited(self) -> None:
        if self._keys.enter_waits:
            self._keys.enter_waits = False
            if not self.answered:
                self.enter()

    def _character(self, char: str, at: float) -> None:
        text = self._keys.text_of(char, at, answers=f" {self.MARKS}", space_marks=self.space_marks)
        if text and self.wants_text and " " not in text:
            self._keys.release()
            self.text_begins(char)
        elif text:
            self.mark("")
            self.asked.typed(text)
        elif text is None:
            self.show_problem(_TOO_FAST)
        elif char == " ":
            self.space()
        elif not self.answered:
            self.mark(char)

    def _enter(self, at: float) -> None:
        means = self._keys.enter(at)
        if means is Enter.TEXT:
            self.mark("")
            self.asked.typed(self._keys.release() + "\n")
        elif means is Enter.WAITS:
            call_once_after(self, BURST_S, self._enter_waited)
        elif means is Enter.TOO_SOON:
            self.show_problem(_TOO_FAST)
        elif not self.answered:
            self.enter()

    def _other_key(self, event: events.Key) -> bool:
        key = event.key
        if key == "enter":
            self._enter(event.time)
            return True
        burst = self._keys.is_burst(event.time)
        if key == "escape":
            self.escape()
        elif key in _SCROLL_KEYS:
            self.subject.move(_SCROLL_KEYS[key])
        elif key in STEPS:
            self.step(key)
        elif not burst and (by := next((by for key_id, by in _WALKS.items() if self.asked.keymap.has(key_id, key)), 0)):
            self.post_message(self.Walked(by))
        else:
            return False
        return True

    def turn(self, pages: int) -> bool:
        """Scroll the subject by pages. Return False if all of it is on the screen."""
        self.subject.turn(pages)
        return self.subject.max_scroll_y > 0

    def on_paste(self, event: events.Paste) -> None:
        if self.has_focus:
            event.stop()
            self._keys.waited(time.monotonic())
            self.mark("")
            self.asked.typed(self._keys.release() + event.text)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.field_given(event.value.strip())

    def show_problem(self, problem: str) -> None:
        self._problem = problem
        self.show_choices()

    def respond(self, response: Json) -> None:
        self.answered = True
        self.post_message(self.Answered(CardAnswer(self.asked.request.request_id, response)))
