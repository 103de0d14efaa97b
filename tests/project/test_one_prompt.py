"""The page about the way of a prompt names functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.sources

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "design" / "one-prompt.md"
STOPS = re.findall(r"^\| (\d+) \|.*\| `([\w/]+\.py)` \| `([\w.]+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = {node.name for node in tree.body if isinstance(node, kinds)}
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef):
            found |= {f"{owner.name}.{node.name}" for node in owner.body if isinstance(node, kinds)}
    return found


@pytest.mark.parametrize(("stop", "file", "function"), STOPS)
def test_each_stop_is_a_function_of_one_module(stop: str, file: str, function: str) -> None:
    rooms = (ROOT / room for room in ("local", "remote", "tunnel", "deploy"))
    modules = [path for room in rooms for path in room.rglob("*.py") if str(path).endswith(f"/{file}")]
    assert [path for path in modules if function in _functions(path)], f"stop {stop}: {file} has no {function}"


def test_the_stops_are_numbered_without_a_gap() -> None:
    assert [int(stop) for stop, _, _ in STOPS] == list(range(1, len(STOPS) + 1))
