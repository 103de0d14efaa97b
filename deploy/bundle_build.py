"""Builds the worker bundle: one reproducible zip of the worker's sources. Packs it for the transfer to a host.

The sources travel without docstrings, comments and annotations (except those of the fields of classes), and with one
space for each step of indentation: the host has no use for more. Every statement keeps its line number, so a traceback
from the host names the right line of the source. The build hook of the wheel loads this module by its path, so it
imports nothing relative.
"""

from __future__ import annotations

import ast
import base64
import io
import re
import zipfile
import zlib
from pathlib import Path

MAX_SIZE = 300 * 1024
"""Largest packed bundle in bytes."""

FORMS = ("xz", "zlib")
"""The forms of a packed bundle, the smallest first. Not every Python has `lzma`, on the laptop or on the host."""

_LATER = tuple(f"ccb/remote/{room}/" for room in ("host_commands", "permissions/git", "permissions/shell"))
"""What the start of a session does not import. It comes last, because the host compiles what has come while the rest is
on its way."""

_EPOCH = (1980, 1, 1, 0, 0, 0)

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
inside an f-string may have the same quotes; the worker cannot use that.) `tokenize` and `ast` would take 50 times as
long."""

_STATEMENT_ENDS = re.compile(r"[ \t]*(?:#|\n|\Z)")
_NEXT_CODE = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*(?P<indent>[ \t]*)(?=[^\s#])")


def build(remote: Path, wire: Path, version: str) -> bytes:
    """Return the bundle of the source folders `remote` and `wire`.

    The same sources give the same bytes under every Python. Nothing in the zip is compressed: it is packed as a whole,
    which takes a quarter off what is sent, and imported without unpacking.
    """
    entries = {
        "ccb/__init__.py": f'__version__ = "{version}"\n'.encode(),
        "ccb/tunnel/__init__.py": b"",
        **_sources(remote, "ccb/remote"),
        **_sources(wire, "ccb/tunnel/wire"),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in sorted(entries, key=lambda name: (name.startswith(_LATER), name)):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, entries[name])
    return out.getvalue()


def pack(data: bytes, form: str) -> bytes:
    """Return the bundle in one of FORMS. Raise ValueError if it is larger than MAX_SIZE, ImportError if this Python
    cannot make that form."""
    if form == "zlib":
        packed = zlib.compress(data, 9)
    else:
        import lzma

        # The host needs as much memory as the dictionary has; the bundle is smaller than a megabyte.
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 20, "pb": 0}]
        packed = lzma.compress(data, check=lzma.CHECK_NONE, filters=filters)
    if len(packed) > MAX_SIZE:
        raise ValueError(f"the packed worker bundle has {len(packed)} bytes, over the limit of {MAX_SIZE}")
    return packed


def pack_stub(source: bytes) -> bytes:
    """Return the stub as it travels in a command line: without comments and empty lines, compressed, in base64."""
    lines = [line for line in without_prose(source.decode()).splitlines() if line]
    return base64.b64encode(zlib.compress("\n".join(lines).encode(), 9))


def _sources(folder: Path, prefix: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for item in folder.iterdir():
        if item.is_dir() and item.name != "__pycache__":
            found |= _sources(item, f"{prefix}/{item.name}")
        elif item.name.endswith(".py"):
            found[f"{prefix}/{item.name}"] = compact(without_prose(item.read_text(encoding="utf-8")))
    return found


def compact(source: str) -> bytes:
    """Return `source`, indented by one space for four, without annotations except those in classes. No line
    moves."""
    text = source.encode()
    starts = [0, *(match.end() for match in re.finditer(b"\n", text))]
    cuts: list[tuple[int, int]] = []
    inside: set[int] = set()  # lines that begin within a string

    def place(line: int, column: int | None) -> int:
        return starts[line - 1] + (column or 0)

    tree = ast.parse(source)
    declared = {id(each) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in node.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and node.value is not None and id(node) not in declared:
            begin = place(node.target.end_lineno or 0, node.target.end_col_offset)
            cuts.append((begin, place(node.annotation.end_lineno or 0, node.annotation.end_col_offset)))
        elif isinstance(node, ast.arg) and node.annotation is not None:
            begin = place(node.lineno, node.col_offset) + len(node.arg.encode())
            cuts.append((begin, place(node.annotation.end_lineno or 0, node.annotation.end_col_offset)))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            begin = text.rindex(b"->", 0, place(node.returns.lineno, node.returns.col_offset))
            cuts.append((begin, place(node.returns.end_lineno or 0, node.returns.end_col_offset)))
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            inside.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
    for number, start in enumerate(starts, 1):
        if number not in inside:
            spaces = len(text[start : start + 200]) - len(text[start : start + 200].lstrip(b" "))
            cuts.append((start + spaces // 4, start + spaces))
    for begin, end in sorted(cuts, reverse=True):
        text = text[:begin] + b"\n" * text.count(b"\n", begin, end) + text[end:]
    return text


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

    `before` is the code in front of the docstring, `stop` its end in `source`. A class keeps a docstring of one
    character: for a class without a docstring, `dataclass` makes one from the signature, and that takes long.
    """
    if not before.endswith(":"):
        return ""
    if before.rpartition("\n")[2].lstrip().startswith("class "):
        return indent + '"."'
    following = _NEXT_CODE.match(source, stop)
    return "" if following and len(following["indent"]) >= len(indent) else indent + "0"
