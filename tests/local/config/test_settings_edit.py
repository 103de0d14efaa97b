"""Changing one value in the text of a settings file leaves the rest of it alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.local.config.settings_edit import edited

FOUR = '{\r\n    "b": [1,2],\r\n    "a" : {"x": 1 , "y":"é"}\r\n}\r\n'


@pytest.mark.parametrize(
    "text, keys, value, after",
    [
        ("{}\n", "a", 1, '{\n  "a": 1\n}\n'),
        (FOUR, "a.x", [2], FOUR.replace('"x": 1 ', '"x": [\r\n        2\r\n    ] ')),
        (FOUR, "a.z", "ü", FOUR.replace('"é"}', '"é", "z": "ü"}')),
        (FOUR, "c.d", True, FOUR.replace('"é"}', '"é"},\r\n    "c": {\r\n        "d": true\r\n    }')),
        (FOUR, "b", None, FOUR.replace('"b": [1,2],\r\n    ', "")),
        (FOUR, "a", None, FOUR.replace(',\r\n    "a" : {"x": 1 , "y":"é"}', "")),
        (FOUR, "a.no", None, FOUR),
        ('{"a": 1}', "a.b", 2, '{"a": {\n  "b": 2\n}}'),
        ('\n{ "a": 1 }', "a", None, "\n{}"),
    ],
)
def test_every_other_byte_stays(text: str, keys: str, value: object, after: str) -> None:
    assert edited(text, keys.split("."), value) == after


names = st.sampled_from(["a", "b", '"', "{", "é"])
objects = st.recursive(
    st.dictionaries(names, st.integers() | st.text() | st.just([1, {"a": "}"}])),
    lambda inner: st.dictionaries(names, inner),
    max_leaves=8,
)


@given(objects, st.lists(names, min_size=1, max_size=3), st.none() | st.integers() | st.just({"a": [1]}), st.booleans())
def test_the_text_means_what_it_meant_with_the_change(data: Any, keys: list[str], value: object, lines: bool) -> None:
    text = json.dumps(data, indent=3 if lines else None, ensure_ascii=False)
    expected = json.loads(text)
    place = expected
    for key in keys[:-1]:
        if not isinstance(place.get(key), dict):
            if value is None:
                break
            place[key] = {}
        place = place[key]
    else:
        place[keys[-1]] = value
        if value is None:
            del place[keys[-1]]
    assert json.loads(edited(text, keys, value)) == expected
