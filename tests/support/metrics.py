"""`make metrics`: size and shape of the product's code, for people to look at. Nothing here fails a build.

Complexity counts branches, loops, handlers, conditional expressions, boolean operators and comprehension clauses, plus
one. Parameters do not count `self` and `cls`. Attributes are those a class assigns on `self` or declares with an
annotation.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("local", "remote", "tunnel", "deploy")

MAX_COMPLEXITY = 15
MAX_PARAMETERS = 6
MAX_ATTRIBUTES = 15
MAX_MODULES = 12
MAX_LINES = 400
MIN_LINES = 40
MAX_COLUMNS = 120

_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Figure:
    """One line of the report: what was counted, and where."""

    name: str
    places: list[str]


def complexity(function: ast.AST) -> int:
    """Decisions in a function, nested functions included, plus one."""
    total = 1
    for node in ast.walk(function):
        if isinstance(node, _BRANCHES):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
    return total


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters that a caller thinks of."""
    positional = [*function.args.posonlyargs, *function.args.args]
    bound = bool(positional) and positional[0].arg in ("self", "cls")
    return len(positional) + len(function.args.kwonlyargs) - bound


def attributes(owner: ast.ClassDef) -> int:
    """Attributes of the instances."""
    assigned = {
        node.attr
        for node in ast.walk(owner)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    declared = {
        line.target.id for line in owner.body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    return len(assigned | declared)


def figures(rooms: tuple[str, ...]) -> Iterator[Figure]:
    """Every figure of the given folders."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for room in rooms
        for path in sorted((ROOT / room).rglob("*.py"))
    }
    names = {path: str(path.relative_to(ROOT)) for path in trees}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    functions = [(path, node) for path, node in nodes if isinstance(node, _FUNCTIONS)]
    classes = [(path, node) for path, node in nodes if isinstance(node, ast.ClassDef)]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in trees}
    yield Figure(
        f"functions of complexity over {MAX_COMPLEXITY}",
        [
            f"{names[path]}:{node.lineno} {node.name} ({count})"
            for path, node in functions
            if (count := complexity(node)) > MAX_COMPLEXITY
        ],
    )
    yield Figure(
        f"functions with more than {MAX_PARAMETERS} parameters",
        [
            f"{names[path]}:{node.lineno} {node.name} ({count})"
            for path, node in functions
            if (count := parameters(node)) > MAX_PARAMETERS
        ],
    )
    yield Figure(
        f"classes with more than {MAX_ATTRIBUTES} attributes",
        [
            f"{names[path]}:{node.lineno} {node.name} ({count})"
            for path, node in classes
            if (count := attributes(node)) > MAX_ATTRIBUTES
        ],
    )
    repeated = Counter(node.name for _, node in classes)
    yield Figure(
        "class names that occur more than once",
        sorted(f"{node.name} {names[path]}:{node.lineno}" for path, node in classes if repeated[node.name] > 1),
    )
    modules = Counter(path.parent for path in trees if path.name != "__init__.py")
    yield Figure(
        f"folders with more than {MAX_MODULES} modules",
        [f"{folder.relative_to(ROOT)} ({count})" for folder, count in modules.items() if count > MAX_MODULES],
    )
    yield Figure(
        f"modules over {MAX_LINES} lines", [f"{names[path]} ({n})" for path, n in lengths.items() if n > MAX_LINES]
    )
    yield Figure(
        f"modules under {MIN_LINES} lines",
        [f"{names[path]} ({n})" for path, n in lengths.items() if n < MIN_LINES and path.name != "__init__.py"],
    )
    yield Figure(f"lines over {MAX_COLUMNS} columns", list(_long_lines(rooms)))
    if rooms == ROOMS:
        yield Figure("import cycles between modules", list(_cycles()))


def _long_lines(rooms: tuple[str, ...]) -> Iterator[str]:
    paths = [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]
    if rooms == ROOMS:
        paths += [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if len(line) > MAX_COLUMNS and not (path.suffix == ".md" and line.startswith("|")):
                yield f"{path.relative_to(ROOT)}:{number} ({len(line)})"


def _cycles() -> Iterator[str]:
    """Modules that import each other, directly or over others; imports for type checkers do not count."""
    import grimp

    graph = grimp.build_graph("ccb", exclude_type_checking_imports=True)
    found: set[frozenset[str]] = set()
    for module in sorted(graph.modules):
        for imported in sorted(graph.find_modules_directly_imported_by(module)):
            chain = graph.find_shortest_chain(imported, module)
            if chain and frozenset(chain) not in found:
                found.add(frozenset(chain))
                yield " -> ".join((module, *chain))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", nargs="*", default=list(ROOMS), help="folders to look at")
    parser.add_argument("--all", action="store_true", help="name every place, not only the first ten")
    arguments = parser.parse_args()
    for figure in figures(tuple(arguments.rooms)):
        sys.stdout.write(f"{len(figure.places):5} {figure.name}\n")
        shown = figure.places if arguments.all else figure.places[:10]
        sys.stdout.writelines(f"        {place}\n" for place in shown)
        if len(shown) < len(figure.places):
            sys.stdout.write(f"        … {len(figure.places) - len(shown)} more\n")


if __name__ == "__main__":
    main()
