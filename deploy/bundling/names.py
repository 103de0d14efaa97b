"""Which local variables and parameters of functions get which shorter names in the bundle.

A variable gets another name only if nothing outside of its function can know its name: no name that is imported,
declared `global`, or of a function or class, nothing in a class inside of a function, and no name that means something
else anywhere else in the same outermost function. A parameter must also be one that no call names.
"""

from __future__ import annotations

import ast
import keyword
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from string import ascii_letters

from .arguments import NamedArguments

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_FIRST_PARAMETERS = ("self", "cls")
_READERS_OF_NAMES = {"locals", "vars", "eval", "exec", "dir"}


@dataclass
class _Scope:
    parent: _Scope | None
    bound: set[str] = field(default_factory=set)
    used: list[str] = field(default_factory=list)
    is_comprehension: bool = False

    def owner(self) -> _Scope:
        """Return the scope whose variable a walrus in this one binds."""
        return self.parent.owner() if self.is_comprehension and self.parent else self

    def knows(self, name: str) -> bool:
        return name in self.bound or (self.parent is not None and self.parent.knows(name))


@dataclass
class _Function(ast.NodeVisitor):
    """What the names of an outermost function mean."""

    named: NamedArguments
    fixed: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    scopes: list[_Scope] = field(default_factory=list)
    scope: _Scope = field(default_factory=lambda: _Scope(None))

    def visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.fixed.add(node.name)
        self.scope.bound.add(node.name)
        for each in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(each)
        self._inner(node.args, node.body, self.named.of(node.name))

    visit_FunctionDef = visit_AsyncFunctionDef = visit_function

    def visit_Lambda(self, node: ast.Lambda) -> None:
        defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        for each in defaults:
            self.visit(each)
        if defaults:  # in the source, its parameters look like the arguments of a call around it
            self.fixed.update(each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg))
        self._inner(node.args, [node.body], self.named.anywhere)

    def _inner(self, arguments: ast.arguments, body: list[ast.stmt] | list[ast.expr], named: Set[str]) -> None:
        before, self.scope = self.scope, _Scope(self.scope)
        self.scopes.append(self.scope)
        for node in ast.walk(arguments):
            if isinstance(node, ast.arg):
                if node.arg in named or node.arg in _FIRST_PARAMETERS:
                    self.fixed.add(node.arg)
                self.counts[node.arg] += 1
                self.scope.bound.add(node.arg)
        for each in body:
            self.visit(each)
        self.scope = before

    def visit_comprehension_scope(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.visit(node.generators[0].iter)
        before, self.scope = self.scope, _Scope(self.scope, is_comprehension=True)
        self.scopes.append(self.scope)
        for number, generator in enumerate(node.generators):
            self.visit(generator.target)
            for each in generator.ifs if not number else (generator.iter, *generator.ifs):
                self.visit(each)
        for value in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(value)
        self.scope = before

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_comprehension_scope

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.fixed.update(each for inner in ast.walk(node) for each in _names(inner))

    def visit_Name(self, node: ast.Name) -> None:
        self.counts[node.id] += 1
        if isinstance(node.ctx, ast.Load):
            self.scope.used.append(node.id)
        else:
            self.scope.bound.add(node.id)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.counts[node.target.id] += 1
        self.scope.owner().bound.add(node.target.id)
        self.visit(node.value)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.counts[node.name] += 1
            self.scope.bound.add(node.name)
        self.generic_visit(node)

    def visit_fixing(self, node: ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal) -> None:
        self.fixed.update(_names(node))

    visit_Import = visit_ImportFrom = visit_Global = visit_Nonlocal = visit_fixing

    def free(self) -> set[str]:
        """Return the names that may become others."""
        bound = {name for scope in self.scopes for name in scope.bound}
        foreign = {name for scope in self.scopes for name in scope.used if not scope.knows(name)}
        if foreign & _READERS_OF_NAMES:
            return set()
        return {name for name in bound - foreign - self.fixed if not name.startswith("__")}


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    elif isinstance(node, ast.ExceptHandler | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name or ""
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (getattr(node, "module", None) or "").split(".")
        for each in node.names:
            yield from each.name.split(".")
            yield each.asname or ""


def outermost(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions of `tree` that are in no other function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _FUNCTIONS):
            yield node
        else:
            yield from outermost(node)


def shorter(node: ast.FunctionDef | ast.AsyncFunctionDef, named: NamedArguments) -> dict[str, str]:
    """Return the new names of the variables of an outermost function, in the order in which it uses them."""
    function = _Function(named)
    function.visit(node)
    free = function.free()
    taken = {name for inner in ast.walk(node) for name in _names(inner)} - free
    unused = (name for name in _short_names() if name not in taken)
    return dict(zip((name for name in function.counts if name in free), unused, strict=False))


def _short_names() -> Iterator[str]:
    yield from ascii_letters
    for first in ascii_letters:
        yield from (first + second for second in ascii_letters if not keyword.iskeyword(first + second))
