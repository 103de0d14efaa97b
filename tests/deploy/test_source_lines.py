"""The bundle's sources without prose: the same code on the same lines, under every Python of the laptop."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO, StringIO
from pathlib import Path
from tokenize import COMMENT, generate_tokens
from types import CodeType

import pytest

from ccb.deploy.bundle import load
from ccb.deploy.bundle_build import without_prose

ROOT = Path(__file__).resolve().parents[2]


def _sources() -> Iterator[tuple[str, str]]:
    """Every source of the worker that the bundle holds: its name there and its text in the tree."""
    for folder, prefix in ((ROOT / "remote", "ccb/remote"), (ROOT / "tunnel" / "wire", "ccb/tunnel/wire")):
        for path in sorted(folder.rglob("*.py")):
            yield f"{prefix}/{path.relative_to(folder)}", path.read_text(encoding="utf-8")


def _statements(source: str) -> list[tuple[str, int]]:
    """All nodes with their lines. Annotations of functions are left out, and constants that stand alone: docstrings and
    what stands in for them."""
    tree = ast.parse(source)
    dropped: set[int] = set()
    declared = {id(each) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in node.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and node.value and id(node) not in declared:
            dropped.update(id(inner) for inner in ast.walk(node.annotation))
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
    idle = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for inner in (node, node.value)
    }
    return [
        (ast.dump(node) if isinstance(node, ast.Constant) else type(node).__name__.removeprefix("Ann"), node.lineno)
        for node in ast.walk(tree)
        if hasattr(node, "lineno") and hasattr(node, "col_offset") and id(node) not in idle | dropped
    ]


def _functions(code: CodeType) -> list[tuple[str, int]]:
    found = [(code.co_name, code.co_firstlineno)]
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found += _functions(inner)
    return found


def test_every_module_of_the_bundle_has_its_code_on_the_lines_of_the_source() -> None:
    archive = zipfile.ZipFile(BytesIO(load().data))
    for name, source in _sources():
        shipped = archive.read(name).decode()
        assert _statements(shipped) == _statements(source), name
        assert _functions(compile(shipped, name, "exec")) == _functions(compile(source, name, "exec")), name


def test_no_comment_and_no_docstring_travels() -> None:
    archive = zipfile.ZipFile(BytesIO(load().data))
    for name, _ in _sources():
        shipped = archive.read(name).decode()
        assert not [token for token in generate_tokens(StringIO(shipped).readline) if token.type == COMMENT], name
        for node in ast.walk(ast.parse(shipped)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                assert ast.get_docstring(node) in (None, "."), name


def test_nothing_in_the_worker_reads_a_docstring() -> None:
    readers = [name for name, source in _sources() if "__doc__" in source or "getdoc" in source]
    assert readers == []


def test_a_traceback_of_the_worker_names_the_line_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "worker.zip").write_bytes(load().data)
    program = "import sys; sys.path.insert(0, 'worker.zip'); from ccb.tunnel.wire import ndjson; ndjson.dump(object())"
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
    'class A:\n    """Doc."""\n    x: int\n    """Of x."""\n    y: int\n': (
        'class A:\n    "."\n    x: int\n\n    y: int\n'
    ),
    'class A(B):\n    """Doc\n    of it."""\n': 'class A(B):\n    "."\n\n',
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


def test_every_python_gives_the_same_text() -> None:
    """`re` reads patterns alike in every Python; this runs the real function in all that are installed here."""
    versions = Path(os.environ.get("PYENV_ROOT", "/root/.pyenv")) / "versions"
    pythons = [path for path in sorted(versions.glob("3.1[1-4]*/bin/python3")) if path.is_file()]
    program = (
        "import importlib.util, sys; spec = importlib.util.spec_from_file_location('bundle', sys.argv[1]);"
        "bundle = importlib.util.module_from_spec(spec); sys.modules['bundle'] = bundle;"
        "spec.loader.exec_module(bundle); from pathlib import Path; root = Path(sys.argv[2]); import hashlib;"
        "print(hashlib.sha256(repr(sorted(bundle._sources(root / 'remote', 'r').items())).encode()).hexdigest())"
    )
    answers = {
        subprocess.run(
            [str(python), "-I", "-c", program, str(ROOT / "deploy" / "bundle_build.py"), str(ROOT)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for python in [Path(sys.executable), *pythons]
    }
    assert len(answers) == 1
