"""Which private names of the worker's modules get which shorter names in the bundle.

A private name begins with one underscore. It gets another name only where the sources alone decide what it means: it is
in no string, in no import, no argument, nothing that a base class of others may know, and never of an object that may
be of others. Modules whose classes inherit from each other share their new names.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from string import ascii_letters

_PRIVATE = re.compile(r"_[A-Za-z]\w*[A-Za-z0-9]")
_WORD = re.compile(r"\w+")
_PLAIN_BASES = {*dir(builtins), "ABC", "Generic", "Protocol"}
"""Bases of others that know no private names of a class."""


class _Module(ast.NodeVisitor):
    """How a module uses its names, in the order in which they are in it."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.used: dict[str, None] = {}
        self.bound: set[str] = set()
        self.attributes: set[str] = set()
        self.of_objects: set[str] = set()
        """Attributes of something else than `self` or `cls`."""
        self.fixed: set[str] = set()
        self.imported: dict[str, tuple[str, str]] = {}
        """The imported names: each with its module and its name there."""
        self.bases: set[str] = set()
        self._package = name.split("/")[:-1]
        self._is_foreign = False
        self.visit(tree)

    def visit_Name(self, node: ast.Name) -> None:
        self._use(node.id, node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._use(node.attr, node.ctx)
        self.attributes.add(node.attr)
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            self.of_objects.add(node.attr)
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and self._is_of_others(root.id):
            self.fixed.add(node.attr)
        self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._use(node.name, ast.Store())
        before = self._is_foreign
        for base in node.bases:
            named = base.value if isinstance(base, ast.Subscript) else base
            if not isinstance(named, ast.Name):
                self._is_foreign = True
            elif named.id not in _PLAIN_BASES:
                self._is_foreign |= self._is_of_others(named.id)
                self.bases.add(named.id)
        for each in node.body:
            for name in _names_of_class(each):
                self.attributes.add(name)
        self.generic_visit(node)
        self._is_foreign = before

    def visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._use(node.name, ast.Store())
        self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_function

    def visit_arg(self, node: ast.arg) -> None:
        self.fixed.add(node.arg)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        self.fixed.add(node.arg or "")
        self.generic_visit(node)

    def visit_imported(self, node: ast.Import | ast.ImportFrom) -> None:
        source = "/".join(_source(node, self._package))
        for each in node.names:
            self.fixed.update((each.name, each.asname or ""))
            self.imported[each.asname or each.name.split(".")[0]] = source or each.name, each.name

    visit_Import = visit_ImportFrom = visit_imported

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.fixed.update(_WORD.findall(node.value))

    def _use(self, name: str, context: ast.expr_context) -> None:
        self.used.setdefault(name)
        if not isinstance(context, ast.Load):
            self.bound.add(name)
            if self._is_foreign:
                self.fixed.add(name)

    def _is_of_others(self, name: str) -> bool:
        return name in self.imported and not self.imported[name][0].startswith("ccb/")

    def private(self, fixed: set[str]) -> list[str]:
        """Return the names that may become others."""
        return [each for each in self.used if _PRIVATE.fullmatch(each) and each not in fixed]


def _source(node: ast.Import | ast.ImportFrom, package: list[str]) -> list[str]:
    """Return the parts of the name of the module from which names are imported in `package`, [] for modules."""
    if isinstance(node, ast.Import):
        return []
    parts = node.module.split(".") if node.module else []
    return [*package[: len(package) + 1 - node.level], *parts] if node.level else parts


def _names_of_class(node: ast.stmt) -> Iterator[str]:
    """Return the names that a statement in a class may give to the class."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    else:
        yield from (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def short_privates(trees: Mapping[str, ast.Module]) -> dict[str, dict[str, str]]:
    """Return, for each module of the bundle, the new names of its private names. `trees` has all modules, by file."""
    modules = {name: _Module(name, tree) for name, tree in trees.items()}
    families = _families(modules)
    fixed = {name for module in modules.values() for name in module.fixed}
    homes: dict[str, set[str]] = defaultdict(set)
    for name, module in modules.items():
        for each in module.bound:
            homes[each].add(families[name])
    for name, module in modules.items():
        fixed.update(each for each in module.used if families[name] not in homes[each])
        fixed.update(each for each in module.of_objects if len(homes[each]) > 1)
    members: dict[str, list[_Module]] = defaultdict(list)
    for name, module in modules.items():
        members[families[name]].append(module)
    attributes = {family: _new_attributes(each, fixed) for family, each in members.items()}
    return {name: _new_names(module, attributes[families[name]], fixed) for name, module in modules.items()}


def _families(modules: Mapping[str, _Module]) -> dict[str, str]:
    """Return the family of each module: modules whose classes inherit from each other have the same one."""
    family = {name: name for name in modules}
    for name, module in modules.items():
        for base in sorted(module.bases):
            for other in _modules_on_the_way(modules, name, base):
                old, new = family[other], family[name]
                family = {each: new if of == old else of for each, of in family.items()}
    return family


def _modules_on_the_way(modules: Mapping[str, _Module], module: str, name: str) -> Iterator[str]:
    """Return the modules through which `module` imports `name`, to the one that defines it."""
    while name in modules[module].imported:
        source, name = modules[module].imported[name]
        found = [file for file in (f"{source}.py", f"{source}/__init__.py") if file in modules]
        if not found:
            return
        module = found[0]
        yield module


def _new_attributes(family: list[_Module], fixed: set[str]) -> dict[str, str]:
    """Return the new names of the attributes of a family of modules."""
    attributes = {each for module in family for each in module.attributes}
    taken = {each for module in family for each in module.used}
    old = dict.fromkeys(each for module in family for each in module.private(fixed) if each in attributes)
    return dict(zip(old, _unused(taken | fixed), strict=False))


def _new_names(module: _Module, attributes: Mapping[str, str], fixed: set[str]) -> dict[str, str]:
    """Return the new names of the private names of a module whose family has these new `attributes`."""
    private = module.private(fixed)
    names = {each: attributes[each] for each in private if each in attributes}
    others = [each for each in private if each not in attributes]
    return names | dict(zip(others, _unused({*module.used, *fixed, *names.values()}), strict=False))


def _unused(taken: set[str]) -> Iterator[str]:
    for name in (*ascii_letters, *(first + second for first in ascii_letters for second in ascii_letters)):
        if f"_{name}" not in taken:
            yield f"_{name}"
