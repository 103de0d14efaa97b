"""docs/errors.md says what the code says, and names for each error a test that provokes it."""

from __future__ import annotations

import re

import pytest
from tests.support.error_table import DOCUMENT, ROOT, document, entries, exit_names, provoked

from ccb.local.command_line.exit_codes import ExitCode

pytestmark = pytest.mark.sources

RUN = "python -m tests.support.error_table"


def test_the_page_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), f"run `{RUN}`"


def test_every_error_is_provoked_by_a_test() -> None:
    found = entries()
    tests = provoked(found)
    missing = [entry.key for entry in found if entry not in tests]
    assert not missing, f"write a test for each, then `{RUN} --record THAT_TEST`:\n" + "\n".join(missing)


def test_the_tests_it_names_exist() -> None:
    named = {test.partition("::")[::2] for test in provoked(entries()).values()}
    for path in {path for path, _ in named}:
        there = set(re.findall(r"^(?:async )?def (\w+)", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE))
        assert not (missing := {name for each, name in named if each == path} - there), (path, missing)


def test_every_class_has_an_exit_code_of_the_table() -> None:
    assert set(exit_names().values()) <= set(ExitCode.__members__)
