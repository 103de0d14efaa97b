"""What the README promises in tables is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.config.settings import Settings
from ccb.local.tui.commands import COMMANDS, KEYS

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_table_of_exit_codes_is_the_enum() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", README, re.MULTILINE)
    assert [(int(code), name) for code, name in rows] == sorted((int(code), code.name) for code in ExitCode)


def test_the_table_of_settings_is_the_model() -> None:
    section = README.partition("### Settings")[2].partition("### ")[0]
    named = re.findall(r"^\| `(\w+)` \| (.*) \|", section, re.MULTILINE)
    assert {name for name, _ in named} == set(Settings.model_fields)
    for name, meaning in named:
        default = Settings.model_fields[name].default
        if isinstance(default, int | float):
            assert meaning.endswith(f"({default:g})")


def test_the_keys_and_commands_that_are_named_exist() -> None:
    section = README.partition("### Keys of the REPL")[2].partition("### ")[0]
    keys = " ".join(key for key, _ in KEYS) + " F1"
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|", section, re.MULTILINE)
    for key in (
        each for row in rows if row != "key" for each in re.split(r" / | or ", row) if not each.startswith("`")
    ):
        assert key in keys
    assert set(re.findall(r"`/(\w+)", section)) <= {command.name for command in COMMANDS}
