"""Changing one value in the text of a settings file."""

from __future__ import annotations

import pytest

from ccb.local.config.settings_file import changed

FOUR = '{\n    "b": 1,\n    "a": {"é": 2}\n}'


@pytest.mark.parametrize(
    "text, keys, value, after",
    [
        ("", "a", 1, '{\n  "a": 1\n}\n'),
        (FOUR, "a.z", 3, FOUR.replace('{"é": 2}', '{\n        "é": 2,\n        "z": 3\n    }') + "\n"),
        ('{\n\t"b": 1,\n\t"a": 1\n}', "b", None, '{\n\t"a": 1\n}\n'),
        ('{"a": 1}', "a.b", 2, '{\n  "a": {\n    "b": 2\n  }\n}\n'),
        ('{"a": {"b" : 1}}', "a.no", None, '{"a": {"b" : 1}}'),
        ('{"a": 1}', "no.b", None, '{"a": 1}'),
    ],
)
def test_order_and_indentation_stay(text: str, keys: str, value: object, after: str) -> None:
    assert changed("settings.json", text, keys.split("."), value) == after
