"""The form of an MCP server: its restricted JSON schema as questions, and the answers as its content."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

from .form import MAX_CHARS, MAX_FIELDS, MAX_OPTIONS, Answers, Form, FormEntry, FormField, FormOption

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
