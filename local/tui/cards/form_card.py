"""Forms, also of MCP servers.

Numbers and arrow keys mark a row, Enter gives it and goes on. Where several options may be chosen, a number or the
space bar ticks one. The last rows are for an answer in the person's own words and for no answer.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import deepcopy
from dataclasses import replace

from textual import events
from textual.app import ComposeResult

from ...session.remote_session import is_own
from ...transcript.questions import Answers, Form, FormEntry, FormField, read_server_form, yes_only
from ..rendering.approval_text import doubts
from ..rendering.card_rows import GOES_ON, CardLine, RowStyle
from ..rendering.untrusted_text import escaped, escaped_name
from .approval_card import said_with
from .card_subject import FormRows
from .question_card import STEPS, Asked, QuestionCard

OWN_TEXT = "something else: type it"
NO_ANSWER = "no answer"
_ONLY_TEXT = "type the answer"


Lines = list[CardLine]
Rows = list[tuple[int, int]]  # for each row to choose from, the first and the last of its lines


def form_page(form: Form) -> tuple[Lines, Rows]:
    """Return the field on the screen, or the overview of all answers."""
    return _field_page(form, form.field) if form.field is not None else _overview(form)


def _field_page(form: Form, of: FormField) -> tuple[Lines, Rows]:
    lines = doubts(of.question, *(text for each in of.options for text in (each.label, each.description)))
    lines += [
        CardLine("? " if number == 0 else "  ", line, RowStyle.EXACT, f"{GOES_ON} ")
        for number, line in enumerate(escaped(of.question).split("\n"))
    ]
    entry = form.entry
    rows: Rows = []
    for index, option in enumerate(of.options):
        first = len(lines)
        gutter = f"{_key(index)} {_box(of, chosen=index in entry.chosen)} "
        lines.append(CardLine(gutter, escaped_name(option.label), RowStyle.EXACT, f"    {GOES_ON} "))
        if option.description.strip():
            lines.append(CardLine("      ", escaped_name(option.description), RowStyle.CONTEXT, f"    {GOES_ON} "))
        rows.append((first, len(lines) - 1))
    if of.own_text:
        gutter = f"{_key(len(of.options))} {_box(of, chosen=bool(entry.text))} "
        voice = RowStyle.EXACT if entry.text else RowStyle.CCB
        asked = OWN_TEXT if of.options else _ONLY_TEXT
        lines.append(CardLine(gutter, escaped_name(entry.text) or asked, voice, f"    {GOES_ON} "))
        rows.append((len(lines) - 1, len(lines) - 1))
    return lines, rows


def _overview(form: Form) -> tuple[Lines, Rows]:
    lines: Lines = []
    rows: Rows = []
    for place, (of, entry) in enumerate(zip(form.fields, form.entries, strict=True)):
        first = len(lines)
        question = " ".join(of.question.split("\n"))
        lines.append(CardLine(f"{_key(place)} ", escaped_name(question), RowStyle.CONTEXT, f"{GOES_ON} "))
        answers = entry.answers(of)
        lines += [CardLine("  → ", escaped_name(answer), RowStyle.EXACT, f"  {GOES_ON} ") for answer in answers]
        if not answers:
            missing = "no answer" if of.optional else "no answer yet"
            lines.append(CardLine("  → ", missing, RowStyle.CCB, f"  {GOES_ON} "))
        rows.append((first, len(lines) - 1))
    return lines, rows


def _key(index: int) -> str:
    return str(index + 1) if index < 9 else " "


def _box(of: FormField, *, chosen: bool) -> str:
    if of.several:
        return "☒" if chosen else "☐"
    return "●" if chosen else "○"


_OWN_ANSWER = "Your answer. Enter takes it, Esc goes back."
_WHY_NOT = "Why no answer? The agent reads it. Enter declines, Esc goes back."
_MAX_TITLE = 60


class FormCard(QuestionCard):
    """Shows a form. A subclass says what the answers, or the refusal, mean for the request."""

    MARKS = "123456789"

    def __init__(self, asked: Asked, form: Form) -> None:
        self.form = form
        self._rows = FormRows(asked.palette)
        self._marked = -1  # the row of the page
        self._before: Form | None = None  # as it was when the person came: what looked like marks may be text
        self._declining = False
        super().__init__(asked, self._rows)

    @abstractmethod
    def answer_form(self, answers: Answers) -> None:
        """Respond with the answers."""

    @abstractmethod
    def decline(self, reason: str) -> None:
        """Respond that the person gives no answer."""

    def title(self) -> str:
        of, count = self.form.field, len(self.form.fields)
        where = f" ({self.form.place + 1} of {count})" if of is not None and count > 1 else ""
        what = (of.header or "a question") if of is not None else "your answers"
        return f"{self.asker()}: {escaped_name(what)[:_MAX_TITLE]}{where}"

    def asker(self) -> str:
        return "The agent asks"

    def _page(self) -> tuple[Lines, Rows]:
        lines, rows = form_page(self.form)
        gutter = "  " if self.form.field is None else "    "
        lines.append(CardLine(f"{_key(len(rows))}{gutter[1:]}", NO_ANSWER, RowStyle.CCB, f"{gutter}{GOES_ON} "))
        return lines, [*rows, (len(lines) - 1, len(lines) - 1)]

    def _draw(self) -> None:
        lines, rows = self._page()
        marked = rows[self._marked] if 0 <= self._marked < len(rows) else (0, -1)
        wrong = self._problem if self.has_class("typing") else ""  # else it stands beside the keys
        lines += [CardLine("! ", wrong, RowStyle.WARNING, "  ")] if wrong else []
        self._rows.show(lines, marked)
        self.show_titles()

    def entries(self) -> list[tuple[str, str, str]]:
        of, tab = self.form.field, self.asked.keymap.name("approval-tab")
        if not self.has_focus:
            return [(tab, "to answer", self.quiet)]
        keys = [("Enter", "sends" if of is None else "gives it", "")]
        if of is not None:
            rows = f"1-{min(9, of.rows + 1)}"
            keys.insert(0, (f"{rows}, Space", "tick", "") if of.several else (f"{rows}, ↑↓", "mark", ""))
        if len(self.form.fields) > 1:
            keys.append(("←→", "questions", ""))
        return [*keys, ("Esc", "back", "")]

    # Keys.

    def compose(self) -> ComposeResult:
        self._draw()
        yield from super().compose()

    def watch_has_focus(self, has_focus: bool) -> None:
        super().watch_has_focus(has_focus)
        self._before = deepcopy(self.form)
        if not has_focus:
            self._mark(-1)

    def mark(self, char: str) -> None:
        if not char:
            if self._before is not None:
                self.form = self._before
                self._before = deepcopy(self.form)
            self._mark(-1)
            return
        index = int(char) - 1
        if index >= len(self._page()[1]):
            return
        self._mark(index)
        if self.space_marks:
            self._tick(index)

    @property
    def space_marks(self) -> bool:
        of = self.form.field
        return of is not None and of.several and 0 <= self._marked < len(of.options)

    def space(self) -> None:
        if self.space_marks:
            self._tick(self._marked)
        else:
            self.subject.read_on()

    def clicked(self, event: events.MouseDown) -> bool:
        line = self._rows.line_at(event.screen_y)
        row = next((at for at, (first, last) in enumerate(self._page()[1]) if first <= line <= last), -1)
        if row < 0:
            return False
        self._settle_marks()
        was_marked = row == self._marked
        self._mark(row)
        if self.space_marks:
            self._tick(row)
            return False
        return was_marked

    def step(self, key: str) -> None:
        self._settle_marks()
        if key in ("left", "right"):
            self._go(STEPS[key])
            return
        start = self._marked if self._marked >= 0 else (-1 if STEPS[key] > 0 else 0)
        self._mark((start + STEPS[key]) % len(self._page()[1]))

    @property
    def wants_text(self) -> bool:
        of = self.form.field
        return self._text_is_marked or (of is not None and of.own_text and not of.options)

    @property
    def _text_is_marked(self) -> bool:
        of = self.form.field
        return of is not None and of.own_text and self._marked == len(of.options)

    def text_begins(self, char: str) -> None:
        self._before = deepcopy(self.form)
        self._declining = False
        self.ask_for_text(_OWN_ANSWER, selected=False)
        self.field.insert_text_at_cursor(char)

    def enter(self) -> None:
        self._settle_marks()
        of = self.form.field
        if self._marked == len(self._page()[1]) - 1:
            self.refuse()
        elif of is None:
            self._send_or_show_missing()
        elif self._text_is_marked:
            self._declining = False
            self.ask_for_text(_OWN_ANSWER, self.form.entry.text)
        elif of.several and self.form.answered(self.form.place):
            self._go_on()
        elif self._marked >= 0:
            self.form.choose(self._marked)
            self._go_on()
        elif of.optional:
            self._go_on()
        else:
            self.show_problem("Nothing is marked yet: press 1 or ↓, then Enter.")

    def refuse(self) -> None:
        """The person gives no answer."""
        self._declining = True
        self.ask_for_text(_WHY_NOT)

    def field_given(self, text: str) -> None:
        if self._declining:
            self.decline(text)
            return
        of = self.form.field
        self._problem = of.problem(text) if of is not None and text else ""
        if of is None or self._problem:
            self._draw()
            return
        entry = self.form.entry
        self.form.entries[self.form.place] = FormEntry(entry.chosen if of.several else [], text)
        self.end_of_text()
        if text and not of.several:
            self._go_on()
        else:
            self._draw()

    def _settle_marks(self) -> None:
        self._keys.release()
        self._before = deepcopy(self.form)

    def _mark(self, row: int, problem: str = "") -> None:
        self._marked, self._problem = row, problem
        if self.is_attached:
            self._draw()
            self.show_choices()

    def _tick(self, index: int) -> None:
        self.form.toggle(index)
        self._draw()

    def _go(self, by: int) -> None:
        if self.form.go(by):
            self._mark(-1)

    def _go_on(self) -> None:
        if self.form.go(1):
            self._mark(-1)
        else:
            self._send_or_show_missing()

    def _send_or_show_missing(self) -> None:
        missing = self.form.missing
        if missing < 0:
            self.answer_form(self.form.answers)
        else:
            self.form.place = missing
            self._mark(-1, "This question has no answer yet.")


class QuestionsCard(FormCard):
    """Answers the call with its input and the answers in it, as the public protocol wants it."""

    def answer_form(self, answers: Answers) -> None:
        given = {question: ", ".join(chosen) for question, chosen in answers.items()}
        self.respond({"behavior": "allow", "updatedInput": {**self.asked.request.input, "answers": given}})

    def decline(self, reason: str) -> None:
        message = "The user declined to answer the questions."
        self.respond({"behavior": "deny", "message": said_with(message, reason)})


_MAX_SERVER = 64
_MAX_MESSAGE = 10_000
_OPENED = "I have opened it"
_UNREADABLE = "The server wants a form that ccb cannot show."


class ElicitationCard(FormCard):
    """Shows the form of a server, or an address to visit. A form that cannot be shown can only be declined."""

    def __init__(self, asked: Asked) -> None:
        request = asked.request
        message = request.text("message")[:_MAX_MESSAGE]
        if request.text("mode") == "url":
            shown = f"{message}\nOpen this address in a browser, if you trust it: {request.text('url')}"
            form: Form | None = Form((yes_only(shown, _OPENED),))
        else:
            form = read_server_form(message, request.request.get("requested_schema"))
        self._server_form = form
        unreadable = Form((FormField("", f"{message}\n{_UNREADABLE}", own_text=False),))
        asked = replace(asked, place="this laptop") if is_own(request.request_id) else asked
        super().__init__(asked, form or unreadable)

    def asker(self) -> str:
        return f"The MCP server {escaped_name(self.asked.request.text('mcp_server_name'))[:_MAX_SERVER]} asks"

    def answer_form(self, answers: Answers) -> None:
        form = self._server_form
        assert form is not None, "a form without rows has no answers"
        if self.asked.request.text("mode") == "url":
            self.respond({"action": "accept"})
        else:
            self.respond({"action": "accept", "content": form.content(answers)})

    def decline(self, reason: str) -> None:
        self.respond({"action": "decline"})

    def refuse(self) -> None:
        self.decline("")
