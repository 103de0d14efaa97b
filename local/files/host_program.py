"""The source of the program that is sent to the host for one copy."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

_MODULES = ("channel", "window", "sending", "receiving", "serving")
_FUTURE = "from __future__ import annotations\n"
_START = 'serve(sys.argv[1], wait=sys.argv[2] == "wait")\n'


@cache
def host_program() -> bytes:
    """Return the modules of `both_ends` as one module that starts the half on the host."""
    folder = Path(__file__).parent / "both_ends"
    modules = [_without_own_imports((folder / f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES]
    return (_FUTURE + "\n".join(modules) + _START).encode()


def _without_own_imports(source: str) -> str:
    lines: list[str] = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and (node.level or node.module == "__future__"):
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return "".join(lines)
