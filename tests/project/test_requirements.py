"""docs/requirements.md names a test that exists for every requirement."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/requirements.md"
FUNCTION = re.compile(r"^(?:async )?def (\w+)", re.MULTILINE)
THOROUGH = re.compile(r"^@pytest\.mark\.thorough\n(?:@.+\n)*(?:async )?def (\w+)", re.MULTILINE)
ROW = re.compile(r"^\| ([A-Z]+-[0-9]+) \| .+ \| (`.+`) \|$")


def rows() -> list[tuple[str, list[str]]]:
    """Return the number of each requirement with the tests that it names, as `path::test`."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| [A-Z]+-", line)]
    parsed = [ROW.match(line) for line in lines]
    assert all(parsed), [line for line, match in zip(lines, parsed, strict=True) if match is None]
    return [(match[1], re.findall(r"`([^`]+)`", match[2])) for match in parsed if match is not None]


@cache
def functions_of(path: Path, pattern: re.Pattern[str] = FUNCTION) -> frozenset[str]:
    """Return the names of the functions that `path` defines, none if there is no such file."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return frozenset(pattern.findall(text))


def test_a_number_is_used_once() -> None:
    numbers = [number for number, _ in rows()]
    assert len(numbers) == len(set(numbers)), sorted(each for each in numbers if numbers.count(each) > 1)


def test_the_named_tests_exist() -> None:
    missing = []
    for number, tests in rows():
        for test in tests:
            path, _, name = test.partition("::")
            if name not in functions_of(ROOT / path):
                missing.append((number, test))
    assert not missing, missing


def test_make_test_proves_each_of_them() -> None:
    """The tests that only `make thorough` runs prove no requirement alone."""
    unproven = []
    for number, tests in rows():
        places = [test.partition("::")[::2] for test in tests]
        if all(name in functions_of(ROOT / path, THOROUGH) for path, name in places):
            unproven.append((number, tests))
    assert not unproven, unproven
