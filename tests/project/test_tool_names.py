"""Tool names stand in one table; all other code reads what a tool declares, and never compares its name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.tool_traits import BUILT_IN, ToolTraits

pytestmark = pytest.mark.sources

_ROOT = Path(__file__).resolve().parents[2]
_TABLE = _ROOT / "tunnel/wire/tool_traits.py"
_NAMES = "|".join(BUILT_IN)
_CONSTANTS = {name for name, value in vars(tool_traits).items() if isinstance(value, ToolTraits)}
_MAY_BE = re.compile(rf"\b(?:{_NAMES}|{'|'.join(_CONSTANTS)})\b")
_ONLY_NAMES = re.compile(rf"(?:{_NAMES})(?:[\s,|]+(?:{_NAMES}))*")


def _names_in(tree: ast.Module) -> Iterator[int]:
    """Yield the lines with a string that is a tool's name or a list of them. Pieces of f-strings are sentences."""
    sentences = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in set(ast.walk(tree)) - sentences:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _ONLY_NAMES.fullmatch(node.value):
            yield node.lineno


def _comparisons_in(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that compare something with the name of a certain tool."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                owner, _, attribute = ast.unparse(side).rpartition(".")
                if attribute == "name" and owner.rpartition(".")[2] in _CONSTANTS:
                    yield node.lineno


@pytest.mark.slow
def test_no_tool_name_stands_outside_the_table() -> None:
    paths = [path for room in ("local", "remote", "tunnel", "deploy") for path in (_ROOT / room).rglob("*.py")]
    sources = {path: path.read_text() for path in paths}
    trees = {path: ast.parse(source) for path, source in sources.items() if _MAY_BE.search(source)}
    assert _TABLE in trees
    found = [
        f"{path.relative_to(_ROOT)}:{line}"
        for path, tree in trees.items()
        if path != _TABLE
        for line in (*_names_in(tree), *_comparisons_in(tree))
    ]
    assert found == []


def test_names_are_found_alone_and_in_lists() -> None:
    found = _names_in(ast.parse('a = ("Bash",)\nb = "Edit Write".split()\nc = "Bash runs it"\nif x == "LS":\n    pass'))
    assert sorted(found) == [1, 2, 4]


def test_comparisons_are_found() -> None:
    found = _comparisons_in(
        ast.parse("a = x.name == BASH.name\nb = tool_traits.LS.name != y\nc = x.name == y.name\nd = LS.name")
    )
    assert sorted(found) == [1, 2]
