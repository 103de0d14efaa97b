"""`make metrics`: the size and the shape of the code, each figure beside its limit. Nothing here fails a build.

Complexity counts branches, loops, handlers, conditional expressions, boolean operators and comprehension clauses, plus
one. Attributes are those that a class assigns on `self` or declares with an annotation. Every import counts for the
cycles, also one inside a function or for type checkers.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("local", "remote", "tunnel", "deploy")

_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case)


@dataclass(frozen=True)
class Figure:
    name: str
    limit: int
    places: list[str]
    count: int = -1

    @property
    def value(self) -> int:
        return len(self.places) if self.count < 0 else self.count


def complexity(function: ast.AST) -> int:
    """Return the decisions in a function, nested functions included, plus one."""
    total = 1
    for node in ast.walk(function):
        if isinstance(node, _BRANCHES):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
    return total


def attributes(owner: ast.ClassDef) -> int:
    assigned = {
        node.attr
        for node in ast.walk(owner)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    declared = {
        line.target.id
        for line in owner.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and not _is_of_class(line.annotation)
    }
    return len(assigned | declared)


def _is_of_class(annotation: ast.expr) -> bool:
    return any(isinstance(name, ast.Name) and name.id == "ClassVar" for name in ast.walk(annotation))


def is_protocol(owner: ast.ClassDef) -> bool:
    return any(name.id == "Protocol" for base in owner.bases for name in ast.walk(base) if isinstance(name, ast.Name))


def is_broad(handler: ast.ExceptHandler) -> bool:
    caught = [] if handler.type is None else [each for each in ast.walk(handler.type) if isinstance(each, ast.Name)]
    return handler.type is None or any(each.id in ("Exception", "BaseException") for each in caught)


def figures() -> Iterator[Figure]:
    """Yield the figures of the product, and the number of lines of the tests."""
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    lengths = {name: len(text.splitlines()) for name, text in texts.items()}
    modules = {name: length for name, length in lengths.items() if not name.endswith("__init__.py")}
    nodes = [(name, node) for name, text in texts.items() for node in ast.walk(ast.parse(text))]
    functions = [(at, node) for at, node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    classes = [(at, node) for at, node in nodes if isinstance(node, ast.ClassDef)]
    handlers = [(at, node) for at, node in nodes if isinstance(node, ast.ExceptHandler)]

    yield Figure("lines of the product", 86_000, [], sum(lengths.values()))
    tests = (ROOT / "tests").rglob("*.py")
    yield Figure("lines of the tests", 72_000, [], sum(len(path.read_text("utf-8").splitlines()) for path in tests))
    yield Figure("modules", 430, [], len(modules))
    yield Figure("folders", 60, [], len({path.parent for path in paths}))
    yield Figure("modules under 60 lines", 15, [f"{at} ({n})" for at, n in modules.items() if n < 60])
    yield Figure("modules over 700 lines", 0, [f"{at} ({n})" for at, n in modules.items() if n > 700])
    bases = Counter(Path(at).name for at in modules)
    yield Figure("base names three times", 0, [f"{base} ({n})" for base, n in bases.items() if n > 2])
    yield _counted("functions of complexity over 15", 14, ((at, node, complexity(node)) for at, node in functions), 15)
    yield _counted(
        "classes with more than 15 attributes", 10, ((at, node, attributes(node)) for at, node in classes), 15
    )
    yield Figure("Protocols", 25, [f"{at}:{node.lineno} {node.name}" for at, node in classes if is_protocol(node)])
    yield Figure("broad except", 45, [f"{at}:{node.lineno}" for at, node in handlers if is_broad(node)])
    imports = _imports()
    yield Figure("cycles of modules", 0, _cycles(imports))
    folders: dict[str, set[str]] = defaultdict(set)
    for module, imported in imports.items():
        folder = module.rpartition(".")[0]
        folders[folder] |= {each.rpartition(".")[0] for each in imported} - {folder}
    yield Figure("cycles of folders", 0, _cycles(folders))


def _counted(
    name: str,
    limit: int,
    found: Iterable[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, int]],
    most: int,
) -> Figure:
    places = sorted(((n, f"{at}:{node.lineno} {node.name} ({n})") for at, node, n in found if n > most), reverse=True)
    return Figure(name, limit, [place for _, place in places])


def _imports() -> dict[str, set[str]]:
    graph = grimp.build_graph("ccb", exclude_type_checking_imports=False)
    modules = {each for each in graph.modules if not graph.find_children(each)}
    return {each: graph.find_modules_directly_imported_by(each) & modules for each in modules}


def _cycles(graph: dict[str, set[str]]) -> list[str]:
    reached = {node: _reached(graph, node) for node in graph}
    found = {
        frozenset(other for other in reached[node] if node in reached.get(other, ()))
        for node in graph
        if node in reached[node]
    }
    return sorted(" <-> ".join(sorted(each)) for each in found if len(each) > 1)


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="name every place, not only the first five")
    most = None if parser.parse_args().all else 5
    for figure in figures():
        verdict = "holds" if figure.value <= figure.limit else "MISSED"
        sys.stdout.write(f"{figure.value:8,}  {figure.name:38} at most {figure.limit:6,}  {verdict}\n")
        sys.stdout.writelines(f"          {place}\n" for place in figure.places[:most])


if __name__ == "__main__":
    main()
