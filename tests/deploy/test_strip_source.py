"""The worker's sources as they travel: the same code on the same lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from tokenize import COMMENT, generate_tokens

import pytest
from tests.support.worker.compiled import files_of

from ccb.deploy.bundle import load
from ccb.deploy.strip_source import without_prose, without_types

pytestmark = pytest.mark.sources

ROOT = Path(__file__).resolve().parents[2]


def _sources() -> Iterator[tuple[str, str]]:
    """Every source of the worker that the bundle holds: its name there and its text in the tree."""
    for folder, prefix in ((ROOT / "remote", "ccb/remote"), (ROOT / "tunnel" / "wire", "ccb/tunnel/wire")):
        for path in sorted(folder.rglob("*.py")):
            yield f"{prefix}/{path.relative_to(folder)}", path.read_text(encoding="utf-8")


@cache
def _shipped() -> dict[str, str]:
    return files_of(b"".join(bundle.data for bundle in load().with_commands()))


def test_what_travels_means_what_the_source_says_and_on_the_same_lines() -> None:
    for name, source in _sources():
        assert _meaning(_shipped()[name]) == _meaning(source), name


def _meaning(source: str) -> tuple[str, list[int]]:
    """What source means, prose and types of functions and variables aside, and on which lines."""
    tree = ast.parse(source)
    fields = {each for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in node.body}
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                block[:] = [_untyped(each) if each not in fields else each for each in block]
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [
                each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ]
    return ast.dump(tree), [getattr(node, "lineno", 0) for node in ast.walk(tree)]


def _untyped(statement: ast.stmt) -> ast.stmt:
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return ast.copy_location(ast.Assign([statement.target], statement.value), statement)
    return statement


def test_no_comment_and_no_docstring_travels() -> None:
    for name, shipped in _shipped().items():
        assert not [token for token in generate_tokens(StringIO(shipped).readline) if token.type == COMMENT], name
        for node in ast.walk(ast.parse(shipped)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                assert ast.get_docstring(node) is None, name


def test_nothing_in_the_worker_reads_a_docstring() -> None:
    readers = [name for name, source in _sources() if "__doc__" in source or "getdoc" in source]
    assert readers == ["ccb/tunnel/wire/dataclass.py"], "which gives one to the classes that have none"


CASES = {
    '"""Module."""\nx = 1\n': "\nx = 1\n",
    '"""Module,\n\nlong."""\nfrom __future__ import annotations\n': "\n\n\nfrom __future__ import annotations\n",
    'def f():\n    """Doc."""\n    return 1\n': "def f():\n\n    return 1\n",
    'def f():\n    """Doc,\n    long.\n    """\n': "def f():\n    0\n\n\n",
    'def f():  # why\n    r"""\\d"""  # why\n\n# next\nx = 1\n': "def f():\n    0\n\n\nx = 1\n",
    'def f():\n    """Doc."""\n    # only this\n': "def f():\n    0\n\n",
    "def f():\n    'Doc.'\n    'More.'\n": "def f():\n\n    0\n",
    'def f():\n    """Doc."""\n    def g():\n        """Doc."""\n': "def f():\n\n    def g():\n        0\n",
    'class A:\n    """Doc."""\n    x: int\n    """Of x."""\n    y: int\n': "class A:\n\n    x: int\n\n    y: int\n",
    'class A(B):\n    """Doc\n    of it."""\n': "class A(B):\n    0\n\n",
    'x = "# not one"  # one\n': 'x = "# not one"\n',
    "x = f\"{a['b']}#{c:#x}\"\n": "x = f\"{a['b']}#{c:#x}\"\n",
    'x = (\n    """\n    # kept\n    """\n)\n': 'x = (\n    """\n    # kept\n    """\n)\n',
    'x = {\n    "a": [1],  # one\n    """b""": 2,\n}\n': 'x = {\n    "a": [1],\n    """b""": 2,\n}\n',
    'x = \\\n    """kept"""\n': 'x = \\\n    """kept"""\n',
    '"""kept""".strip()\n': '"""kept""".strip()\n',
    'x = """a\\"""b"""  # \' "\ny = \'\\\'#\'\n': 'x = """a\\"""b"""\ny = \'\\\'#\'\n',
    "x = 'a\\\n#b'\n": "x = 'a\\\n#b'\n",
    "x = 1\r\n# two\r\ny = 2": "x = 1\n\ny = 2",
}
TYPES = {
    "def f(a: A, *b: B, c: C = 1, **d: D) -> E:\n    return a\n": "def f(a, *b, c = 1, **d):\n return a\n",
    "async def f(\n    a: dict[\n        A, B\n    ],\n) -> C[\n    D\n]:\n    x = lambda a: a\n": (
        "async def f(\n a\\\n\\\n,\n)\\\n\\\n:\n x = lambda a: a\n"
    ),
    'class A:\n    x: "é" = f(\n        """\n    y\n""", 1)\n\n    def g(self, é: A): ...\n': (
        'class A:\n x: "é" = f(\n  """\n    y\n""", 1)\n\n def g(self, é): ...\n'
    ),
    'def f():\n    return f"""\n    {a:>4}\n    """\n': 'def f():\n return f"""\n    {a:>4}\n    """\n',
}


@pytest.mark.parametrize(("source", "expected"), CASES.items())
def test_what_is_prose_and_what_is_code(source: str, expected: str) -> None:
    assert without_prose(source) == expected
    compile(expected, "case", "exec")


@pytest.mark.parametrize(("source", "expected"), TYPES.items())
def test_types_of_functions_and_wide_indentation_do_not_travel(source: str, expected: str) -> None:
    assert without_types(source) == expected
    assert _meaning(source) == _meaning(expected)
