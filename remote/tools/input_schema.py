"""The JSON schemas of tools, and checks of inputs. What cannot be judged here, as of MCP servers, fits."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Callable

from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.json_schema import TYPES, is_number

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
    return {"type": "boolean", **more, "description": description}


def choice(description: str, *values: str) -> Json:
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


def _check_parts(value: Any, schema: Json, path: str, found: list[str]) -> None:
    where, enum, items = _where(path), schema.get("enum"), schema.get("items")
    if isinstance(enum, list) and 0 < len(enum) <= _MAX_ENUM and value not in enum:
        found.append(f"{where} must be one of {', '.join(map(repr, enum))}")
    for kind, name, is_wrong, words in _LIMITS:
        limit: Any = schema.get(name)
        if _is(value, kind) and is_number(limit) and is_wrong(value if kind == "number" else len(value), limit):
            found.append(f"{where} {words.format(limit)}")
    if isinstance(value, dict):
        _check_object(value, schema, path, found)
    elif isinstance(value, list):
        for i, item in enumerate(value if isinstance(items, dict) and not schema.get("prefixItems") else ()):
            _check(item, items, f"{path}[{i}]", found)


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


_LIMITS: tuple[tuple[str, str, Callable[..., bool], str], ...] = (
    ("array", "minItems", operator.lt, "needs at least {} items"),
    ("array", "maxItems", operator.gt, "takes at most {} items"),
    ("string", "minLength", operator.lt, "needs at least {} characters"),
    ("string", "maxLength", operator.gt, "takes at most {} characters"),
    ("number", "minimum", operator.lt, "must be at least {}"),
    ("number", "maximum", operator.gt, "must be at most {}"),
    ("number", "exclusiveMinimum", operator.le, "must be more than {}"),
    ("number", "exclusiveMaximum", operator.ge, "must be less than {}"),
)


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


_KINDS = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object"))


def _kind(value: object) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "null")
