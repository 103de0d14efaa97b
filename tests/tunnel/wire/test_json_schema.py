"""Schemas that servers have written, whatever they hold: as the APIs of models take them, and as inputs are checked."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ccb.remote.tools.input_schema import issues, whole_numbers
from ccb.tunnel.providers.dialect import object_schema
from ccb.tunnel.providers.openai_chat import gemini_schema
from ccb.tunnel.wire.json_schema import restored, tool_schema

KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
WORDS = ("type", "properties", "required", "enum", "const", "items", "prefixItems", "anyOf", "oneOf", "allOf", "not",
         "if", "then", "else", "$ref", "$defs", "definitions", "additionalProperties", "additionalItems",
         "patternProperties", "dependentRequired", "minimum", "exclusiveMinimum", "multipleOf", "minLength",
         "maxItems", "uniqueItems",
         "description", "format", "default", "a", "größe $", "x" * 70)  # fmt: skip
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from((0.5, 5.0)),
    st.sampled_from(("string", "object", "array", "integer", "null", "5", "#/$defs/a", "a", "größe $", "")),
)
ANYTHING = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=25,
)
ODD: tuple[Any, ...] = (
    {"properties": {"a": True}},
    {"properties": {"a": {"anyOf": [True]}}},
    {"properties": {"a": {"required": True, "type": "string"}}, "required": True},
    {"properties": None},
    {"properties": {"a": {"enum": None}}},
    {"properties": {"a": {"type": "string", "maxLength": "5"}}},
    {"properties": {"a": {"description": None, "type": ["string", None]}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"items": [{"type": "string"}]}}},
    {"type": None},
    {"properties": {"a": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}}},
    True,
)


@given(ANYTHING, ANYTHING)
def test_any_schema_becomes_one_that_each_api_takes_and_judges_any_input(schema: Any, value: Any) -> None:
    shown = tool_schema(schema)
    Draft202012Validator.check_schema(shown.schema)
    assert shown.schema["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "if", "not", "enum", "$ref"} & shown.schema.keys()
    assert all(KEY.fullmatch(name) for name in _properties(shown.schema))
    for dialect in (object_schema, gemini_schema):
        made = dialect(schema)
        assert made["type"] == "object" and isinstance(made.get("properties"), dict)
        json.dumps(made, allow_nan=False)
    issues(value, schema)
    whole_numbers(value, schema)


def _properties(schema: Any) -> list[str]:
    """The names of all properties at places where the schema is one."""
    if not isinstance(schema, dict):
        return []
    named = schema.get("properties") or {}
    inner = [*named.values(), schema.get("items"), *(schema.get("prefixItems") or ()), *(schema.get("anyOf") or ())]
    return [*named, *(name for each in inner for name in _properties(each))]


@pytest.mark.parametrize("schema", ODD, ids=str)
def test_what_cannot_be_judged_is_let_through_to_the_server(schema: Any) -> None:
    assert issues({"a": 1 if "minimum" in str(schema) else "abcdefg"}, schema) == []


def test_what_can_be_judged_is_refused() -> None:
    schema = {"properties": {"n": {"type": "integer"}, "never": False}, "required": ["n"]}
    assert issues({"n": 5.0}, schema) == [] and whole_numbers({"n": 5.0, "x": 5.0}, schema) == {"n": 5, "x": 5.0}
    assert issues({"n": 5.5}, schema) == ["`n` is number, expected integer"]
    assert issues({"n": 1, "never": 2}, schema) == ["`never` is not allowed"]


def test_branches_at_the_root_become_properties_and_the_rest_is_said_in_words() -> None:
    by_id = {"properties": {"id": {"type": "string"}}, "required": ["id", "kind"]}
    by_name = {"properties": {"name": {"type": "string"}, "kind": {}}, "required": ["name", "kind"]}
    shown = tool_schema({"properties": {"n": {}}, "required": ["n"], "anyOf": [by_id, by_name]})
    assert list(shown.schema["properties"]) == ["n", "id", "name", "kind"]
    assert shown.schema["required"] == ["n", "kind"]
    assert json.loads(shown.rules) == {"anyOf": [by_id, by_name]}
    named = tool_schema({"$ref": "#/$defs/In", "$defs": {"In": by_id}})
    assert (list(named.schema["properties"]), named.rules) == (["id"], "")


def test_a_property_with_a_name_that_apis_refuse_has_another_one_until_the_call() -> None:
    long, odd = "x" * 65, "größe in $"
    schema = {"properties": {odd: {"type": "integer", "description": "how big"}, long: {}}, "required": [odd]}
    shown = tool_schema(schema)
    (spelled,) = shown.schema["required"]
    assert KEY.fullmatch(spelled) and shown.schema["properties"][spelled]["description"] == "größe in $: how big"
    assert restored({spelled: 3, "list": [{spelled: 4}]}, shown.spelled) == {odd: 3, "list": [{odd: 4}]}
    assert tool_schema(schema) == shown, "the request prefix stays as it is"


def test_definitions_that_name_each_other_do_not_grow_without_end() -> None:
    node = {"properties": {name: {"$ref": "#/$defs/N"} for name in "abcd"}}
    assert len(json.dumps(gemini_schema({"properties": {"root": {"$ref": "#/$defs/N"}}, "$defs": {"N": node}}))) < 10**6
