"""What the README names, the code has. The complete tables are in docs/reference (see test_reference_pages)."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.command_line.options import BY_NAME
from ccb.local.config.settings import Settings
from ccb.local.tui.commands import COMMANDS, KEYS

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def command_lines(page: str) -> list[list[str]]:
    """The words of every `ccb …` in blocks of code and in code within sentences, up to a pipe or redirection."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL))
    found = [shlex.split(re.split(r"\s[|<>&]", line)[0], comments=True) for line in lines if line.startswith("ccb ")]
    return [words[1:] for words in found]


def test_the_options_that_are_named_exist() -> None:
    assert command_lines(README)
    for words in command_lines(README):
        for word in itertools.takewhile(lambda word: word != "--", words):
            option = word.strip("[]").partition("=")[0]
            known = option in BY_NAME or option[:2] in BY_NAME or words[0] == "auth"
            assert not option.startswith("-") or known, (option, words)


def test_the_exit_codes_and_settings_that_are_named_exist() -> None:
    """The README may name some of them; docs/reference has them all."""
    for code, name in re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", README, re.MULTILINE):
        assert ExitCode[name] == int(code)
    section = README.partition("### Settings")[2].partition("### ")[0]
    for name, meaning in re.findall(r"^\| `(\w+)` \| (.*) \|", section, re.MULTILINE):
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
