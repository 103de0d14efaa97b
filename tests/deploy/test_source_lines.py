"""The bundle's sources as they travel: the same code on the same lines, under every Python of the laptop."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import symtable
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from tokenize import COMMENT, generate_tokens
from typing import Any

import pytest
from tests.remote.bundle_in_memory import imports_from

from ccb.deploy.bundle import load
from ccb.deploy.bundling.files import files_of
from ccb.deploy.bundling.prose import without_prose

pytestmark = pytest.mark.sources

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_Function = ast.FunctionDef | ast.AsyncFunctionDef
ROOT = Path(__file__).resolve().parents[2]


def _sources() -> Iterator[tuple[str, str]]:
    """Every source of the worker that the bundle holds: its name there and its text in the tree."""
    for folder, prefix in ((ROOT / "remote", "ccb/remote"), (ROOT / "tunnel" / "wire", "ccb/tunnel/wire")):
        for path in sorted(folder.rglob("*.py")):
            yield f"{prefix}/{path.relative_to(folder)}", path.read_text(encoding="utf-8")


@cache
def _shipped() -> dict[str, tuple[str, ast.Module]]:
    shipped = b"".join(bundle.data for bundle in load().with_commands())
    return {name: (text, ast.parse(text)) for name, text in files_of(shipped).items()}


class _Comparison:
    """Compares what a source and what travels of it mean. It knows nothing of how the bundle is built: the two trees
    may differ in prose, in types, in imports that nothing uses, in names of variables that nobody else can see, of
    parameters that no call names, and in private names."""

    def __init__(self, source: str, shipped: ast.Module, *, wire: bool) -> None:
        self.wire = wire
        self.tables = {
            (table.get_name(), table.get_lineno()): table
            for table in _tables(symtable.symtable(source, "source", "exec"))
        }
        self.shipped = shipped
        self.imported = {
            (node.lineno, each.name)
            for node in ast.walk(shipped)
            if isinstance(node, ast.ImportFrom)
            for each in node.names
        }
        self.not_imported: set[str] = set()
        self.names: dict[str, str] | None = None
        self.privates: dict[str, str] = {}
        self.same(ast.parse(source), shipped)
        used = {node.id for node in ast.walk(shipped) if isinstance(node, ast.Name)}
        assert not self.not_imported & used
        assert len(set(self.privates.values())) == len(self.privates)

    def same(self, one: object, two: object) -> None:
        if isinstance(one, list) and isinstance(two, list):
            one, two = self._needed(one), self._needed(two)
            assert len(one) == len(two), (one, two)
            for each, other in zip(one, two, strict=True):
                self.same(each, other)
        elif not isinstance(one, ast.AST) or not isinstance(two, ast.AST):
            assert type(one) is type(two) and one == two
        elif isinstance(one, ast.AnnAssign):
            self._same_variable(one, two)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and self.names is None:
            self.names = {}
            self._same_node(one, two)
            self._check_names(one, self.names)
            self.names = None
        else:
            self._same_node(one, two)

    def _same_node(self, one: ast.AST, two: ast.AST) -> None:
        assert type(one) is type(two)
        assert getattr(one, "lineno", 0) == getattr(two, "lineno", 0) or isinstance(one, ast.alias)
        if self.names is not None and isinstance(one, ast.Name) and isinstance(two, ast.Name):
            if not one.id.startswith("_") or not self._same_private(one.id, two.id):
                assert self.names.setdefault(one.id, two.id) == two.id
            return
        if self.names is not None and isinstance(one, ast.arg) and isinstance(two, ast.arg):
            assert self.names.setdefault(one.arg, two.arg) == two.arg
            return
        if isinstance(one, _FUNCTIONS) and isinstance(two, _FUNCTIONS):
            self._check_parameters(one, two)
        for name in one._fields:
            if name in ("annotation", "returns", "ctx"):
                continue
            if name in ("id", "attr", "name") and self._same_private(getattr(one, name), getattr(two, name)):
                continue
            left: Any = getattr(one, name, None)
            right: Any = getattr(two, name, None)
            if name == "names" and isinstance(one, ast.ImportFrom):
                self.not_imported.update(each.asname or each.name for each in left if not self._is_imported(one, each))
                left = [each for each in left if self._is_imported(one, each)]
            if isinstance(one, ast.ExceptHandler) and name == "name" and left and self.names is not None:
                assert self.names.setdefault(left, right) == right
                continue
            self.same(left, right)

    def _same_private(self, one: object, two: object) -> bool:
        """Return whether both are private names, and always the same ones in this module."""
        if not isinstance(one, str) or not isinstance(two, str) or not (one.startswith("_") and two.startswith("_")):
            return False
        return self.privates.setdefault(one, two) == two

    def _check_parameters(self, one: _Function, two: _Function) -> None:
        """A parameter has another name only if no call of a function of this name names it."""
        called = [one.name, *(_classes() if one.name == "__init__" else ())]
        for left, right in zip(_parameters(one), _parameters(two), strict=True):
            if left != right:
                assert not [each for each in called if (each, left) in _named_arguments()], (one.name, left)

    def _same_variable(self, one: ast.AnnAssign, two: ast.AST) -> None:
        if isinstance(two, ast.Assign):
            assert one.lineno == two.lineno
            self.same([one.target], two.targets)
        else:
            assert isinstance(two, ast.AnnAssign)
            left, right = ast.unparse(one.annotation), ast.unparse(two.annotation)
            assert left == right or (right == "0" and not self.wire and "ClassVar" not in left)
            self.same(one.target, two.target)
        self.same(one.value, two.value)

    def _needed(self, nodes: list[ast.AST]) -> list[ast.AST]:
        return [node for node in nodes if not self._is_idle(node)]

    def _is_idle(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Expr):
            return isinstance(node.value, ast.Constant)
        if isinstance(node, ast.If):
            return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" and not node.orelse
        if isinstance(node, ast.ImportFrom) and not any(self._is_imported(node, each) for each in node.names):
            self.not_imported.update(each.asname or each.name for each in node.names)
            return True
        return False

    def _is_imported(self, node: ast.ImportFrom, each: ast.alias) -> bool:
        return (node.lineno, each.name) in self.imported

    def _check_names(self, node: ast.FunctionDef | ast.AsyncFunctionDef, names: dict[str, str]) -> None:
        """Two variables never become one, and only variables have other names that belong to the function alone."""
        assert len(set(names.values())) == len(names)
        changed = {one for one, two in names.items() if one != two}
        for table in _tables(self.tables[node.name, node.lineno]):
            for symbol in table.get_symbols():
                if symbol.get_name() in changed:
                    assert table.get_type() == "function"
                    assert symbol.is_local() or symbol.is_free()
                    assert not (symbol.is_imported() or symbol.is_namespace())
                else:
                    assert names.get(symbol.get_name()) is not None or symbol.get_name() not in names.values()


@cache
def _named_arguments() -> set[tuple[str, str]]:
    """Each argument that a call in the sources names, with the last part of the name of what it calls."""
    calls = [node for _, source in _sources() for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return {(ast.unparse(call.func).split(".")[-1], each.arg or "**") for call in calls for each in call.keywords}


@cache
def _classes() -> set[str]:
    """The classes that have an `__init__` of their own."""
    nodes = [node for _, source in _sources() for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    return {node.name for node in nodes if any(getattr(each, "name", "") == "__init__" for each in node.body)}


def _parameters(node: _Function) -> list[str]:
    return [each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)]


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def test_what_travels_means_what_the_source_says_and_on_the_same_lines() -> None:
    for name, source in _sources():
        _Comparison(source, _shipped()[name][1], wire=not name.startswith("ccb/remote"))


def test_every_import_within_the_bundle_finds_its_name() -> None:
    trees = {name.removesuffix(".py").removesuffix("/__init__"): tree for name, (_, tree) in _shipped().items()}
    bound = {name: set(_bound(tree)) for name, tree in trees.items()}
    for name, (_, tree) in _shipped().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                package = name.split("/")[: -node.level] if node.level else []
                module = "/".join([*package, *filter(None, (node.module or "").split("."))])
                for each in node.names if module.startswith("ccb") else ():
                    assert each.name in bound[module] or f"{module}/{each.name}" in trees, (name, module, each.name)


def _bound(tree: ast.AST) -> Iterator[str]:
    """Return the names of a module, and those of what is in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (each.asname or each.name for each in node.names)


def test_no_class_gets_fewer_or_more_names_from_its_bases() -> None:
    """A method that overrides another one still does, and no private name hides one of a base class."""
    shipped = _names_of_classes(tree for _, tree in _shipped().values())
    for name, names in _names_of_classes(ast.parse(source) for _, source in _sources()).items():
        assert name.startswith("_") or len(names) == len(shipped[name]), (name, names, shipped[name])


def _names_of_classes(trees: Iterable[ast.AST]) -> dict[str, set[str]]:
    """Return what each class has of its own and of its bases: what it defines, and what its methods set."""
    classes = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    def names(node: ast.ClassDef) -> Iterator[str]:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self":
                yield inner.attr
        for each in node.body:
            if isinstance(each, _FUNCTIONS | ast.ClassDef):
                yield each.name
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in classes:
                yield from names(classes[base.id])

    return {name: set(names(node)) for name, node in classes.items()}


def test_no_comment_and_no_docstring_travels() -> None:
    for name, (shipped, tree) in _shipped().items():
        assert not [token for token in generate_tokens(StringIO(shipped).readline) if token.type == COMMENT], name
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                assert ast.get_docstring(node) in (None, "."), name


def test_nothing_in_the_worker_reads_a_docstring() -> None:
    readers = [name for name, source in _sources() if "__doc__" in source or "getdoc" in source]
    assert readers == ["ccb/tunnel/wire/dataclass.py"], "which gives one to the classes that have none"


def test_a_traceback_of_the_worker_names_the_line_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "worker.bundle").write_bytes(load().data)
    program = imports_from(tmp_path / "worker.bundle") + "from ccb.tunnel.wire import ndjson; ndjson.dump(object())"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    source = (ROOT / "tunnel" / "wire" / "ndjson.py").read_text(encoding="utf-8").splitlines()
    named = re.search(r'wire/ndjson\.py", line (\d+), in dump', done.stderr)
    assert named and "_ENCODER.encode(" in source[int(named[1]) - 1], done.stderr


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
    'from dataclasses import dataclass\nclass A:\n    """Doc."""\n    x: int\n': (
        'from dataclasses import dataclass\nclass A:\n    "."\n    x: int\n'
    ),
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


@pytest.mark.parametrize(("source", "expected"), CASES.items())
def test_what_is_prose_and_what_is_code(source: str, expected: str) -> None:
    assert without_prose(source) == expected
    compile(expected, "case", "exec")


@pytest.mark.thorough
def test_every_python_gives_the_same_text() -> None:
    """`re` and `ast` read alike in every Python; this runs the real function in all that are installed here, over one
    room, because it takes long."""
    room = "agent"
    versions = Path(os.environ.get("PYENV_ROOT", "/root/.pyenv")) / "versions"
    pythons = [path for path in sorted(versions.glob("3.1[1-4]*/bin/python3")) if path.is_file()]
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from bundling.build import build; from pathlib import Path;"
        "import hashlib; root = Path(sys.argv[2]) / 'remote';"
        "built = build(root / sys.argv[3], root / 'tasks', '1');"
        "print(hashlib.sha256(b''.join(built.values())).hexdigest())"
    )
    answers = {
        subprocess.run(
            [str(python), "-I", "-c", program, str(ROOT / "deploy"), str(ROOT), room],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for python in [Path(sys.executable), *pythons]
    }
    assert len(answers) == 1
