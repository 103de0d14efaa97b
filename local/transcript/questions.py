"""Open questions and forms."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.messages import ControlRequest

Json = dict[str, Any]
Read = Callable[[list[str]], object]

_FORMATS = {
    "email": (re.compile(r"[^@\s]+@[^@\s]+"), "an address such as name@example.com"),
    "uri": (re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+"), "an address such as https://example.com"),
    "date": (re.compile(r"\d{4}-\d\d-\d\d"), "a date such as 2026-01-31"),
    "date-time": (re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d\S*"), "a time such as 2026-01-31T12:00:00Z"),
}


@dataclass(frozen=True)
class ServerForm:
    """A form that can be shown. `readers` turn the answers of each field into its value."""

    form: Form
    readers: Mapping[str, Read]

    def content(self, answers: Answers) -> Json:
        """Return the answers as the server wants them. What was left out is missing."""
        return {key: self.readers[key](given) for key, given in answers.items() if given and key in self.readers}


@dataclass(frozen=True)
class _Field:
    field: FormField
    read: Read
    entry: FormEntry


def read_server_form(message: str, schema: object) -> ServerForm | None:
    """Return the form of a schema, with the message above its first question; None if it cannot be shown."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(properties) > MAX_FIELDS or len(str(schema)) + len(message) > MAX_CHARS:
        return None
    if not properties:
        return ServerForm(Form((yes_only("", message, "yes"),)), {})
    listed = schema.get("required") if isinstance(schema, dict) else None
    required = listed if isinstance(listed, list) else []
    fields: list[_Field] = []
    for key, described in properties.items():
        above = f"{message}\n" if not fields else ""
        found = (
            _field(str(key), described, above, optional=key not in required) if isinstance(described, dict) else None
        )
        if found is None:
            return None
        fields.append(found)
    form = Form(tuple(each.field for each in fields))
    form.entries = [each.entry for each in fields]
    return ServerForm(form, {each.field.key: each.read for each in fields})


def yes_only(key: str, question: str, answer: str) -> FormField:
    """Return a question that is answered with one word, or declined."""
    return FormField(key, question, options=(FormOption(answer),), own_text=False)


def _field(key: str, described: Json, above: str, *, optional: bool) -> _Field | None:
    title, description = str(described.get("title") or key), described.get("description")
    question = f"{above}{title}" + (f": {description}" if description else "") + (" (optional)" if optional else "")
    kind, default = described.get("type"), described.get("default")
    if kind == "boolean":
        options: list[tuple[object, str]] = [(True, "yes"), (False, "no")]
    elif kind == "array":
        items = described.get("items")
        options = _options(items) if isinstance(items, dict) else []
    else:
        options = _options(described)
    if options or kind == "array":
        return _choice(FormField(key, question, title, several=kind == "array", optional=optional), options, default)
    if kind not in ("string", "number", "integer"):
        return None
    entry = FormEntry(text="" if default is None else str(default))
    field = FormField(key, question, title, optional=optional, problem=_problem(described))
    return _Field(field, lambda given: _typed(str(kind), given[-1]), entry)


def _choice(asked: FormField, options: list[tuple[object, str]], default: object) -> _Field | None:
    if not 0 < len(options) <= MAX_OPTIONS:
        return None
    labels = [label for _, label in options]
    if len(set(labels)) < len(labels):  # else an answer would mean two things
        labels = [str(value) for value, _ in options]
    values = {label: value for label, (value, _) in zip(labels, options, strict=True)}
    chosen = default if isinstance(default, list) else [default]
    entry = FormEntry([index for index, (value, _) in enumerate(options) if value in chosen and default is not None])
    field = FormField(
        asked.key,
        asked.question,
        asked.header,
        tuple(FormOption(label) for label in labels),
        several=asked.several,
        own_text=False,
        optional=asked.optional,
    )
    if asked.several:
        return _Field(field, lambda given: [values[label] for label in given], entry)
    return _Field(field, lambda given: values[given[0]], entry)


def _options(described: Json) -> list[tuple[object, str]]:
    for key in ("oneOf", "anyOf"):
        listed = described.get(key)
        if isinstance(listed, list):
            return [
                (each["const"], str(each.get("title") or each["const"]))
                for each in listed
                if isinstance(each, dict) and isinstance(each.get("const"), str)
            ]
    values, names = described.get("enum"), described.get("enumNames")
    if not isinstance(values, list):
        return []
    shown = names if isinstance(names, list) and len(names) == len(values) else values
    return [(value, str(name)) for value, name in zip(values, shown, strict=True) if isinstance(value, str)]


def _typed(kind: str, text: str) -> object:
    if kind == "integer":
        return int(text)
    return float(text) if kind == "number" else text


def _problem(described: Json) -> Callable[[str], str]:
    """Return what says why a typed answer cannot be taken."""
    kind = described.get("type")

    def problem(text: str) -> str:
        if kind == "string":
            pattern, wanted = _FORMATS.get(str(described.get("format")), (None, ""))
            if pattern is not None and not pattern.fullmatch(text):
                return f"Wanted: {wanted}."
            return _outside(len(text), described.get("minLength"), described.get("maxLength"), "characters")
        try:
            number = int(text) if kind == "integer" else float(text)
        except ValueError:
            return f"Wanted: {'a whole number' if kind == 'integer' else 'a number'}."
        if number != number or number in (float("inf"), float("-inf")):
            return "Wanted: a number."
        return _outside(number, described.get("minimum"), described.get("maximum"), "")

    return problem


def _outside(value: float, least: object, most: object, unit: str) -> str:
    if isinstance(least, int | float) and value < least:
        return f"Wanted: at least {least:g} {unit}".rstrip() + "."
    if isinstance(most, int | float) and value > most:
        return f"Wanted: at most {most:g} {unit}".rstrip() + "."
    return ""


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
    fields = [_form_field(each) for each in questions]
    read = tuple(each for each in fields if each is not None)
    if len(read) < len(fields) or len({each.key for each in read}) < len(read):
        return None
    return Form(read)


def _form_field(value: object) -> FormField | None:
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


_MAX_ANSWERED = 1_000
_QUIET_S = 0.2  # without an event, after the last one that the host had when this client attached
_PATIENCE_S = 2.0  # without an event, if the end of the replay does not come


class ReplayMonitor:
    """Tells whether the events that come had happened before this client attached. The answer to a question may come
    two events later, so questions are shown only when the replay is over. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._replaying = False
        self._last_at = 0.0
        self.seq = 0
        """The number of the last event that came."""

    def event_came(self, seq: int, now: float, *, replayed: bool) -> None:
        """Note an event."""
        self.seq = max(self.seq, seq)
        self._last_at, self._replaying = now, replayed

    def over(self, last_seq: int, now: float) -> bool:
        """Return whether the replay is over. `last_seq` is the newest event that the host is known to have."""
        silence = now - self._last_at
        if self._replaying and silence > (_QUIET_S if self.seq >= last_seq else _PATIENCE_S):
            self._replaying = False
        return not self._replaying


class OpenQuestions:
    """The open questions in the order in which they were asked. A question that was answered here never opens again.
    `changed` is called after each change."""

    def __init__(self, changed: Callable[[], object] = lambda: None) -> None:
        self._changed = changed
        self._open: dict[str, ControlRequest] = {}
        self._seen: set[str] = set()  # ids of open questions that the person has seen
        self._answered: deque[str] = deque(maxlen=_MAX_ANSWERED)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def head(self) -> ControlRequest | None:
        """The question to show."""
        return next(iter(self._open.values()), None)

    def show_head(self) -> ControlRequest | None:
        """Return the question to show. The person now knows of it and of all others."""
        self._seen.update(self._open)
        return self.head

    def __iter__(self) -> Iterator[ControlRequest]:
        return iter(list(self._open.values()))

    def walk(self, by: int) -> None:
        """Show the next question (`by` is 1) or the one before (-1). The last and the first are neighbours."""
        ids = list(self._open)
        ids = ids[by:] + ids[:by]
        self._open = {each: self._open[each] for each in ids}
        self._changed()

    def opened(self, request: ControlRequest) -> bool:
        """The worker asks. Return False if the question is known already."""
        known = request.request_id in self._open or request.request_id in self._answered
        if not known:
            self._open[request.request_id] = request
            self._changed()
        return not known

    def replace_all(self, requests: Iterable[ControlRequest]) -> bool:
        """Exactly these questions are open. Return whether one that the person has seen is no longer among them."""
        wanted = {each.request_id: each for each in requests if each.request_id not in self._answered}
        gone = self._seen - wanted.keys()
        self._open = wanted
        self._seen &= wanted.keys()
        self._changed()
        return bool(gone)

    def closed(self, request_id: str) -> bool:
        """A question was withdrawn or answered. Return whether the person had seen it."""
        seen = request_id in self._seen
        self._open.pop(request_id, None)
        self._seen.discard(request_id)
        self._changed()
        return seen

    def answered(self, request_id: str) -> ControlRequest | None:
        """The person has answered a question here. Return it, None if it is not open any more."""
        question = self._open.get(request_id)
        self.closed(request_id)
        self._answered.append(request_id)
        return question

    def not_answered(self, request: ControlRequest) -> None:
        """The answer could not be sent: the question is open again, before all others."""
        if request.request_id in self._answered:
            self._answered.remove(request.request_id)
        self._open = {request.request_id: request, **self._open}
        self._changed()

    def clear(self) -> None:
        """Nothing is asked any more: the session has ended."""
        self._open.clear()
        self._seen.clear()
        self._changed()
