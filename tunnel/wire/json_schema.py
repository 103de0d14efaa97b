"""JSON Schemas that others have written, within what the APIs of models take. What is left out only widens a schema."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Union

from .dataclass import dataclass
from .frames import Json

Schema = Union[Json, bool]
TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_MAX_DEPTH = 60
_MAX_PARTS = 5_000  # names and branches that the root of a schema gets from others, which may lead to each other
_MAX_RULES = 1000  # characters of what a description says in the place of the schema
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # a property, as the API of Claude models takes it

SINGLE_SCHEMAS = ("items", "not", "if", "then", "else", "contains", "propertyNames", "additionalProperties",
                  "additionalItems", "unevaluatedItems", "unevaluatedProperties", "contentSchema")  # fmt: skip
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains",
           "maxContains")  # fmt: skip
_TEXTS = ("$schema", "$id", "id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$comment", "title", "format",
          "description", "pattern", "contentEncoding", "contentMediaType")  # fmt: skip
_FLAGS = ("uniqueItems", "deprecated", "readOnly", "writeOnly", "nullable")
_ROOT_RULES = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", "dependentSchemas")
"""What only a part of the APIs takes at the root of a tool's schema."""


@dataclass(frozen=True)
class ToolSchema:
    """The schema of a tool for a model. `spelled` holds renamed properties, `rules` what the schema leaves out."""

    schema: Json
    spelled: dict[str, str]
    rules: str


def tool_schema(given: object) -> ToolSchema:
    """Return the schema of a tool, as each API takes it."""
    spelled: dict[str, str] = {}
    root = cleaned(given, spelled)
    rules = {name: each for name, each in root.items() if name in _ROOT_RULES} if isinstance(root, dict) else {}
    said = json.dumps(rules, ensure_ascii=False, separators=(",", ":"))[:_MAX_RULES] if rules else ""
    return ToolSchema(plain_root(root), spelled, said)


def restored(value: object, spelled: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {spelled.get(name, name): restored(each, spelled) for name, each in value.items()}
    return [restored(each, spelled) for each in value] if isinstance(value, list) else value


def plain_root(root: object) -> Json:
    """Return a cleaned schema with a plain object at its root, which has the properties of all branches."""
    given = root if isinstance(root, dict) else {}
    required: dict[str, None] = {}
    branches = _Branches(given)
    branches.gather(given, required, 0)
    left = (*_ROOT_RULES, "$ref", "type", "properties", "required")
    kept = {name: each for name, each in given.items() if name not in left}
    needed = {"required": list(required)} if required else {}
    return {"type": "object", **kept, "properties": branches.properties, **needed}


class _Branches:
    """Gathers the `properties` of a schema and of its branches. Each takes one of the numbers that are left."""

    def __init__(self, root: Json) -> None:
        self.properties: Json = {}
        self._root = root
        self._left = iter(range(_MAX_PARTS))

    def gather(self, schema: Json, required: dict[str, None], depth: int) -> None:
        for (name, each), _ in zip((schema.get("properties") or {}).items(), self._left):
            self.properties.setdefault(name, each)
        required.update((name, None) for name, _ in zip(schema.get("required") or (), self._left))
        if depth >= _MAX_DEPTH:
            return
        for each, _ in zip([*(schema.get("allOf") or ()), _target(schema.get("$ref"), self._root)], self._left):
            if isinstance(each, dict):
                self.gather(each, required, depth + 1)
        for choices in (schema.get("anyOf"), schema.get("oneOf"), (schema.get("then"), schema.get("else"))):
            self._gather_choices(choices or (), required, depth + 1)

    def _gather_choices(self, choices: Sequence[object], required: dict[str, None], depth: int) -> None:
        needed: list[dict[str, None]] = []
        for each, _ in zip(choices, self._left):
            needed.append({})
            if isinstance(each, dict):
                self.gather(each, needed[-1], depth)
        if needed and len(needed) == len(choices):
            required.update((name, None) for name in needed[0] if all(name in each for each in needed))


def _target(reference: object, root: Json) -> object:
    match = re.fullmatch(r"#/(\$defs|definitions)/([^/]+)", reference) if isinstance(reference, str) else None
    return (root.get(match[1]) or {}).get(match[2]) if match else None


def cleaned(schema: object, spelled: dict[str, str] | None, depth: int = 0) -> Schema:
    """Return a schema without what is no JSON Schema of today. `spelled` gets properties that are renamed."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return {}
    found: Json = {}
    for name, value in schema.items():
        kept = _keyword(str(name), value, schema, spelled, depth + 1)
        if kept is not None:
            found[str(name)] = kept
    if isinstance(found.get("items"), list):  # a tuple, as older drafts spell it
        rest = found.pop("additionalItems", None)
        found.setdefault("prefixItems", found.pop("items"))
        found.update({"items": rest} if rest is not None else {})
    return found


def _keyword(name: str, value: Any, schema: Json, spelled: dict[str, str] | None, depth: int) -> Any:
    if name in _SCHEMAS:
        return _cleaned_parts(name, value, spelled, depth)
    if name == "required":
        names = [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
        return [_spelling(each, spelled) for each in dict.fromkeys(names)] or None
    if name in _NUMBERS and value is True and name.startswith("exclusive"):  # as draft 4 spells it
        value = schema.get(name[9:].lower())
    if name in _READERS:
        return _READERS[name](value)
    return value if value is not None or name in ("const", "default") else None


_SCHEMAS = {*SINGLE_SCHEMAS, *SCHEMA_LISTS, *SCHEMA_MAPS}


def _cleaned_parts(name: str, value: Any, spelled: dict[str, str] | None, depth: int) -> Any:
    if name in SCHEMA_MAPS:
        if not isinstance(value, dict):
            return None
        listed = {str(key): cleaned(each, spelled, depth) for key, each in value.items()}
        return _named(listed, spelled) if name == "properties" else listed
    if isinstance(value, list) and (name in SCHEMA_LISTS or name == "items"):
        return [cleaned(each, spelled, depth) for each in value] or None
    is_one = name in SINGLE_SCHEMAS and isinstance(value, (dict, bool))
    return cleaned(value, spelled, depth) if is_one else None


def _type(value: Any) -> Any:
    if isinstance(value, list):
        return list(dict.fromkeys(each for each in value if each in TYPES)) or None
    return value if isinstance(value, str) and value in TYPES else None


def _dependencies(value: Any) -> Any:
    pairs = value.items() if isinstance(value, dict) else ()
    is_names = {key: isinstance(each, list) and all(isinstance(name, str) for name in each) for key, each in pairs}
    return {key: each for key, each in pairs if is_names[key]} or None


_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_NUMBERS, lambda value: value if is_number(value) else None),
    **dict.fromkeys(_COUNTS, lambda value: int(value) if is_number(value) and value == int(value) >= 0 else None),
    **dict.fromkeys(_TEXTS, lambda value: value if isinstance(value, str) else None),
    **dict.fromkeys(_FLAGS, lambda value: value if isinstance(value, bool) else None),
    **dict.fromkeys(("enum", "examples"), lambda value: value if isinstance(value, list) and value else None),
    **dict.fromkeys(("dependentRequired", "dependencies"), _dependencies),
    "multipleOf": lambda value: value if is_number(value) and value > 0 else None,
    "type": _type,
}
"""Returns the value of a keyword, by its name."""


def _named(properties: Json, spelled: dict[str, str] | None) -> Json:
    found: Json = {}
    for name, each in properties.items():
        spelling = _spelling(name, spelled)
        if spelling != name and isinstance(each, dict):
            each = {**each, "description": f"{name[:200]}: {each.get('description', '')}".rstrip(": ")}
        found[spelling] = each
    return found


def _spelling(name: str, spelled: dict[str, str] | None) -> str:
    if spelled is None or _KEY.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    spelling = f"{re.sub('[^A-Za-z0-9_.-]', '_', name)[:55]}_{digest}"
    spelled[spelling] = name
    return spelling


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value - value == 0
