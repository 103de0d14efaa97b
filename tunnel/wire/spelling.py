"""How file names that are no plain text are spelled for the model and the person, and read again.

A byte that is not UTF-8 and a control character become `\\xHH`, a line feed becomes `\\n`. The backslashes of a name
that has such a thing, or could be read as if it had, are doubled. Any other name is spelled as it is. Names of a path
are spelled one by one, so that pieces of a path fit together."""

from __future__ import annotations

import os
import re

_UNPRINTABLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\u2028\u2029\udc80-\udcff]")
_SPELLED = re.compile(rb"\\(?:(\\)|(n)|x(0[1-9a-f]|7f|[189a-f][0-9a-f]))")


def spelled(path: str) -> str:
    """Return a path as text that `unspelled` reads."""
    if "\\" not in path and not _UNPRINTABLE.search(path):
        return path
    return "/".join(map(_spelled_name, path.split("/")))


def unspelled(text: str) -> str:
    """Return the path that a text spells, with surrogate escapes for bytes that are not UTF-8. A name that is spelled
    in another way than `spelled` does it stays as it is: what watches paths as text need not know several spellings."""
    return "/".join(map(_unspelled_name, text.split("/"))) if "\\" in text else text


def _spelled_name(name: str) -> str:
    if not _UNPRINTABLE.search(name) and _read(name) == name:
        return name
    return _UNPRINTABLE.sub(_escape, name.replace("\\", "\\\\"))


def _unspelled_name(text: str) -> str:
    name = _read(text)
    return name if _spelled_name(name) == text else text


def _escape(found: re.Match[str]) -> str:
    return "\\n" if found[0] == "\n" else "".join(f"\\x{byte:02x}" for byte in os.fsencode(found[0]))


def _read(text: str) -> str:
    return os.fsdecode(_SPELLED.sub(_byte, os.fsencode(text)))


def _byte(found: re.Match[bytes]) -> bytes:
    return b"\\" if found[1] else b"\n" if found[2] else bytes.fromhex(found[3].decode())
