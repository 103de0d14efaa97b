"""A form that the person fills in: a few questions, each with options to choose from, a text to type, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

Json = dict[str, Any]

MAX_FIELDS = 20
MAX_OPTIONS = 100
MAX_CHARS = 100_000
"""The most questions, options of one question, and characters of a form that is shown."""

Answers = dict[str, list[str]]


@dataclass(frozen=True)
class FormOption:
    """One option. `label` is what is answered, `description` says more."""

    label: str
    description: str = ""


@dataclass(frozen=True)
class FormField:
    """One question. `key` names its answer. `several`: more than one option may be chosen. `own_text`: the person may
    type an answer. `optional`: no answer is fine. `problem` returns why a typed answer cannot be taken, or ""."""

    key: str
    question: str
    header: str = ""
    options: tuple[FormOption, ...] = ()
    several: bool = False
    own_text: bool = True
    optional: bool = False
    problem: Callable[[str], str] = lambda text: ""

    @property
    def rows(self) -> int:
        """The number of rows to choose from: the options, and one for a typed answer."""
        return len(self.options) + self.own_text


@dataclass
class FormEntry:
    """What the person has chosen so far in one field: the indexes of options, and a text of their own."""

    chosen: list[int] = field(default_factory=list)
    text: str = ""

    def answers(self, of: FormField) -> list[str]:
        """Return the answers in the order of the options; the person's own text comes last."""
        return [of.options[index].label for index in sorted(self.chosen)] + ([self.text] if self.text else [])


@dataclass
class Form:
    """Some fields and what was chosen in them. `place` is the index of the field on the screen; after the last one
    comes the overview of all answers."""

    fields: tuple[FormField, ...]
    place: int = 0

    def __post_init__(self) -> None:
        self.entries = [FormEntry() for _ in self.fields]

    @property
    def field(self) -> FormField | None:
        """The field on the screen; None for the overview."""
        return self.fields[self.place] if self.place < len(self.fields) else None

    @property
    def entry(self) -> FormEntry:
        """What was chosen in the field on the screen."""
        return self.entries[self.place]

    @property
    def has_overview(self) -> bool:
        """Whether the answers are shown once more before they are given: there are several."""
        return len(self.fields) > 1

    def go(self, by: int) -> bool:
        """Go to another field, or to the overview. Return whether there is one in that direction."""
        place = self.place + by
        if not 0 <= place < len(self.fields) + self.has_overview:
            return False
        self.place = place
        return True

    def toggle(self, index: int) -> None:
        """Choose an option, or choose it no longer."""
        chosen = self.entry.chosen
        if index in chosen:
            chosen.remove(index)
        else:
            chosen.append(index)

    def choose(self, index: int) -> None:
        """Choose this option and no other."""
        self.entries[self.place] = FormEntry([index])

    def answered(self, place: int) -> bool:
        """Return whether a field has an answer, or needs none."""
        return bool(self.entries[place].answers(self.fields[place])) or self.fields[place].optional

    @property
    def missing(self) -> int:
        """The index of the first field without an answer, or -1."""
        return next((place for place in range(len(self.fields)) if not self.answered(place)), -1)

    @property
    def answers(self) -> Answers:
        """The answers by the keys of their fields."""
        return {each.key: entry.answers(each) for each, entry in zip(self.fields, self.entries, strict=True)}


def read_questions(tool_input: Json) -> Form | None:
    """Return the form of a call that asks questions; None if the input is not one, or too long to be shown."""
    questions = tool_input.get("questions")
    if not isinstance(questions, list) or not 0 < len(questions) <= MAX_FIELDS or len(str(questions)) > MAX_CHARS:
        return None
    fields = [_field(each) for each in questions]
    read = tuple(each for each in fields if each is not None)
    if len(read) < len(fields) or len({each.key for each in read}) < len(read):
        return None
    return Form(read)


def _field(value: object) -> FormField | None:
    if not isinstance(value, dict) or not isinstance(value.get("question"), str) or not value["question"]:
        return None
    listed = value.get("options")
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_OPTIONS:
        return None
    options = tuple(
        FormOption(each["label"], str(each.get("description") or ""))
        for each in listed
        if isinstance(each, dict) and isinstance(each.get("label"), str) and each["label"].strip()
    )
    if len(options) < len(listed):
        return None
    question = value["question"]
    return FormField(question, question, str(value.get("header") or ""), options, value.get("multiSelect") is True)
