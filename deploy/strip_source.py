"""Source without comments, docstrings and types of functions and variables. Every statement keeps its line number."""

from __future__ import annotations

import ast
import re

_TOKEN = re.compile(
    r"""
    [^"'\#()\[\]{}]*
    (?: (?P<string> \"{3} (?: [^"\\]+ | \\. | "(?!"") )* \"{3}
                  | '{3} (?: [^'\\]+ | \\. | '(?!'') )* '{3}
                  | " (?: [^"\\\n]+ | \\. )* "
                  | ' (?: [^'\\\n]+ | \\. )* ' )
      | (?P<comment> \# [^\n]* )
      | (?P<open> [(\[{] )
      | (?P<close> [)\]}] ) )
    """,
    re.VERBOSE | re.DOTALL,
)
"""The parts of Python 3.9 source that decide what is a comment and what is a string on its own. (From 3.12 on a string
inside an f-string may have the same quotes; the worker cannot use that.) `tokenize` would take 50 times as long."""

_STATEMENT_ENDS = re.compile(r"[ \t]*(?:#|\n|\Z)")
_NEXT_CODE = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*(?P<indent>[ \t]*)(?=[^\s#])")


def without_prose(source: str) -> str:
    """Return Python 3.9 `source` without comments and docstrings. Every statement keeps its line number."""
    source = source.replace("\r\n", "\n")
    kept: list[str] = []
    end = depth = 0
    before = ""
    for token in _TOKEN.finditer(source):
        kind = token.lastgroup or ""
        start, stop = token.span(kind)
        if kind in ("open", "close"):
            depth += 1 if kind == "open" else -1
        elif kind == "comment":
            kept.append(source[end:start].rstrip(" \t"))
            before = kept[-1].rstrip() or before
            end = stop
        elif not depth and _STATEMENT_ENDS.match(source, stop):
            line = source.rfind("\n", 0, start) + 1
            indent = source[line:start].rstrip("r")
            code = source[end:line]
            if not indent.strip(" \t") and not code.endswith("\\\n"):
                before = code.rstrip() or before
                kept += code, _stand_in(before, indent, source, stop), "\n" * source.count("\n", start, stop)
                end = stop
    return "".join([*kept, source[end:]])


def _stand_in(before: str, indent: str, source: str, stop: int) -> str:
    """Return what replaces a docstring, "" for nothing. `before` is the code in front, `stop` its end."""
    if not before.endswith(":"):
        return ""
    following = _NEXT_CODE.match(source, stop)
    return "" if following and len(following["indent"]) >= len(indent) else indent + "0"


def _annotations(tree: ast.Module, text: bytes) -> list[tuple[int, int]]:
    starts = [0, *(match.end() for match in re.finditer(b"\n", text))]

    def end_of(node: ast.expr) -> int:
        return starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    found: list[tuple[int, int]] = []
    fields = {each for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in node.body}
    for node in ast.walk(tree):
        annotation = node.annotation if isinstance(node, ast.arg) else getattr(node, "returns", None)
        if annotation is not None:
            mark = b":" if isinstance(node, ast.arg) else b"->"
            begin = text.rindex(mark, 0, starts[annotation.lineno - 1] + annotation.col_offset)
            found.append((begin, end_of(annotation)))
        elif isinstance(node, ast.AnnAssign) and node.value is not None and node not in fields:
            found.append((end_of(node.target), end_of(node.annotation)))
    return found


def without_types(source: str) -> str:
    """Return `source` without annotations, but for fields of classes, and indented by one space. No line moves."""
    text = source.encode()
    tree = ast.parse(source)
    cuts = _annotations(tree, text)
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)]
    within_strings = {line for node in strings for line in range(node.lineno, node.end_lineno or 0)}
    for begin, end in sorted(cuts, reverse=True):
        text = text[:begin].rstrip(b" ") + b"\\\n" * text.count(b"\n", begin, end) + text[end:]
    lines = text.decode().split("\n")
    for number, line in enumerate(lines):
        if number not in within_strings:
            code = line.lstrip(" ")
            lines[number] = " " * ((len(line) - len(code)) // 4) + code
    return "\n".join(lines)
