"""Nested values in front matter are read as YAML reads them, or refused."""

from __future__ import annotations

import time

import pytest

from ccb.remote.settings.front_matter import read_markdown, read_nested


def nested(text: str) -> object:
    return read_nested(read_markdown(f"---\nname: x\n{text}\n---\nbody").lines["a"])


HOOKS = """a:
  PreToolUse:
    - matcher: "Bash|Write"   # both
      hooks:
        - type: command
          command: './guard.sh "$1": it''s'
          timeout: 30
          async: true
        -   type: prompt
            prompt: |
              Is this
                good?

              Say so.
  # the end
  Stop:
  - hooks: [{"type": "command", "command": "true"}]"""

SERVERS = """a:
  - notes:
      command: npx
      args: [-y, "@x/notes@latest", 1.5]
      env: {"TOKEN": "${TOKEN}"}
  - tracker
  -
    far:
      url: https://example.com:8080/mcp#x
      'odd key': null"""


def test_hooks_and_servers_are_read() -> None:
    assert nested(HOOKS) == {
        "PreToolUse": [
            {
                "matcher": "Bash|Write",
                "hooks": [
                    {"type": "command", "command": './guard.sh "$1": it\'s', "timeout": 30, "async": True},
                    {"type": "prompt", "prompt": "Is this\n  good?\n\nSay so."},
                ],
            }
        ],
        "Stop": [{"hooks": [{"type": "command", "command": "true"}]}],
    }
    assert nested(SERVERS) == [
        {"notes": {"command": "npx", "args": ["-y", "@x/notes@latest", 1.5], "env": {"TOKEN": "${TOKEN}"}}},
        "tracker",
        {"far": {"url": "https://example.com:8080/mcp#x", "odd key": None}},
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: [x, 'y z']", ["x", "y z"]),
        ('a: {"b": [1]}', {"b": [1]}),
        ("a: one # two", "one"),
        ("a:", None),
        ("a:\n  - - 1\n    - 007\n  - x", [[1, "007"], "x"]),
        ("a:\n  b: >\n    one\n    two", {"b": "one two"}),
    ],
)
def test_the_other_forms_are_read(text: str, value: object) -> None:
    assert nested(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a:\n  b: 1\n    c: 2", "indented further"),
        ("a:\n  b\n  c: 1", "not `name: value`"),
        ("a: [x, [y]]", "write it as JSON"),
        ("a: {b: c}", "write it as JSON"),
        ("a:\n \tb: 1", "not tabs"),
        ("a:\n" + "\n".join(" " * n + "k:" for n in range(1, 30)), "too deeply"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        nested(text)


@pytest.mark.parametrize(
    "lines",
    [
        ["[a," + " " * 3_000 + "[]"],
        ["[a" + " " * 60_000 + "{}]"],
        ["", "  a" + " " * 60_000 + "b"],
        ["", *[""] * 200_000, "  a b"],
    ],
)
def test_no_file_of_a_clone_keeps_the_reader_busy(lines: list[str]) -> None:
    began = time.process_time()
    with pytest.raises(ValueError):
        read_nested(lines)
    assert time.process_time() - began < 1
