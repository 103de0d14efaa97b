"""Input schemas of tools within what an API takes. What is left out only widens a schema: the worker checks inputs."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_TOP = ("anyOf", "oneOf", "allOf", "enum", "not")
_GEMINI = frozenset(
    {
        *("type", "format", "title", "description", "nullable", "enum", "items", "properties", "required", "anyOf"),
        *("minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength", "pattern"),
    }
)
_GEMINI_FORMATS = {"string": ("enum", "date-time"), "number": ("float", "double"), "integer": ("int32", "int64")}
_MAX_DEPTH = 40


def object_schema(schema: object) -> Json:
    """Return a schema whose top level is a plain object, as OpenAI's API wants it."""
    given = schema if isinstance(schema, dict) else {}
    kept = {name: value for name, value in given.items() if name not in _TOP}
    return {**kept, "type": "object", "properties": kept.get("properties") or {}}


def gemini_schema(schema: object) -> Json:
    """Return a schema with the keywords only that Gemini's parser knows: one unknown keyword fails a whole request."""
    given = schema if isinstance(schema, dict) else {}
    definitions = {**(given.get("$defs") or {}), **(given.get("definitions") or {})}
    return _gemini(object_schema(given), definitions, 0)


def _gemini(schema: Json, definitions: Json, depth: int) -> Json:
    if depth > _MAX_DEPTH:
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = definitions.get(reference.rsplit("/", 1)[-1])
        return _gemini(target, definitions, depth + 1) if isinstance(target, dict) else {}
    kept = {name: value for name, value in schema.items() if name in _GEMINI}
    if "const" in schema and isinstance(schema["const"], str):
        kept |= {"type": "string", "enum": [schema["const"]]}
    choices = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(choices, list):
        kept["anyOf"] = [_gemini(each, definitions, depth + 1) for each in choices if isinstance(each, dict)]
    kind = kept.get("type")
    if isinstance(kind, list):
        kept["type"] = next((each for each in kind if each != "null"), "string")
        kept |= {"nullable": True} if "null" in kind else {}
    if "enum" in kept and not all(isinstance(each, str) for each in kept["enum"]):
        del kept["enum"]
    if "format" in kept and kept["format"] not in _GEMINI_FORMATS.get(str(kept.get("type")), ()):
        del kept["format"]
    if isinstance(kept.get("properties"), dict):
        properties = kept["properties"]
        kept["properties"] = {
            name: _gemini(each, definitions, depth + 1) for name, each in properties.items() if isinstance(each, dict)
        }
        required = kept.get("required")
        if isinstance(required, list):
            kept["required"] = [name for name in required if name in kept["properties"]]
    if isinstance(kept.get("items"), dict):
        kept["items"] = _gemini(kept["items"], definitions, depth + 1)
    elif kept.get("type") == "array":
        kept["items"] = {}
    return kept
