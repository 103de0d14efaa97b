"""The approval card: what a tool call would do, why the worker asks, and the three answers.

It never takes keys that were meant for the composer: it listens only after the person has gone to it with Tab, Alt+A
or a click, a character only marks an answer, which Enter gives, and text goes to the composer. A call can be allowed
only after all of it has been on the screen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from ...session.messages import ControlRequest
from ..render.approval_text import bounded, subject_lines
from ..render.card_rows import GOES_ON, CardLine, FoldedRows, Voice
from ..render.escapes import escaped_name
from ..render.permission_updates import describe_update, session_updates
from ..theme.palette import Palette
from .answer_choices import AnswerChoices, Situation
from .answer_keys import AnswerKeys
from .approval_subject import ApprovalSubject

Json = dict[str, Any]

_MAX_REASON = 500
_DENIED = "The user denied this; it was not done."
_MAX_SHARE = 0.7  # of the screen
_OTHER_LINES = 3  # lines of transcript, composer and status line, which stay on a small screen
_FAR = 10_000_000  # lines
_SCROLL_KEYS = {"home": -_FAR, "end": _FAR}
_ANSWERS = {"1": "once", "y": "once", "2": "session", "3": "deny", "n": "deny"}
_STEPS = {"left": -1, "up": -1, "right": 1, "down": 1}


@dataclass(frozen=True)
class ApprovalAnswer:
    """The person's answer. `response` has the public shape of an answer to `can_use_tool`."""

    request_id: str
    response: Json


class ApprovalCard(Vertical, can_focus=True):
    """Shows one open question and takes the person's answer."""

    DEFAULT_CSS = """
    ApprovalCard { height: auto; border: round $warning; padding: 0 1; background: $background; }
    ApprovalCard:focus, ApprovalCard:focus-within { border: heavy $warning; }
    ApprovalCard Static { height: auto; }
    ApprovalCard Input {
        border: none; height: 1; padding: 0; background: $surface; display: none;
        &:focus { border: none; background-tint: $foreground 0%; }
    }
    ApprovalCard.denying Input { display: block; }
    ApprovalCard.denying .choices { display: none; }
    """

    @dataclass
    class Answered(Message):
        """The person has answered."""

        answer: ApprovalAnswer

    class Left(Message):
        """The person goes back to the composer."""

    @dataclass
    class TextTyped(Message):
        """The person typed text that is not an answer."""

        text: str

    def __init__(self, request: ControlRequest, place: str, palette: Palette) -> None:
        super().__init__(id="approval")
        self.request = request
        self._place = place
        self._palette = palette
        self._updates = session_updates(request)
        rules = [rule for update in self._updates for rule in describe_update(update)]
        lines, readable = bounded(subject_lines(request.request))
        self._choices = AnswerChoices(rules, palette, readable=readable)
        if self._choices.rules_above:
            lines += [CardLine("this session │ ", rule, Voice.EXACT, "             ┆ ") for rule in rules]
        self._subject = ApprovalSubject(lines, palette)
        self._reason = Static(classes="reason")
        self._driving_and_note = (True, "")
        self._settling = False
        self._waiting = ""
        self._keys = AnswerKeys()
        self._input = Input(placeholder="Why not? The agent reads it. Enter denies, Esc goes back.", compact=True)

    def compose(self) -> ComposeResult:
        self.show_titles()
        yield self._subject
        yield self._reason
        yield self._choices
        yield self._input

    def _circumstances(self) -> FoldedRows | Text:
        """Return why the worker asks, and the cage in which the call would run. The reason may quote the call, so a
        row that goes on has a mark; a short screen has one row for all."""
        asked = self.request.request
        sandbox = ("Sandbox: ", _shortened(asked.sandbox or "no cage"))
        entries = [("Asked because: ", _shortened(asked.decision_reason or "")), sandbox]
        if not asked.decision_reason:
            entries = [sandbox]
        if self.screen.has_class("-short"):
            return Text(" · ".join(map("".join, reversed(entries))), self._palette.dim)
        lines = [CardLine(name, text, Voice.CCB, f"{GOES_ON:>{len(name) - 1}} ") for name, text in entries]
        return FoldedRows(lines, self._palette)

    def on_mount(self) -> None:
        self._reason.update(self._circumstances())
        self.watch(self._subject, "scroll_y", self.show_titles, init=False)
        self.call_after_refresh(self.fit)

    @property
    def listens(self) -> bool:
        """Whether the person is at the answers, so that a key may be one."""
        return self.has_focus and not self.has_class("denying")

    @property
    def reason(self) -> str:
        """The reason for a denial, as far as the person has typed it."""
        return self._input.value

    @property
    def unseen(self) -> int:
        """The number of rows that have not been on the screen yet."""
        return self._subject.unseen

    @property
    def rows(self) -> list[str]:
        """All rows of what is asked, at the present width."""
        return [row.plain for row in self._subject.rows]

    def more_waiting(self, count: int) -> None:
        """Show how many questions wait behind this one."""
        self._waiting = f"{count} more waiting" if count else ""
        self.show_titles()

    def show_titles(self) -> None:
        """Show the tool and the host, whether there is more to read below, and the number of waiting questions."""
        title = f"{escaped_name(self.request.request.tool_name)} on {self._place}"
        below = self._subject.max_scroll_y - round(self._subject.scroll_y) if self.is_attached else 0
        more = f"↓ {below:,} more line{'s' if below != 1 else ''}" if below > 0 else ""
        short = self.is_attached and self.screen.has_class("-short")  # such a card has no lower border
        self.border_title = Content(f"{more} · {title}" if more and short else title)
        self.border_subtitle = Content(" · ".join(filter(None, ("" if short else more, self._waiting))))

    def set_situation(self, *, driving: bool, note: str) -> None:
        """Set whether the person may answer here, and a note about what happens to an answer now."""
        if (driving, note) == self._driving_and_note:
            return
        self._driving_and_note = (driving, note)
        self.can_focus = driving and not self._settling
        if not driving:
            self.remove_class("denying")
        if self.is_attached:
            self.fit()

    def settle(self, seconds: float) -> None:
        """Take no focus for some seconds."""
        self._settling = True
        self.can_focus = False
        self.set_timer(seconds, self._settled)

    def _settled(self) -> None:
        self._settling = False
        self.can_focus = self._driving_and_note[0]

    def fit(self) -> None:
        """Limit the height of the subject, so that the answers fit on the screen."""
        if not self.is_attached:
            return
        self._reason.update(self._circumstances())
        self._show_choices()
        below = sum(each.size.height for each in (self._reason, self._choices, self._input) if each.display)
        height = self.app.size.height
        room = int(height * _MAX_SHARE) if self.screen.has_class("-tall") else height - _OTHER_LINES
        self._subject.limit(room - self.gutter.height - below)

    def on_resize(self) -> None:
        self.call_after_refresh(self.fit)

    def on_approval_subject_rows_seen(self) -> None:
        self._show_choices()

    def watch_has_focus(self, _has_focus: bool) -> None:
        super().watch_has_focus(_has_focus)
        self._keys.begin(time.monotonic())
        if self.is_attached:
            self._show_choices()

    def _show_choices(self) -> None:
        """Show which answers are possible now."""
        self._choices.show(Situation(self.unseen, self.has_focus, *self._driving_and_note))

    # Answers.

    def on_key(self, event: events.Key) -> None:
        if self.has_class("denying"):
            if event.key == "escape":
                event.stop()
                self.remove_class("denying")
                self.focus()
            return
        if not self.has_focus:
            return
        if event.is_printable and event.character:
            self._character(event.character, event.time)
        elif not self._other_key(event):
            return
        event.stop()
        event.prevent_default()

    def _character(self, char: str, at: float) -> None:
        """Take a character: it marks an answer, reads on, or is text, with the marks before it."""
        text = self._keys.text_of(char, at, answers=f" {''.join(_ANSWERS)}")
        if text:
            self._choices.mark("")
            self.post_message(self.TextTyped(text))
        elif char == " ":
            self._subject.read_on()
        else:
            self._choices.mark(_ANSWERS[char])

    def _other_key(self, event: events.Key) -> bool:
        """Take a key that is not a character. Return whether this was one for the card."""
        burst, key = self._keys.is_burst(event.time), event.key
        if key == "enter":
            if burst:
                self.post_message(self.TextTyped(self._keys.release() + "\n"))
            elif self._choices.marked:
                self._answer(self._choices.marked)
        elif key == "escape":
            self.post_message(self.Left())
        elif key in _SCROLL_KEYS:
            self._subject.move(_SCROLL_KEYS[key])
        elif key in ("up", "down") and self._subject.max_scroll_y > 0:
            self._subject.move(_STEPS[key])
        elif key in _STEPS:
            self._keys.release()
            self._choices.step(_STEPS[key])
        else:
            return False
        return True

    def _answer(self, answer: str) -> None:
        self._show_choices()  # what is possible may have changed since the answer was marked
        if answer not in self._choices.offered:
            return
        if answer == "deny":
            self.add_class("denying")
            self._input.focus()
        else:
            self._allow(self._updates if answer == "session" else [])

    def turn(self, pages: int) -> bool:
        """Scroll the subject by pages. Return False if all of it is on the screen."""
        self._subject.turn(pages)
        return self._subject.max_scroll_y > 0

    def on_paste(self, event: events.Paste) -> None:
        if self.has_focus:
            event.stop()
            self.post_message(self.TextTyped(self._keys.release() + event.text))

    def _allow(self, updates: list[Json]) -> None:
        response: Json = {"behavior": "allow", "updatedInput": self.request.request.input}
        if updates:
            response["updatedPermissions"] = updates
        self.post_message(self.Answered(ApprovalAnswer(self.request.request_id, response)))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        reason = event.value.strip()
        message = _DENIED + (f" The user says: {reason}" if reason else "")
        self.post_message(
            self.Answered(ApprovalAnswer(self.request.request_id, {"behavior": "deny", "message": message}))
        )


def _shortened(text: str) -> str:
    """Return a text of the worker on one line, within its limit."""
    name = escaped_name(text)
    return name if len(name) <= _MAX_REASON else name[: _MAX_REASON - 1] + "…"
