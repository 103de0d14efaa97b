"""What the host does not need of a module: types. Lines keep their numbers.

Annotations go, and with them the imports that only they use. Where none is left, `from __future__ import annotations`
goes too. The fields of classes keep an annotation, because `dataclass` looks for it; it becomes 0 where nothing reads
it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

Cut = tuple[int, int, bytes]
"""From where to where in the source, and what stands there then."""


def without_types(source: str, tree: ast.Module, *, keep_fields: bool) -> str:
    """Return `source`, whose tree is `tree`, without what only a reader and a type checker need. With `keep_fields`,
    the fields of classes keep their annotations."""
    text = source.encode()
    starts = [0, *(match.end() for match in re.finditer(b"\n", text))]
    cuts = list(_Cutter(text, starts, keep_fields).cuts(tree))
    for begin, end, instead in sorted(cuts, reverse=True):
        text = text[:begin] + instead + b"\n" * text.count(b"\n", begin, end) + text[end:]
    return text.decode()


class _Cutter:
    def __init__(self, text: bytes, starts: list[int], keep_fields: bool) -> None:
        self._text = text
        self._starts = starts
        self._keep_fields = keep_fields
        self._used: set[str] = set()
        self._typed: set[str] = set()
        self._annotations_stay = False

    def cuts(self, tree: ast.Module) -> Iterator[Cut]:
        yield from self._in(tree, in_class=False)
        only_typed = self._typed - self._used
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__" and not self._annotations_stay:
                yield self._whole(node, "")
            elif isinstance(node, ast.ImportFrom) and any(each.name in only_typed for each in node.names):
                kept = [each for each in node.names if each.asname or each.name not in only_typed]
                names = ",".join(f"{each.name} as {each.asname}" if each.asname else each.name for each in kept)
                module = "." * node.level + (node.module or "")
                yield self._whole(node, f"from {module} import {names}" if kept else "")

    def _in(self, node: ast.AST, *, in_class: bool) -> Iterator[Cut]:
        """Return what to cut in `node`, and collect the names that the rest uses, and those that only types use."""
        if isinstance(node, ast.AnnAssign):
            yield from self._annotated(node, in_class=in_class)
            return
        if isinstance(node, ast.arg):
            if node.annotation is not None:
                begin = self._place(node.lineno, node.col_offset) + len(node.arg.encode())
                yield self._type(begin, node.annotation)
            return
        if _is_for_types(node):
            self._typed.add("TYPE_CHECKING")
            yield self._whole(node, "0")
            return
        if isinstance(node, ast.Name):
            self._used.add(node.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast":
            self._used.update(re.findall(r"\w+", ast.dump(node.args[0])))
        returns = node.returns if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None
        if returns is not None:
            yield self._type(self._text.rindex(b"->", 0, self._place(returns.lineno, returns.col_offset)), returns)
        for child in ast.iter_child_nodes(node):
            if child is not returns:
                yield from self._in(child, in_class=isinstance(node, ast.ClassDef))

    def _annotated(self, node: ast.AnnAssign, *, in_class: bool) -> Iterator[Cut]:
        """Cut the annotation of a variable. A variable that gets no value here stays what it is."""
        annotation = node.annotation
        yield from self._in(node.target, in_class=False)
        if node.value is not None:
            yield from self._in(node.value, in_class=False)
        if in_class and not self._keep_fields and "ClassVar" not in ast.dump(annotation):
            self._typed.update(_names(annotation))
            yield self._whole(annotation, "0")
        elif not in_class and node.value is not None:
            yield self._type(self._place(node.target.end_lineno or 0, node.target.end_col_offset or 0), annotation)
        else:
            self._annotations_stay = True
            self._used.update(_names(annotation))

    def _type(self, begin: int, node: ast.expr) -> Cut:
        self._typed.update(_names(node))
        return begin, self._place(node.end_lineno or 0, node.end_col_offset or 0), b""

    def _whole(self, node: ast.If | ast.ImportFrom | ast.expr, instead: str) -> Cut:
        begin, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
        return self._place(*begin), self._place(*end), instead.encode()

    def _place(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column


def _is_for_types(node: ast.AST) -> TypeGuard[ast.If]:
    test = node.test if isinstance(node, ast.If) and not node.orelse else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _names(annotation: ast.expr) -> Iterator[str]:
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value)
