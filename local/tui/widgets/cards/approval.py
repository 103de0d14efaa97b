"""The approval card: what a tool call would do, why the worker asks, and the three answers. A call can be allowed only
after all of it has been on the screen."""

from __future__ import annotations

from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import Static

from ccb.tunnel.wire.messages import ControlRequestLine

from ....terminal.keymap import Keymap
from ...render.approval_text import bounded, subject_lines
from ...render.card_rows import GOES_ON, CardLine, FoldedRows, Voice
from ...render.permission_updates import (
    KEPT,
    can_be_kept,
    describe_update,
    session_updates,
    single_rule,
    with_rule,
)
from ...render.untrusted.escapes import escaped_name
from ...theme.palette import Palette
from .answer_choices import AnswerChoices, Situation
from .approval_subject import ApprovalSubject
from .question_card import STEPS, QuestionCard

Json = dict[str, Any]

_MAX_REASON = 500
_OUTSIDE = "workingDir"  # the kind of reason for asking
_DENIED = "The user denied this; it was not done."
_IDS = {
    "once": "answer-once",
    "session": "answer-session",
    "deny": "answer-deny",
    "always": "answer-always",
    "edit": "answer-rule",
}
"""The answers, and the ids of their keys."""
_OTHER_RULE = "The rule to grant instead. Enter shows it at the answers, Esc goes back."
_WHY_NOT = "Why not? The agent reads it. Enter denies, Esc goes back."


class ApprovalCard(QuestionCard):
    """Shows one tool call that waits for approval, and takes the person's answer."""

    ASKS_FOR = "approval"

    def __init__(self, request: ControlRequestLine, place: str, palette: Palette, keymap: Keymap) -> None:
        self._answers = {char: answer for answer, key_id in _IDS.items() for char in keymap.characters(key_id)}
        self.MARKS = "".join(self._answers)
        self._updates = session_updates(request)
        rules = [rule for update in self._updates for rule in describe_update(update)]
        lines, readable = bounded(subject_lines(request))
        if request.text("decision_reason_type") == _OUTSIDE and request.text("blocked_path"):
            path = escaped_name(request.text("blocked_path"))
            lines.insert(0, CardLine("! ", f"Outside of the session's directories: {path}", Voice.WARNING, "  "))
        self._choices = AnswerChoices(rules, palette, keymap, readable=readable, keeps=can_be_kept(self._updates))
        self._choices.KEYS = {answer: keymap.name(key_id) for answer, key_id in _IDS.items()}
        self._choices.editable = single_rule(self._updates) is not None
        self._edits = False
        self._edited = False
        if self._choices.rules_above:
            lines += [CardLine("this session │ ", rule, Voice.EXACT, "             ┆ ") for rule in rules]
        self._reason = Static(classes="reason")
        super().__init__(request, place, palette, ApprovalSubject(lines, palette), keymap)

    def compose(self) -> ComposeResult:
        self.show_titles()
        yield self.subject
        yield self._reason
        yield self._choices
        yield self.field

    def _circumstances(self) -> FoldedRows | Text:
        """Return why the worker asks, and the cage in which the call would run. The reason may quote the call, so a
        row that goes on has a mark; a short screen has one row for all."""
        reason, agent = self.request.text("decision_reason"), self.request.text("agent")
        entries = [("Sandbox: ", _shortened(self.request.text("sandbox") or "no cage"))]
        if reason:
            entries.insert(0, ("Asked because: ", _shortened(reason)))
        if agent:
            entries.insert(0, ("Sub-agent: ", _shortened(agent)))
        if self.screen.has_class("-short"):
            return Text(" · ".join(map("".join, reversed(entries))), self._palette.dim)
        lines = [CardLine(name, text, Voice.CCB, f"{GOES_ON:>{len(name) - 1}} ") for name, text in entries]
        return FoldedRows(lines, self._palette)

    def on_mount(self) -> None:
        self._reason.update(self._circumstances())

    def below(self) -> list[Widget]:
        return [self._reason, self._choices, self.field]

    def fit(self) -> None:
        if self.is_attached:
            self._reason.update(self._circumstances())
        super().fit()

    def show_choices(self) -> None:
        self._choices.show(Situation(self.unseen, self.has_focus, *self._driving_and_note))

    def mark(self, char: str) -> None:
        self._choices.mark(self._answers.get(char, ""))

    def enter(self) -> None:
        if self._choices.marked:
            self._answer(self._choices.marked)

    def step(self, key: str) -> None:
        if key in ("up", "down") and self.subject.max_scroll_y > 0:
            self.subject.move(STEPS[key])
        else:
            self._keys.release()
            self._choices.step(STEPS[key])

    def _answer(self, answer: str) -> None:
        self.show_choices()  # what is possible may have changed since the answer was marked
        if answer not in self._choices.offered:
            return
        if answer == "deny":
            self.ask_for_text(_WHY_NOT)
        elif answer == "edit":
            self._edits = True
            self.ask_for_text(_OTHER_RULE, single_rule(self._updates) or "")
        else:
            destination = KEPT if answer == "always" else "session"
            self._allow([] if answer == "once" else [{**each, "destination": destination} for each in self._updates])

    def _allow(self, updates: list[Json]) -> None:
        response: Json = {"behavior": "allow", "updatedInput": self.request.input}
        if updates:
            response["updatedPermissions"] = updates
        self.respond(response)

    def end_of_text(self) -> None:
        self._edits = False
        super().end_of_text()

    def more_waiting(self, count: int, covered: int = 0) -> None:
        super().more_waiting(count, covered)
        self._choices.cover(0 if self._edited else covered)

    @property
    def grants_suggestion(self) -> bool:
        return not self._edited

    def _rule_given(self, text: str) -> None:
        """Offer the rule that the person has written in the place of the suggested one."""
        edited = with_rule(self._updates, text)
        if edited is None:
            self.field.placeholder = f"Not a rule for {self.title()}. {_OTHER_RULE}"
            self.field.value = ""
            return
        self._edited = self._edited or edited != self._updates
        self._updates = edited
        self._choices.offer([rule for update in edited for rule in describe_update(update)])
        self._choices.cover(0 if self._edited else self._choices.covered)
        self.end_of_text()

    def field_given(self, text: str) -> None:
        if self._edits:
            self._rule_given(text)
            return
        message = _DENIED + (f" The user says: {text}" if text else "")
        self.respond({"behavior": "deny", "message": message})


def _shortened(text: str) -> str:
    """Return a text of the worker on one line, within its limit."""
    name = escaped_name(text)
    return name if len(name) <= _MAX_REASON else name[: _MAX_REASON - 1] + "…"
