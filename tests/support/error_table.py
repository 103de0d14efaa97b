"""docs/errors.md, made from the code: every place that raises an error for the person, and the test that provokes it.

`python -m tests.support.error_table` writes the file. `… --record [PATH…]` runs tests first (default: all) and notes in
`error_tests.json` which of them really provoke what, in their own process or in the programs they start.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ccb.local.command_line.exit_codes import ExitCode
from ccb.tunnel import errors
from ccb.tunnel.errors import CcbError

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "errors.md"
RECORDED = Path(__file__).with_name("error_tests.json")
ROOMS = ("local", "tunnel", "deploy")
GAP = "…"
_TREE = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, CcbError)}

_HEAD = """\
# Errors

Made from the code by `python -m tests.support.error_table`; do not edit. `…` stands for what differs
from case to case. Every error is shown as what happened, the evidence (what the host or the system said), and behind
`->` the one thing to do. Exit codes: see [exit codes](reference/exit-codes.md).
"""


@dataclass(frozen=True)
class Entry:
    """One error that people can see. `what` and `do` are its words with GAP for what differs."""

    kind: str
    what: str
    do: str
    module: str

    @property
    def key(self) -> str:
        return f"{self.kind}: {self.what}"

    def fits(self, what: str) -> bool:
        return re.fullmatch(".*".join(re.escape(piece) for piece in self.what.split(GAP)), what, re.DOTALL) is not None


def entries() -> list[Entry]:
    found: dict[str, Entry] = {}
    order = list(exit_names())
    for module, tree in _modules():
        for kind, what, do in _raised(tree, order):
            entry = Entry(kind, what, do, module)
            if what.strip(GAP + " "):
                found.setdefault(entry.key, entry)
    return sorted(found.values(), key=lambda entry: (order.index(entry.kind), entry.module, entry.what))


@functools.cache
def _modules() -> tuple[tuple[str, ast.Module], ...]:
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return tuple((str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))) for path in paths)


def exit_names() -> dict[str, str]:
    return _of_classes("exit_name")


@functools.cache
def ways_out() -> dict[str, str]:
    return _of_classes("way_out")


def _of_classes(attribute: str) -> dict[str, str]:
    found: dict[str, str] = {name: getattr(kind, attribute) for name, kind in _TREE.items()}
    for _, tree in _modules():
        for node in tree.body:
            bases = [base.id for base in getattr(node, "bases", []) if isinstance(base, ast.Name) and base.id in found]
            if isinstance(node, ast.ClassDef) and bases and node.name not in found:
                found[node.name] = _own(node, attribute) or found[bases[0]]
    return found


def _own(node: ast.ClassDef, attribute: str) -> str:
    for each in node.body:
        if (
            isinstance(each, ast.Assign)
            and isinstance(each.value, ast.Constant)
            and _named(each.targets) == [attribute]
        ):
            return str(each.value.value)
    return ""


def _named(nodes: Iterable[ast.expr]) -> list[str]:
    return [node.id for node in nodes if isinstance(node, ast.Name)]


def _raised(tree: ast.Module, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    constants = _constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple):
            yield from _tabled(node, names)
        if not isinstance(node, ast.Call) or not node.args:
            continue
        kinds = [node.func.body, node.func.orelse] if isinstance(node.func, ast.IfExp) else [node.func]
        for kind in kinds:
            name = kind.id if isinstance(kind, ast.Name) else ""
            if name in names:
                do = next((_above(word.value, tree) for word in node.keywords if word.arg == "do"), None)
                for text in _written(node.args[0], tree):
                    for what in _texts(text, constants):
                        yield name, what, " Or: ".join(_texts(do, constants)) if do is not None else ways_out()[name]


def _tabled(row: ast.Tuple, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """A row of a table of errors: the class, what is seen and what to do, with `{name}` for what differs."""
    for place, cell in enumerate(row.elts):
        after = [each.value for each in row.elts[place + 1 :] if isinstance(each, ast.Constant)]
        texts = [text for text in after if isinstance(text, str)]
        if isinstance(cell, ast.Name) and cell.id in names and texts:
            what, do = (re.sub(r"\{\w+\}", GAP, text) for text in [*texts, ways_out()[cell.id]][:2])
            yield cell.id, what, do


def _above(node: ast.expr, tree: ast.AST) -> ast.expr:
    """The expression itself; of a name that gets its value in one of the three lines above, that value."""
    assigned = [each for each in ast.walk(tree) if isinstance(each, ast.Assign) and isinstance(node, ast.Name)]
    near = [each for each in assigned if 0 < node.lineno - each.lineno <= 3]
    return next((each.value for each in near if _named(each.targets) == _named([node])), node)


def _written(node: ast.expr, tree: ast.AST) -> list[ast.expr]:
    """The expression itself; where it is a parameter of a function of this module, what the callers give."""
    if not isinstance(node, ast.Name):
        return [node]
    given: list[ast.expr] = []
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in ast.walk(function):
            parameters = [each.arg for each in function.args.args]
            if node.id in parameters:
                place = parameters.index(node.id)
                calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
                given += [
                    call.args[place]
                    for call in calls
                    if _named([call.func]) == [function.name] and len(call.args) > place
                ]
    return given or [node]


def _constants(tree: ast.Module) -> dict[str, str]:
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update(dict.fromkeys(_named(node.targets), node.value.value))
    return found


def _texts(node: ast.expr, constants: Mapping[str, str]) -> list[str]:
    """The text of an expression, GAP where it is not written down; several for a choice."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values]
        return [re.sub(f"{GAP}+", GAP, "".join(parts))]
    if isinstance(node, ast.IfExp):
        return _texts(node.body, constants) + _texts(node.orelse, constants)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [left + right for left in _texts(node.left, constants) for right in _texts(node.right, constants)]
    if isinstance(node, ast.Name) and node.id in constants:
        return [constants[node.id]]
    return [GAP]


def provoked(found: Sequence[Entry]) -> dict[Entry, str]:
    """The test that was recorded to provoke each entry; entries that no test provokes are not in it."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    return {entry: recorded[entry.key] for entry in found if entry.key in recorded}


def recorded_from(lines: Iterable[str], found: Sequence[Entry]) -> dict[str, str]:
    """By entry, the first test in the order of names that provoked it."""
    tests: dict[str, str] = {}
    for line in lines:
        kind, path, what, test = json.loads(line)
        fitting = [entry for entry in found if entry.kind == kind and entry.fits(what)]
        fitting = [entry for entry in fitting if path.endswith("/" + entry.module)] or fitting
        if fitting:
            entry = max(fitting, key=lambda each: len(each.what))  # the one that leaves least open
            tests[entry.key] = min(test, tests.get(entry.key, test), key=_preference)
    return dict(sorted(tests.items()))


def _exists(test: str) -> bool:
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.exists() and f"def {name}(" in file.read_text(encoding="utf-8")


def _preference(test: str) -> tuple[bool, str]:
    return not test.startswith("tests/e2e"), test


def record(paths: Sequence[str]) -> int:
    """Run the tests in `paths` and note which errors they provoke. Keep older notes about errors that still exist."""
    where = ROOT / ".make" / "recorded"
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    inherited = os.pathsep.join(
        [str(ROOT / "tests" / "support" / "recording"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    )
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.record_errors", *paths]
    status = subprocess.run(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": inherited}, check=False).returncode
    found = entries()
    known = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    lines = (where / "errors.jsonl").read_text(encoding="utf-8").splitlines()
    tests = {entry.key: known[entry.key] for entry in found if entry.key in known}
    for key, test in recorded_from(lines, found).items():
        before = tests.get(key, test)
        tests[key] = min(before, test, key=_preference) if _exists(before) else test
    RECORDED.write_text(json.dumps(dict(sorted(tests.items())), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return status


def document() -> str:
    found = entries()
    tests = provoked(found)
    lines = [_HEAD]
    for name, exit_name in exit_names().items():
        mine = [entry for entry in found if entry.kind == name]
        if not mine:
            continue
        code = ExitCode[exit_name]
        lines += ["", f"## {name}: exit code {int(code)} ({code.name})", ""]
        lines += ["| what is seen | what to do | from | provoked by |", "|---|---|---|---|"]
        for entry in mine:
            proof = f"`{tests[entry].removeprefix('tests/')}`" if entry in tests else ""
            lines.append(f"| {_cell(entry.what)} | {_cell(entry.do)} | `{entry.module}` | {proof} |")
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(sys.argv[2:] or ["tests"])
    DOCUMENT.write_text(document(), encoding="utf-8")
