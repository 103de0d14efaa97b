"""Checks the input of a tool against its JSON schema. Supports the part of JSON schema that tools use."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_MAX_ISSUES = 10


def issues(value: object, schema: Json) -> list[str]:
    """Return what is wrong with `value`, a sentence for each issue; empty when it fits the schema."""
    found: list[str] = []
    _check(value, schema, "", found)
    return found[:_MAX_ISSUES]


def _check(value: object, schema: Json, path: str, found: list[str]) -> None:
    where = _where(path)
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        if all(issues(value, choice) for choice in choices):
            found.append(f"{where} fits none of the allowed forms")
        return
    kinds = _kinds(schema)
    if kinds and not any(_is(value, name) for name in kinds):
        found.append(f"{where} is {_kind(value)}, expected {' or '.join(kinds)}")
        return
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where} must be one of {', '.join(map(repr, schema['enum']))}")
    if isinstance(value, dict):
        _check_object(value, schema, path, found)
    elif isinstance(value, list):
        _check_array(value, schema, path, found)
    elif isinstance(value, str):
        _check_size(len(value), schema, "Length", where, "characters", found)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_range(value, schema, where, found)


def _check_object(value: Json, schema: Json, path: str, found: list[str]) -> None:
    properties = schema.get("properties", {})
    found.extend(
        f"the required parameter `{_join(path, name)}` is missing"
        for name in schema.get("required", [])
        if name not in value
    )
    for name, item in value.items():
        if name in properties:
            _check(item, properties[name], _join(path, name), found)
        elif schema.get("additionalProperties") is False:
            found.append(f"an unexpected parameter `{_join(path, name)}` was given")


def _check_array(value: list[Any], schema: Json, path: str, found: list[str]) -> None:
    _check_size(len(value), schema, "Items", _where(path), "items", found)
    if isinstance(schema.get("items"), dict):
        for i, item in enumerate(value):
            _check(item, schema["items"], f"{path}[{i}]", found)


def _check_size(size: int, schema: Json, suffix: str, where: str, unit: str, found: list[str]) -> None:
    least, most = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if least is not None and size < least:
        found.append(f"{where} needs at least {least} {unit}")
    if most is not None and size > most:
        found.append(f"{where} takes at most {most} {unit}")


def _check_range(value: float, schema: Json, where: str, found: list[str]) -> None:
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{where} must be at least {schema['minimum']}")
    if "maximum" in schema and value > schema["maximum"]:
        found.append(f"{where} must be at most {schema['maximum']}")
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        found.append(f"{where} must be more than {schema['exclusiveMinimum']}")
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        found.append(f"{where} must be less than {schema['exclusiveMaximum']}")


def _where(path: str) -> str:
    return f"`{path}`" if path else "the input"


def _kinds(schema: Json) -> list[str]:
    """Return the types the schema allows; empty when it allows all."""
    kind = schema.get("type") or []
    return kind if isinstance(kind, list) else [kind]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is(value: object, kind: str) -> bool:
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
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
