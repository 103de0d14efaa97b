"""A form as the lines of its card: exact pictures of what the worker asks, and of what would be answered."""

from __future__ import annotations

from ccb.tunnel.wire.dataclass import dataclass

from ..model.forms.form import Form, FormField
from .approval_text import doubts
from .card_rows import GOES_ON, CardLine, Voice
from .untrusted.escapes import escaped, escaped_name

OWN_TEXT = "something else: type it"
_ONLY_TEXT = "type the answer"


@dataclass(frozen=True)
class FormPage:
    """The lines of one page. `rows` are, for each row to choose from, the first and the last of its lines."""

    lines: list[CardLine]
    rows: list[tuple[int, int]]


def form_page(form: Form) -> FormPage:
    """Return the field on the screen, or the overview of all answers."""
    return _field_page(form, form.field) if form.field is not None else _overview(form)


def _field_page(form: Form, of: FormField) -> FormPage:
    lines = doubts(of.question, *(text for each in of.options for text in (each.label, each.description)))
    lines += [
        CardLine("? " if number == 0 else "  ", line, Voice.EXACT, f"{GOES_ON} ")
        for number, line in enumerate(escaped(of.question).split("\n"))
    ]
    entry = form.entry
    rows: list[tuple[int, int]] = []
    for index, option in enumerate(of.options):
        first = len(lines)
        gutter = f"{_key(index)} {_box(of, chosen=index in entry.chosen)} "
        lines.append(CardLine(gutter, escaped_name(option.label), Voice.EXACT, f"    {GOES_ON} "))
        if option.description.strip():
            lines.append(CardLine("      ", escaped_name(option.description), Voice.CONTEXT, f"    {GOES_ON} "))
        rows.append((first, len(lines) - 1))
    if of.own_text:
        gutter = f"{_key(len(of.options))} {_box(of, chosen=bool(entry.text))} "
        voice = Voice.EXACT if entry.text else Voice.CCB
        asked = OWN_TEXT if of.options else _ONLY_TEXT
        lines.append(CardLine(gutter, escaped_name(entry.text) or asked, voice, f"    {GOES_ON} "))
        rows.append((len(lines) - 1, len(lines) - 1))
    return FormPage(lines, rows)


def _overview(form: Form) -> FormPage:
    lines: list[CardLine] = []
    rows: list[tuple[int, int]] = []
    for place, (of, entry) in enumerate(zip(form.fields, form.entries, strict=True)):
        first = len(lines)
        question = " ".join(of.question.split("\n"))
        lines.append(CardLine(f"{_key(place)} ", escaped_name(question), Voice.CONTEXT, f"{GOES_ON} "))
        answers = entry.answers(of)
        lines += [CardLine("  → ", escaped_name(answer), Voice.EXACT, f"  {GOES_ON} ") for answer in answers]
        if not answers:
            missing = "no answer" if of.optional else "no answer yet"
            lines.append(CardLine("  → ", missing, Voice.CCB, f"  {GOES_ON} "))
        rows.append((first, len(lines) - 1))
    return FormPage(lines, rows)


def _key(index: int) -> str:
    return str(index + 1) if index < 9 else " "


def _box(of: FormField, *, chosen: bool) -> str:
    if of.several:
        return "☒" if chosen else "☐"
    return "●" if chosen else "○"
