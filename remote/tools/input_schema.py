"""Makes the JSON schemas of tools, and checks inputs against such schemas. Supports the part that tools use.

Schemas of MCP servers may hold anything. What cannot be judged here fits: the server judges it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from ccb.tunnel.wire.json_schema import TYPES, is_number

Json = dict[str, Any]

_MAX_ISSUES = 10
_MAX_ENUM = 1000  # values; a server judges longer lists itself


def object_of(properties: Mapping[str, Json], *required: str, closed: bool = True) -> Json:
    """Return the schema of an object. `closed`: it may have no other properties."""
    schema: Json = {"type": "object", "properties": dict(properties), "required": list(required)}
    return {**schema, "additionalProperties": False} if closed else schema


def text(description: str, least: int | None = None, most: int | None = None) -> Json:
    """Return the schema of a text with at least and at most so many characters."""
    return _limited("string", {"minLength": least, "maxLength": most}, description)


def number(description: str, least: int | None = None, most: int | None = None) -> Json:
    """Return the schema of an integer with its least and greatest value."""
    return _limited("integer", {"minimum": least, "maximum": most}, description)


def flag(description: str, **more: Any) -> Json:
    """Return the schema of a boolean."""
    return {"type": "boolean", **more, "description": description}


def choice(description: str, *values: str) -> Json:
    """Return the schema of a text that is one of these values."""
    return {"type": "string", "enum": list(values), "description": description}


def _limited(kind: str, limits: Json, description: str) -> Json:
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return {"type": kind, **given, "description": description}


def issues(value: object, schema: object) -> list[str]:
    """Return what is wrong with `value`, a sentence for each issue; empty when it fits the schema."""
    found: list[str] = []
    try:
        _check(value, schema, "", found)
    except RecursionError:
        return []
    return found[:_MAX_ISSUES]


def whole_numbers(value: Any, schema: object) -> Any:
    """Return an input in which 5.0 is 5 wherever the schema wants an integer."""
    if not isinstance(schema, dict):
        return value
    if isinstance(value, float) and "integer" in _kinds(schema) and _is(value, "integer"):
        return int(value)
    properties, items = schema.get("properties"), schema.get("items")
    if isinstance(value, dict) and isinstance(properties, dict):
        return {name: whole_numbers(each, properties.get(name)) for name, each in value.items()}
    return [whole_numbers(each, items) for each in value] if isinstance(value, list) else value


def _check(value: object, schema: object, path: str, found: list[str]) -> None:
    where = _where(path)
    if schema is False:
        found.append(f"{where} is not allowed")
    if len(found) >= _MAX_ISSUES or not isinstance(schema, dict) or (value is None and schema.get("nullable") is True):
        return
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list) and choices:
        if all(issues(value, choice) for choice in choices):
            found.append(f"{where} fits none of the allowed forms")
        return
    kinds = _kinds(schema)
    if kinds and not any(_is(value, name) for name in kinds):
        found.append(f"{where} is {_kind(value)}, expected {' or '.join(kinds)}")
        return
    _check_parts(value, schema, path, found)


def _check_parts(value: object, schema: Json, path: str, found: list[str]) -> None:
    where, enum = _where(path), schema.get("enum")
    if isinstance(enum, list) and 0 < len(enum) <= _MAX_ENUM and value not in enum:
        found.append(f"{where} must be one of {', '.join(map(repr, enum))}")
    if isinstance(value, dict):
        _check_object(value, schema, path, found)
    elif isinstance(value, list):
        _check_array(value, schema, path, found)
    elif isinstance(value, str):
        _check_size(len(value), schema, "Length", where, "characters", found)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_range(value, schema, where, found)


def _check_object(value: Json, schema: Json, path: str, found: list[str]) -> None:
    properties, required = schema.get("properties"), schema.get("required")
    properties = properties if isinstance(properties, dict) else {}
    found.extend(
        f"the required parameter `{_join(path, name)}` is missing"
        for name in (required if isinstance(required, list) else ())
        if isinstance(name, str) and name not in value
    )
    closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    for name, item in value.items():
        if name in properties:
            _check(item, properties[name], _join(path, name), found)
        elif closed:
            found.append(f"an unexpected parameter `{_join(path, name)}` was given")


def _check_array(value: list[Any], schema: Json, path: str, found: list[str]) -> None:
    _check_size(len(value), schema, "Items", _where(path), "items", found)
    if isinstance(schema.get("items"), dict) and not schema.get("prefixItems"):
        for i, item in enumerate(value):
            _check(item, schema["items"], f"{path}[{i}]", found)


def _check_size(size: int, schema: Json, suffix: str, where: str, unit: str, found: list[str]) -> None:
    least: Any = schema.get(f"min{suffix}")
    most: Any = schema.get(f"max{suffix}")
    if is_number(least) and size < least:
        found.append(f"{where} needs at least {least} {unit}")
    if is_number(most) and size > most:
        found.append(f"{where} takes at most {most} {unit}")


def _check_range(value: float, schema: Json, where: str, found: list[str]) -> None:
    for name, wrong, words in (
        ("minimum", operator.lt, "at least"),
        ("maximum", operator.gt, "at most"),
        ("exclusiveMinimum", operator.le, "more than"),
        ("exclusiveMaximum", operator.ge, "less than"),
    ):
        limit: Any = schema.get(name)
        if is_number(limit) and wrong(value, limit):
            found.append(f"{where} must be {words} {limit}")


def _where(path: str) -> str:
    return f"`{path}`" if path else "the input"


def _kinds(schema: Json) -> list[str]:
    kind = schema.get("type")
    kinds: list[Any] = kind if isinstance(kind, list) else [kind]
    return kinds if all(each in TYPES for each in kinds) else []


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is(value: object, kind: str) -> bool:
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return _kind(value) == kind


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
