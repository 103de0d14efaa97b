"""The text of a settings file: keys that stand twice, and the lines of values."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ccb.tunnel.wire.settings_text import line_of, lines_in, load_settings

TEXT = """{
  "permissions": {
    "deny": ["Read(a)",
      "Read(\\"b\\")"]
  },
  "env": {"A": 1, "A": 2},
  "permissions": {"deny": ["Read(c)"], "allow": []},
  "hooks": {"Stop": [{"hooks": [
    {"type": "command"},
    {"type":
      "prompt"}]}]}
}"""


def test_a_key_that_stands_twice_hides_nothing() -> None:
    read = load_settings("\ufeff" + TEXT.replace("\n", "\r\n"))
    assert isinstance(read, dict)
    assert read["permissions"] == {"deny": ["Read(a)", 'Read("b")', "Read(c)"], "allow": []}
    assert read["env"] == {"A": 2}
    for first, second, whole in (
        ('{"deny": [1]}', "null", {"deny": [1]}),
        ("[]", '{"deny": [1]}', {"deny": [1]}),
        ('["a"]', '"b"', ["a", "b"]),
        ('{"deny": [1]}', "[2]", [{"deny": [1]}, 2]),
    ):
        assert load_settings(f'{{"a": {first}, "a": {second}}}') == {"a": whole}
    assert lines_in(TEXT)[1] == {"env.A": 6, "permissions": 7}


def test_each_value_has_its_line() -> None:
    for keys, line in (
        (("permissions", "deny", 0), 3),
        (("permissions", "deny", 1), 4),
        (("permissions", "deny", 2), 7),
        (("hooks", "Stop", 0, "hooks", 1), 10),
        (("hooks", "Stop", 0, "hooks", 1, "type"), 11),
        (("hooks", "Stop", 0, "hooks", 1, "command"), 10),
        (("nothing",), 1),
    ):
        assert line_of(TEXT, keys) == line, keys


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def _places(value: Any, above: tuple[str, ...]) -> list[tuple[str, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [above, *(each for key, inner in below for each in _places(inner, (*above, str(key))))]


@given(JSON)
def test_any_json_is_read_and_every_value_found(value: Any) -> None:
    text = json.dumps(value, indent=1)
    assert load_settings(text) == value
    lines, _ = lines_in(text)
    names = {".".join(each) for each in _places(value, ()) if "" not in each}
    assert names - {""} <= {*lines}
