"""Gemini's schemas, thoughts and signatures."""

from __future__ import annotations

from typing import Any

from .dialect import object_schema
from .json_fields import object_in, text_in

Json = dict[str, Any]


_GEMINI = frozenset(
    {
        *("type", "format", "title", "description", "nullable", "enum", "items", "properties", "required", "anyOf"),
        *("minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength", "pattern"),
    }
)
_GEMINI_FORMATS = {"string": ("enum", "date-time"), "number": ("float", "double"), "integer": ("int32", "int64")}
_MAX_DEPTH = 40
_MAX_PARTS = 4000  # of one schema once its references are replaced


def gemini_schema(schema: object) -> Json:
    """Return a schema with the keywords only that Gemini's parser knows: one unknown keyword fails a whole request."""
    given = object_schema(schema)
    definitions = {**(given.get("definitions") or {}), **(given.get("$defs") or {})}
    return _Gemini(definitions).of(given, 0)


class _Gemini:
    """Writes one schema. References are replaced by what they name, which has a limit: definitions may name each
    other."""

    def __init__(self, definitions: Json) -> None:
        self._definitions = definitions
        self._left = _MAX_PARTS

    def of(self, schema: Json, depth: int) -> Json:
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0:
            return {}
        if reference := text_in(schema, "$ref"):
            target = object_in(self._definitions, reference.rsplit("/", 1)[-1])
            return self.of(target, depth + 1) if target else {}
        kept = {name: value for name, value in schema.items() if name in _GEMINI}
        self._type(kept)
        self._enum(kept, schema)
        kept.pop("anyOf", None)
        kept |= self._choices(schema, depth + 1)
        if "properties" in kept:
            kept["properties"] = {name: self.of(each, depth + 1) for name, each in kept["properties"].items()}
        required = [name for name in kept.pop("required", ()) if name in kept.get("properties", ())]
        kept |= {"required": required} if required else {}
        if "items" in kept:
            kept["items"] = self.of(kept["items"], depth + 1)
        return kept

    def _choices(self, schema: Json, depth: int) -> Json:
        made = [self.of(each, depth) for each in schema.get("oneOf") or schema.get("anyOf") or ()]
        return {"anyOf": made} if made and all(made) else {}  # one that allows anything allows what the others do

    def _type(self, kept: Json) -> None:
        kind = kept.get("type")
        if isinstance(kind, list):
            kept["type"] = next((each for each in kind if each != "null"), "string")
            kept |= {"nullable": True} if "null" in kind else {}

    def _enum(self, kept: Json, schema: Json) -> None:
        """Keep lists of texts, and the formats of the type that the schema has then."""
        enum = kept.pop("enum", None)
        if isinstance(schema.get("const"), str):
            kept |= {"type": "string", "enum": [schema["const"]]}
        elif enum and all(isinstance(each, str) and each for each in enum) and kept.get("type", "string") == "string":
            kept |= {"type": "string", "enum": enum}
        if kept.get("format", "") not in _GEMINI_FORMATS.get(str(kept.get("type")), ()):
            kept.pop("format", None)
