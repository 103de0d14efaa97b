"""The card of a tool call: allow once or for the session, deny, edit the rule."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text
from textual import events
from textual.widget import Widget
from textual.widgets import Static

from ccb.tunnel.wire.control_protocol import SET_SANDBOX

from ...transcript.session_facts import READING
from ..rendering.approval_text import IF_ALLOWED, bounded, circumstances, path_outside, subject_lines
from ..rendering.card_rows import GOES_ON, CardLine, FoldedRows, RowStyle
from ..rendering.permission_updates import (
    KEPT,
    READS,
    accepts_edits,
    can_be_kept,
    describe_update,
    editable_rules,
    kept_in,
    reads_services,
    session_updates,
    with_rule,
)
from ..rendering.tool_output import counted
from ..rendering.untrusted_text import escaped_name
from .card_subject import ApprovalSubject
from .question_card import ANSWER_KEY, BUTTON, MARKED, STEPS, Asked, QuestionCard

MAX_BESIDE = 60  # characters of a rule that is shown beside its answer


_IN_CAGE = {"type": SET_SANDBOX, "sandbox": "workspace", "destination": "session"}
_DENIED = "The user denied this; it was not done."
_IDS = {
    "once": "answer-once",
    "session": "answer-session",
    "always": "answer-always",
    "reads": "answer-reads",
    "deny": "answer-deny",
    "caged": "answer-caged",
    "edit": "answer-rule",
}
"""The answers, and the ids of their keys."""
_CAGED = "Yes, and from now on in the cage, without asking"
_WORDS = {"once": "Yes, once", "deny": "No, and say why", "edit": "edit the rule", "caged": _CAGED}
_SHORT_WORDS = {"once": "Yes, once", "deny": "No", "edit": "edit", "caged": "Yes, caged", "reads": "Yes, all reading"}
"""What the answers are called on a screen of few lines."""
_OTHER_RULE = "The rule to grant instead. Enter takes it, Esc goes back."
_OTHER_RULES = "Rule {} of {} to grant instead; without a text it is left out. Enter takes it, Esc goes back."
_WHY_NOT = "Why not? The agent reads it. Enter denies, Esc goes back."


class ChoiceCard(QuestionCard):
    """A card with a row of answers below its lines: `keys` are theirs, and `marks` the characters that mark them.
    `readable`: the question is short enough to be allowed. A subclass says what the answers mean; `deny` is the one
    that is always possible."""

    STACKS = True

    def __init__(
        self, asked: Asked, lines: list[CardLine], keys: Mapping[str, str], marks: Mapping[str, str], *, readable: bool
    ) -> None:
        self._key_of = keys
        self._answers = marks
        self._readable = readable
        self._marked = ""
        super().__init__(asked, ApprovalSubject(lines, asked.palette))
        self.MARKS = "".join(marks)

    def answers(self) -> list[str]:
        """Return the answers to a question that was read."""
        raise NotImplementedError

    def words(self, answer: str) -> str:
        raise NotImplementedError

    def choose(self, answer: str) -> None:
        raise NotImplementedError

    @property
    def offered(self) -> list[str]:
        return self.answers() if self._readable and not self.subject.unseen else ["deny"]

    def entries(self) -> list[tuple[str, str, str]]:
        unseen, quiet, tab = self.subject.unseen, self.quiet, self.asked.keymap.name("approval-tab")
        entries = [] if self._readable else [("", "too long to allow:", quiet)]
        if self._readable and unseen:
            if not self.has_focus:
                return [(tab, f"to read on ({counted(unseen, 'line')}) and answer", "")]
            entries.append(("Space", f"read on: {counted(unseen, 'line')} to see before you can allow it", quiet))
        styles = {self._marked: MARKED}
        entries += [(self._key_of[each], self.words(each), styles.get(each, BUTTON)) for each in self.offered]
        if not self.has_focus:
            return [(tab, "to answer", quiet), *entries]
        return [*entries, *([("Enter", "answers", "")] if self._marked else []), ("Esc", "back", "")]

    def watch_has_focus(self, _has_focus: bool) -> None:
        self._marked = self._problem = ""
        super().watch_has_focus(_has_focus)

    def mark(self, char: str) -> None:
        self._mark(self._answers.get(char, ""))

    @property
    def first_mark(self) -> str:
        first = self.offered[0]
        return "" if first == "deny" else next(char for char, answer in self._answers.items() if answer == first)

    @property
    def is_marked(self) -> bool:
        return self._marked in self.offered

    def _mark(self, answer: str) -> None:
        """Mark an answer, which Enter then gives. One that is not possible unmarks the others."""
        self._marked = answer if answer in self.offered else ""
        self._problem = ""
        self.show_choices()

    def step(self, key: str) -> None:
        if key in ("up", "down") and self.subject.max_scroll_y > 0:
            self.subject.move(STEPS[key])
            return
        self._keys.release()
        offered, by = self.offered, STEPS[key]
        place = offered.index(self._marked) + by if self._marked in offered else (0 if by > 0 else -1)
        self._mark(offered[place % len(offered)])

    def clicked(self, event: events.MouseDown) -> bool:
        key = event.style.meta.get(ANSWER_KEY)
        answer = next((each for each in self.offered if self._key_of[each] == key), "")
        if answer == self._marked:
            return self.is_marked
        if answer:
            self._mark(answer)
        return False

    def enter(self) -> None:
        if self.is_marked:  # what is possible may have changed since the answer was marked
            self.choose(self._marked)
        else:
            *keys, last = [self._key_of[each] for each in self.offered]
            press = f"{', '.join(keys)} or {last}" if keys else last
            self.show_problem(f"Nothing is marked yet: press {press}, then Enter.")


class ApprovalCard(ChoiceCard):
    """Shows one tool call that waits for approval, and takes the person's answer."""

    ASKS_FOR = "approval"

    def __init__(self, asked: Asked) -> None:
        request, keymap = asked.request, asked.keymap
        self._updates = session_updates(request)
        self._editable = bool(editable_rules(self._updates))
        self._edited = False
        self._edits = -1  # the place of the rule that is edited
        self._covered = 0  # how many of the questions that wait the rules cover as well
        lines, readable = bounded(subject_lines(request))
        if outside := path_outside(request):
            text = f"Outside of the session's directories: {escaped_name(outside)}"
            lines.insert(0, CardLine("! ", text, RowStyle.WARNING, "  "))
        self._call = lines
        self._reason = Static(classes="reason")
        keys = {answer: keymap.name(key_id) for answer, key_id in _IDS.items()}
        marks = {char: answer for answer, key_id in _IDS.items() for char in keymap.characters(key_id)}
        super().__init__(asked, self._subject_lines(), keys, marks, readable=readable)

    def _subject_lines(self) -> list[CardLine]:
        rules = self._rules if self._rules_above else []
        return [*self._call, *(CardLine("this session │ ", each, RowStyle.EXACT, "             ┆ ") for each in rules)]

    @property
    def _rules(self) -> list[str]:
        """What the answer "this session" grants, a text for each rule."""
        return [rule for update in self._updates for rule in describe_update(update)]

    @property
    def _rules_above(self) -> bool:
        """Whether the rules are too long or too many to be shown beside their answer."""
        return len(self._rules) > 1 or any(len(each) > MAX_BESIDE for each in self._rules)

    def answers(self) -> list[str]:
        request = self.asked.request
        wider = [*["reads"] * reads_services(request), *["caged"] * (request.request.get("can_be_caged") is True)]
        if not self._rules:
            return ["once", *wider, "deny"]
        always = ["always"] * can_be_kept(self._updates)
        return ["once", "session", *always, *wider, "deny", *["edit"] * self._editable]

    def words(self, answer: str) -> str:
        rules = f"the {len(self._rules)} rules above" if len(self._rules) > 1 else "the rule above"
        granted = rules if self._rules_above else "".join(self._rules)
        if answer == "session":
            more = f", also for {self._covered} more waiting" if self._covered else ""
            key = f" ({self.asked.keymap.name('mode')})" if accepts_edits(self._updates) else ""
            return f"Yes, and {granted} in this session{key}{more}"
        where = f", in {kept_in()}" if self._marked == answer else ""
        if answer == "always":
            what = "" if self._is_short else f": {granted.removeprefix('allow ')}"  # which stands at "session", too
            return f"Yes, and always here{what}{where}"
        if answer == "reads" and not self._is_short:
            return f"Yes, and always here: {READING}{where}"
        return (_SHORT_WORDS if self._is_short else _WORDS)[answer]

    @property
    def _is_short(self) -> bool:
        return self.is_attached and self.screen.has_class("-short")

    def _circumstances(self) -> FoldedRows | Text:
        """Return why the worker asks, and the cage. The reason may quote the call, so its rows have marks."""
        entries = circumstances(self.asked.request)
        if self._is_short:
            short = [f"{name}{text.removeprefix(IF_ALLOWED).rstrip('.')}" for name, text in reversed(entries)]
            return Text(" · ".join(short), self.asked.palette.dim)
        lines = [CardLine(name, text, RowStyle.CCB, f"{GOES_ON:>{max(1, len(name) - 1)}} ") for name, text in entries]
        return FoldedRows(lines, self.asked.palette)

    def on_mount(self) -> None:
        self._show_circumstances()

    def _show_circumstances(self) -> None:
        self._reason.display = bool(circumstances(self.asked.request))
        self._reason.update(self._circumstances())

    def below(self) -> list[Widget]:
        return [self._reason, *super().below()]

    def fit(self) -> None:
        if self.is_attached:
            self._show_circumstances()
        super().fit()

    def choose(self, answer: str) -> None:
        if answer == "deny":
            self.ask_for_text(_WHY_NOT)
        elif answer == "edit":
            self._edit_rule(0)
        else:
            destination = KEPT if answer == "always" else "session"
            updates = [{**each, "destination": destination} for each in self._updates]
            updates = {"once": [], "caged": [_IN_CAGE], "reads": [READS]}.get(answer, updates)
            granted = {"updatedPermissions": updates} if updates else {}
            self.respond({"behavior": "allow", "updatedInput": self.asked.request.input, **granted})

    def _edit_rule(self, place: int) -> None:
        rules, self._edits = editable_rules(self._updates), place
        wanted = _OTHER_RULES.format(place + 1, len(rules)) if len(rules) > 1 else _OTHER_RULE
        self.ask_for_text(wanted, rules[place])

    def end_of_text(self) -> None:
        self._end_editing()
        super().end_of_text()

    def set_situation(self, *, driving: bool, note: str) -> None:
        if not driving:
            self._end_editing()
        super().set_situation(driving=driving, note=note)

    def _end_editing(self) -> None:
        if self._edits >= 0:
            self._edits = -1
            self.subject.replace_lines(self._subject_lines())

    def more_waiting(self, count: int, covered: int = 0) -> None:
        super().more_waiting(count, covered)
        covered = 0 if self._edited else covered
        if covered != self._covered:
            self._covered = covered
            self.show_choices()

    @property
    def grants_suggestion(self) -> bool:
        return not self._edited

    def _rule_given(self, text: str) -> None:
        count, edited = len(self._rules), with_rule(self._updates, self._edits, text)
        if edited is None:
            self.field.placeholder = f"Not a rule for {self.title()}. {_OTHER_RULE}"
            self.field.value = ""
            return
        self._edited = self._edited or edited != self._updates
        self._updates = edited
        self._covered = 0 if self._edited else self._covered
        self._mark("")
        place = self._edits + 1 - (count - len(self._rules))
        if place < len(self._rules):
            self._edit_rule(place)
        else:
            self.end_of_text()

    def field_given(self, text: str) -> None:
        if self._edits >= 0:
            self._rule_given(text)
        else:
            self.respond({"behavior": "deny", "message": said_with(_DENIED, text)})


def said_with(message: str, text: str) -> str:
    return f"{message} The user says: {text}" if text else message
