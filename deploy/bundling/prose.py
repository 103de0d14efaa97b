"""Source without comments and docstrings. Every statement keeps its line number."""

from __future__ import annotations

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
    """Return the statement that replaces a docstring, "" if none is needed.

    `before` is the code in front of the docstring, `stop` its end in `source`.
    """
    if not before.endswith(":"):
        return ""
    following = _NEXT_CODE.match(source, stop)
    return "" if following and len(following["indent"]) >= len(indent) else indent + "0"
