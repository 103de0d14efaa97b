"""The card of a tool call: allow once or for the session, deny, edit the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text
from textual.widget import Widget
from textual.widgets import Static

from ...terminal.keymap import Keymap
from ..rendering.approval_text import bounded, subject_lines
from ..rendering.card_rows import GOES_ON, CardLine, FoldedRows, RowStyle
from ..rendering.permission_updates import (
    KEPT,
    can_be_kept,
    describe_update,
    kept_in,
    session_updates,
    single_rule,
    with_rule,
)
from ..rendering.themes import Palette
from ..rendering.untrusted_text import escaped_name
from .card_subject import ApprovalSubject
from .question_card import STEPS, Asked, QuestionCard

MAX_BESIDE = 60  # characters of a rule that is shown beside its answer


class AnswerChoices(Static):
    """Shows the answers, whose keys are `keys`. `grants` are the rules that the answer "this session" grants, one text
    each. `readable`: the question is short enough to be allowed. `keeps`: the rules can be kept for this host and
    directory. `editable`: the person may write another rule."""

    def __init__(
        self,
        keys: Mapping[str, str],
        grants: Sequence[str],
        palette: Palette,
        keymap: Keymap,
        *,
        readable: bool,
        keeps: bool = False,
        editable: bool = False,
    ) -> None:
        super().__init__(classes="choices")
        self.keys = keys
        self.marked = ""
        self.covered = 0
        """How many of the questions that wait the rules cover as well."""
        self._tab = keymap.name("approval-tab")
        self._keeps = keeps
        self._grants = grants
        self._palette = palette
        self._readable = readable
        self._editable = editable
        self._unseen = 0
        self._focused = False
        self._driving_and_note = (True, "")

    def offer(self, grants: Sequence[str]) -> None:
        self._grants = grants
        self.mark("")

    def cover(self, count: int) -> None:
        """Show how many of the questions that wait the rules cover as well."""
        if count != self.covered:
            self.covered = count
            self.draw()

    @property
    def rules_above(self) -> bool:
        """Whether the rules are too long or too many to be shown here."""
        return len(self._grants) > 1 or any(len(each) > MAX_BESIDE for each in self._grants)

    @property
    def offered(self) -> list[str]:
        if not self._readable or self._unseen:
            return ["deny"]
        if not self._grants:
            return ["once", "deny"]
        more = [*(["always"] if self._keeps else []), *(["edit"] if self._editable else [])]
        return ["once", "session", "deny", *more]

    def show(self, unseen: int, focused: bool, driving_and_note: tuple[bool, str]) -> None:
        """Show what is possible with `unseen` rows that were not on the screen yet. `focused`: the person is at the
        answers. They may answer here if they drive the session; the note says what happens to an answer now."""
        if focused != self._focused:
            self.marked = ""
        self._unseen, self._focused, self._driving_and_note = unseen, focused, driving_and_note
        self.draw()

    def mark(self, answer: str) -> None:
        """Mark an answer, which Enter then gives. One that is not possible unmarks the others."""
        self.marked = answer if answer in self.offered else ""
        self.draw()

    def step(self, by: int) -> None:
        offered = self.offered
        place = offered.index(self.marked) + by if self.marked in offered else (0 if by > 0 else -1)
        self.mark(offered[place % len(offered)])

    def draw(self) -> None:
        """Draw the answers on one line, or one below the other on a narrow screen that is high enough."""
        driving, note = self._driving_and_note
        if not driving:
            self.update(Text(note, style=self._palette.dim))
            return
        parts = self._parts()
        text = Text("   ").join(parts)
        if text.cell_len > self.content_size.width and self.is_attached and self.screen.has_class("-tall"):
            text = Text("\n").join(parts)
        if note:
            text.append(f"\n{note}", style=f"not bold {self._palette.warn}")
        self.update(text)

    def _parts(self) -> list[Text]:
        accent = f"bold {self._palette.accent}"
        entries: list[tuple[str, str, str]] = []
        if not self._readable:
            entries.append(("", "too long to allow:", ""))
        elif self._unseen:
            lines = f"{self._unseen:,} line{'s' if self._unseen != 1 else ''}"
            if not self._focused:
                return [Text.assemble((self._tab, accent), f" to read on ({lines}) and answer")]
            entries.append(("Space", f"read on: {lines} to see before you can allow it", ""))
        entries += [(self.keys[answer], self.words(answer), answer) for answer in self.offered]
        if self._focused:
            entries += [("Enter", "answers", "")] if self.marked else []
            entries.append(("Esc", "back", ""))
        else:
            entries.insert(0, (self._tab, "to answer:", ""))
        parts = []
        for key, does, answer in entries:
            style = "reverse" if answer and answer == self.marked else "" if self._focused else self._palette.dim
            parts.append(Text.assemble((key, accent), f" {does}" if key else does, style=style))
        return parts

    def words(self, answer: str) -> str:
        if answer == "always" and self.marked == answer:
            return f"always: for this host and directory, in {kept_in()}"
        if answer == "edit":
            return "edit the rule"
        if answer != "session":
            return answer
        rules = f"the {len(self._grants)} rules above" if len(self._grants) > 1 else "the rule above"
        more = f", also for {self.covered} more waiting" if self.covered else ""
        return f"this session: {rules if self.rules_above else self._grants[0]}{more}"


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


class ChoiceCard(QuestionCard):
    """A card with a row of answers below its lines. A subclass says what they mean."""

    def __init__(self, asked: Asked, lines: list[CardLine], choices: AnswerChoices) -> None:
        self._choices = choices
        super().__init__(asked, ApprovalSubject(lines, asked.palette))

    def choose(self, answer: str) -> None:
        raise NotImplementedError

    def below(self) -> list[Widget]:
        return [self._choices, self.field]

    def show_choices(self) -> None:
        self._choices.show(self.subject.unseen, self.has_focus, self._driving_and_note)

    def step(self, key: str) -> None:
        if key in ("up", "down") and self.subject.max_scroll_y > 0:
            self.subject.move(STEPS[key])
        else:
            self._keys.release()
            self._choices.step(STEPS[key])

    def enter(self) -> None:
        self.show_choices()  # what is possible may have changed since the answer was marked
        if self._choices.marked in self._choices.offered:
            self.choose(self._choices.marked)


class ApprovalCard(ChoiceCard):
    """Shows one tool call that waits for approval, and takes the person's answer."""

    ASKS_FOR = "approval"

    def __init__(self, asked: Asked) -> None:
        request, keymap = asked.request, asked.keymap
        self._answers = {char: answer for answer, key_id in _IDS.items() for char in keymap.characters(key_id)}
        self.MARKS = "".join(self._answers)
        self._updates = session_updates(request)
        rules = [rule for update in self._updates for rule in describe_update(update)]
        lines, readable = bounded(subject_lines(request))
        if request.text("decision_reason_type") == _OUTSIDE and request.text("blocked_path"):
            path = escaped_name(request.text("blocked_path"))
            lines.insert(0, CardLine("! ", f"Outside of the session's directories: {path}", RowStyle.WARNING, "  "))
        choices = AnswerChoices(
            {answer: keymap.name(key_id) for answer, key_id in _IDS.items()},
            rules,
            asked.palette,
            keymap,
            readable=readable,
            keeps=can_be_kept(self._updates),
            editable=single_rule(self._updates) is not None,
        )
        self._edits = False
        self._edited = False
        if choices.rules_above:
            lines += [CardLine("this session │ ", rule, RowStyle.EXACT, "             ┆ ") for rule in rules]
        self._reason = Static(classes="reason")
        super().__init__(asked, lines, choices)

    def _circumstances(self) -> FoldedRows | Text:
        """Return why the worker asks, and the cage in which the call would run. The reason may quote the call, so a
        row that goes on has a mark; a short screen has one row for all."""
        reason, agent = self.asked.request.text("decision_reason"), self.asked.request.text("agent")
        entries = [("Sandbox: ", _shortened(self.asked.request.text("sandbox") or "no cage"))]
        if reason:
            entries.insert(0, ("Asked because: ", _shortened(reason)))
        if agent:
            entries.insert(0, ("Sub-agent: ", _shortened(agent)))
        if self.screen.has_class("-short"):
            return Text(" · ".join(map("".join, reversed(entries))), self.asked.palette.dim)
        lines = [CardLine(name, text, RowStyle.CCB, f"{GOES_ON:>{len(name) - 1}} ") for name, text in entries]
        return FoldedRows(lines, self.asked.palette)

    def on_mount(self) -> None:
        self._reason.update(self._circumstances())

    def below(self) -> list[Widget]:
        return [self._reason, *super().below()]

    def fit(self) -> None:
        if self.is_attached:
            self._reason.update(self._circumstances())
        super().fit()

    def mark(self, char: str) -> None:
        self._choices.mark(self._answers.get(char, ""))

    def choose(self, answer: str) -> None:
        if answer == "deny":
            self.ask_for_text(_WHY_NOT)
        elif answer == "edit":
            self._edits = True
            self.ask_for_text(_OTHER_RULE, single_rule(self._updates) or "")
        else:
            destination = KEPT if answer == "always" else "session"
            updates = [] if answer == "once" else [{**each, "destination": destination} for each in self._updates]
            granted = {"updatedPermissions": updates} if updates else {}
            self.respond({"behavior": "allow", "updatedInput": self.asked.request.input, **granted})

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
        else:
            self.respond({"behavior": "deny", "message": said_with(_DENIED, text)})


def said_with(message: str, text: str) -> str:
    """Return what the agent reads of a denial, with the words of the person."""
    return f"{message} The user says: {text}" if text else message


def _shortened(text: str) -> str:
    name = escaped_name(text)
    return name if len(name) <= _MAX_REASON else name[: _MAX_REASON - 1] + "…"
