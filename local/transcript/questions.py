"""Open questions and forms."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from typing import Any

from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, TRUST_PROJECT, AnsweredBy, RequestKind, Success
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.mcp_messages import ELICITATION
from ccb.tunnel.wire.messages import ControlRequest, as_blocks, as_dict

_FORMATS = {
    "email": (re.compile(r"[^@\s]+@[^@\s]+"), "an address such as name@example.com"),
    "uri": (re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+"), "an address such as https://example.com"),
    "date": (re.compile(r"\d{4}-\d\d-\d\d"), "a date such as 2026-01-31"),
    "date-time": (re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d\S*"), "a time such as 2026-01-31T12:00:00Z"),
}


MAX_FIELDS = 20
MAX_OPTIONS = 100
MAX_CHARS = 100_000  # the most questions, options of one question, and characters of a form that is shown
Answers = dict[str, list[str]]


@dataclass(frozen=True)
class FormOption:
    label: str
    description: str = ""


@dataclass(frozen=True)
class FormField:
    """One question. `several`: more than one option may be chosen. `own_text`: an answer may be typed."""

    key: str
    question: str
    header: str = ""
    options: tuple[FormOption, ...] = ()
    several: bool = False
    own_text: bool = True
    optional: bool = False
    problem: Callable[[str], str] = lambda text: ""
    read: Callable[[list[str]], object] | None = None  # makes the value that a server wants of the answers

    @property
    def rows(self) -> int:
        return len(self.options) + self.own_text


@dataclass
class FormEntry:
    chosen: list[int] = field(default_factory=list)
    text: str = ""

    def answers(self, of: FormField) -> list[str]:
        """Return the answers in the order of the options; the person's own text comes last."""
        return [of.options[index].label for index in sorted(self.chosen)] + ([self.text] if self.text else [])


@dataclass
class Form:
    """Some fields and what was chosen in them. `place` is the field on the screen; behind the last is the overview."""

    fields: tuple[FormField, ...]
    entries: list[FormEntry] = field(default_factory=list)
    place: int = 0

    def __post_init__(self) -> None:
        self.entries = self.entries or [FormEntry() for _ in self.fields]

    @property
    def field(self) -> FormField | None:
        return self.fields[self.place] if self.place < len(self.fields) else None

    @property
    def entry(self) -> FormEntry:
        return self.entries[self.place]

    @property
    def has_overview(self) -> bool:
        return len(self.fields) > 1

    def go(self, by: int) -> bool:
        place = self.place + by
        if not 0 <= place < len(self.fields) + self.has_overview:
            return False
        self.place = place
        return True

    def toggle(self, index: int) -> None:
        self.entry.chosen = sorted({*self.entry.chosen} ^ {index})

    def choose(self, index: int) -> None:
        self.entries[self.place] = FormEntry([index])

    def answered(self, place: int) -> bool:
        return bool(self.entries[place].answers(self.fields[place])) or self.fields[place].optional

    @property
    def missing(self) -> int:
        return next((place for place in range(len(self.fields)) if not self.answered(place)), -1)

    @property
    def answers(self) -> Answers:
        return {each.key: entry.answers(each) for each, entry in zip(self.fields, self.entries, strict=True)}

    def content(self, answers: Answers) -> Json:
        given = ((each, answers.get(each.key)) for each in self.fields)
        return {each.key: each.read(found) for each, found in given if found and each.read}


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
        for each in as_blocks(listed)
        if isinstance(each.get("label"), str) and each["label"].strip()
    )
    if len(options) < len(listed):
        return None
    question = value["question"]
    return FormField(question, question, str(value.get("header") or ""), options, value.get("multiSelect") is True)


def read_server_form(message: str, schema: object) -> Form | None:
    """Return the form of a schema, with the message above its first question; None if it cannot be shown."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or len(properties) > MAX_FIELDS or len(str(schema)) + len(message) > MAX_CHARS:
        return None
    if not properties:
        return Form((yes_only(message, "yes"),))
    listed = schema.get("required") if isinstance(schema, dict) else None
    required = listed if isinstance(listed, list) else []
    fields: list[FormField] = []
    entries: list[FormEntry] = []
    for key, described in properties.items():
        above = f"{message}\n" if not fields else ""
        if not isinstance(described, dict) or not (
            found := _server_field(str(key), described, above, optional=key not in required)
        ):
            return None
        fields.append(found[0])
        entries.append(found[1])
    return Form(tuple(fields), entries)


def yes_only(question: str, answer: str) -> FormField:
    return FormField("", question, options=(FormOption(answer),), own_text=False)


def _server_field(key: str, described: Json, above: str, *, optional: bool) -> tuple[FormField, FormEntry] | None:
    title, description = str(described.get("title") or key), described.get("description")
    question = f"{above}{title}" + (f": {description}" if description else "") + (" (optional)" if optional else "")
    kind, default = described.get("type"), described.get("default")
    field = FormField(key, question, title, optional=optional)
    if kind == "boolean":
        options: list[tuple[object, str]] = [(True, "yes"), (False, "no")]
    elif kind == "array":
        options = _options(as_dict(described.get("items")))
    else:
        options = _options(described)
    if options or kind == "array":
        return _choice(field, options, default, several=kind == "array")
    typed = {"string": str, "number": float, "integer": int}.get(str(kind))
    if typed is None:
        return None
    field = replace(field, problem=_problem(described), read=lambda given: typed(given[-1]))
    return field, FormEntry(text="" if default is None else str(default))


def _choice(
    field: FormField, options: list[tuple[object, str]], default: object, *, several: bool
) -> tuple[FormField, FormEntry] | None:
    if not 0 < len(options) <= MAX_OPTIONS:
        return None
    labels = [label for _, label in options]
    if len(set(labels)) < len(labels):  # else an answer would mean two things
        labels = [str(value) for value, _ in options]
    values = {label: value for label, (value, _) in zip(labels, options, strict=True)}
    chosen = default if isinstance(default, list) else [default]
    entry = FormEntry([index for index, (value, _) in enumerate(options) if value in chosen and default is not None])

    def read(given: list[str]) -> object:
        return [values[label] for label in given] if several else values[given[0]]

    return replace(field, options=tuple(map(FormOption, labels)), several=several, own_text=False, read=read), entry


def _options(described: Json) -> list[tuple[object, str]]:
    for key in ("oneOf", "anyOf"):
        if isinstance(described.get(key), list):
            listed = [each for each in as_blocks(described[key]) if isinstance(each.get("const"), str)]
            return [(each["const"], str(each.get("title") or each["const"])) for each in listed]
    values, names = described.get("enum"), described.get("enumNames")
    if not isinstance(values, list):
        return []
    shown = names if isinstance(names, list) and len(names) == len(values) else values
    return [(value, str(name)) for value, name in zip(values, shown, strict=True) if isinstance(value, str)]


def _problem(described: Json) -> Callable[[str], str]:
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


ASKED: tuple[RequestKind[Any, Any], ...] = (CAN_USE_TOOL, ELICITATION, TRUST_PROJECT)
"""The requests of the worker that the person answers."""


@dataclass(frozen=True)
class ReversedPort:
    """Programs of `host` are to reach `port` of this machine."""

    host: str
    port: int

    @property
    def question(self) -> str:
        return f"Let {self.host} reach port {self.port} of this laptop?"

    @property
    def facts(self) -> tuple[str, str]:
        there = f"Programs of all users of the host reach it at 127.0.0.1:{self.port} there."
        return there, f"/ports stop {self.port} ends that."


REVERSE_PORT: RequestKind[ReversedPort, bool] = RequestKind(
    "reverse_port",
    AnsweredBy.LAPTOP,
    lambda answer: isinstance(answer, Success) and (answer.payload or {}).get("allowed") is True,  # else no
    write=lambda asked: {"input": {"host": asked.host, "port": asked.port}},
)
"""Only this laptop itself asks that: a worker that does is refused."""

_NAMES = frozenset(kind.name for kind in (*ASKED, REVERSE_PORT))
_MAX_ANSWERED = 1_000


def is_for_person(request: ControlRequest) -> bool:
    return request.subtype in _NAMES


class OpenQuestions:
    """The open questions in order. One that was answered here never opens again. `changed` is called after changes."""

    def __init__(self, changed: Callable[[], object] = lambda: None) -> None:
        self._changed = changed
        self._open: dict[str, ControlRequest] = {}
        self._seen: set[str] = set()  # ids of open questions that the person has seen
        self._answered: deque[str] = deque(maxlen=_MAX_ANSWERED)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def head(self) -> ControlRequest | None:
        return next(iter(self._open.values()), None)

    def show_head(self) -> ControlRequest | None:
        self._seen.update(self._open)
        return self.head

    def __iter__(self) -> Iterator[ControlRequest]:
        return iter(list(self._open.values()))

    def walk(self, by: int) -> None:
        ids = list(self._open)
        ids = ids[by:] + ids[:by]
        self._open = {each: self._open[each] for each in ids}
        self._changed()

    def opened(self, request: ControlRequest) -> bool:
        """Take a request that came. Return whether it is a new question to the person."""
        known = request.request_id in self._open or request.request_id in self._answered
        is_new = is_for_person(request) and not known
        if is_new:
            self._open[request.request_id] = request
            self._changed()
        return is_new

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
        if request.request_id in self._answered:
            self._answered.remove(request.request_id)
        self._open = {request.request_id: request, **self._open}
        self._changed()

    def clear(self) -> None:
        self._open.clear()
        self._seen.clear()
        self._changed()
