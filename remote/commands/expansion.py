"""Expands the text of a command file: its arguments, the output of its commands, and the files that it names.

What arguments bring in is never read as a command: the places of commands are found in the file's own text first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Mapping, Sequence
from typing import Callable

_SHELL = re.compile(r"(?:(?<=\s)|^)!`([^`\n]+)`", re.MULTILINE)
_PLACE = re.compile(r"\$(?:ARGUMENTS\[(\d{1,2})\]|(ARGUMENTS)\b|(\d{1,2})\b|\{(\w+)\})")
_FILE = re.compile(r"(?:(?<=\s)|(?<=\()|^)@([^\s`)]+)", re.MULTILINE)
_MAX_FILES = 20


async def expand(
    text: str, arguments: str, names: Mapping[str, str], shell: Callable[[str], Awaitable[str]] | None
) -> str:
    """Return `text` with its arguments, and the output of each !`command` in its place. Without `shell` these stay as
    they are. `names` are the values of `${NAME}`. Arguments without a place are added at the end."""
    if shell is None:
        return filled(text, arguments, names)
    words = _words(arguments)
    pieces: list[str] = []
    at = 0
    for found in _SHELL.finditer(text):
        pieces.append(_filled(text[at : found.start()], arguments, words, names))
        command = _filled(found[1], arguments, words, names)
        pieces.append((await shell(command)).rstrip("\n"))
        at = found.end()
    pieces.append(_filled(text[at:], arguments, words, names))
    return "".join(pieces) + _rest(text, arguments)


def filled(text: str, arguments: str, names: Mapping[str, str]) -> str:
    """Return `text` with its arguments. Its commands stay as they are."""
    return _filled(text, arguments, _words(arguments), names) + _rest(text, arguments)


def _rest(text: str, arguments: str) -> str:
    """Return what is added to a text that has no place for its arguments."""
    placed = not arguments or any(found[4] is None for found in _PLACE.finditer(text))
    return "" if placed else f"\n\nARGUMENTS: {arguments}"


def named_files(text: str) -> list[str]:
    """Return the paths that a text names as `@path`, each once."""
    found = (each[1].rstrip(".,;:") for each in _FILE.finditer(text))
    return list(dict.fromkeys(path for path in found if path))[:_MAX_FILES]


def _filled(text: str, arguments: str, words: Sequence[str], names: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        index, whole, number, name = found.groups()
        if whole:
            return arguments
        if name:
            return names.get(name, found[0])
        place = int(index) if index else int(number) - 1
        return words[place] if 0 <= place < len(words) else "" if place >= 0 else found[0]

    return _PLACE.sub(value, text)


def _words(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()
