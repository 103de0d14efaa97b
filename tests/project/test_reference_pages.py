"""docs/reference says what the code says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support.reference_pages import ROOT, RUN, pages

from ccb.local.command_line.arguments import OPTIONS
from ccb.local.command_line.subcommands import COMMANDS, SUBCOMMANDS, options_of


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_the_page_is_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == pages()[path], f"run `{RUN}`"


def test_every_command_is_described_and_every_option_belongs_to_one() -> None:
    assert {command.name for command in SUBCOMMANDS} == {"", *COMMANDS}
    for option in OPTIONS:
        takers = [command.name for command in SUBCOMMANDS if option in options_of(command)]
        assert takers or option.field == "version"
        assert {each.split()[0] for each in option.commands} <= {command.name for command in SUBCOMMANDS}


def test_every_sentence_ends_with_a_full_stop() -> None:
    for text in (*(option.help for option in OPTIONS), *(command.description for command in SUBCOMMANDS)):
        assert text[:1].isupper() and text.endswith("."), text


def test_the_manual_page_is_written_as_manual_pages_are() -> None:
    argv = ["mandoc", "-T", "lint", str(ROOT / "docs/ccb.1")]
    linted = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert not linted.stdout
