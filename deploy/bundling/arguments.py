"""Which parameters of the worker's functions calls name: those must keep their names in the bundle.

A call that names an argument means the functions with the name that it calls. What it calls may also be a variable, a
field or an alias, which can hold any function. Then no parameter of that name may change.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_MAKERS = ("__init__", "__new__")
_OF_OTHERS = {"Popen", "Thread", "field", "replace", "which"}
"""Functions of the standard library that pass none of their named arguments on to a function of the worker."""


@dataclass(frozen=True)
class NamedArguments:
    """`anywhere` has the arguments of calls that may mean any function, `by_function` those of the others."""

    anywhere: Set[str]
    by_function: dict[str, set[str]]

    def of(self, function: str) -> Set[str]:
        """Return the parameters of the functions with this name that must keep their names."""
        return self.anywhere | self.by_function.get(function, set())


def named_arguments(trees: Iterable[ast.AST]) -> NamedArguments:
    """Return which arguments the calls of all `trees` name."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
    functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = defaultdict(list)
    for node in nodes:
        if isinstance(node, _FUNCTIONS):
            functions[node.name].append(node)
    variables = {name for node in nodes for name in _variables(node)}
    fields = {name for node in nodes for name in _fields(node)}
    known = functions.keys() | classes.keys() | _OF_OTHERS
    anywhere: set[str] = set()
    by_function: dict[str, set[str]] = defaultdict(set)
    for call in nodes:
        if not isinstance(call, ast.Call) or not call.keywords:
            continue
        called = _name(call.func)
        means = [called] if called in functions else []
        if called in classes and not _is_dataclass(classes[called]):
            means += _MAKERS
        named = {each.arg for each in call.keywords if each.arg}
        if any(not each.arg for each in call.keywords):
            named |= {each.arg for name in means for function in functions[name] for each in _parameters(function)}
        if called in (variables if isinstance(call.func, ast.Name) else fields) or called not in known:
            anywhere |= named
        for name in means:
            by_function[name] |= named
    return NamedArguments(anywhere, by_function)


def _name(function: ast.expr) -> str:
    """Return the last part of what a call calls, "" if it has no name."""
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def _variables(node: ast.AST) -> Iterator[str]:
    """Return the names that `node` gives to something that may be any function."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias) and node.asname:
        yield node.asname


def _fields(node: ast.AST) -> Iterator[str]:
    """Return the attributes of objects, classes and modules of which `node` makes something that may be any
    function."""
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        yield node.attr
    elif isinstance(node, ast.ClassDef | ast.Module):
        for each in node.body:
            if not isinstance(each, _FUNCTIONS | ast.ClassDef):
                yield from (name for inner in ast.walk(each) for name in _variables(inner))
    elif isinstance(node, _FUNCTIONS) and any("property" in _name(each) for each in node.decorator_list):
        yield node.name


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.dump(each) for each in node.decorator_list)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [each for each in ast.walk(function.args) if isinstance(each, ast.arg)]
