"""The files of a project that make a search program leave files out without a word."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence

_OBEYED = {
    "rg": (".rgignore", ".ignore"),
    "fd": (".fdignore", ".ignore"),
    "fdfind": (".fdignore", ".ignore"),
    "ag": (".agignore", ".ignore"),
}
_MENTIONED = re.compile(r"\b(?:rg|fd|fdfind|ag)\b")
_SHOWS_ALL = re.compile(r"-[a-zA-Z]*u[a-zA-Z]*|--unrestricted|--no-ignore(?:-dot)?")
_BETWEEN_COMMANDS = re.compile(r"[;|&()`\n]")
_NOT_SEARCHED = ("node_modules",)
_MAX_DIRECTORIES = 2000
_MAX_BYTES = 1 << 16
_SHOWN = 3


def narrowing_note(command: str, cwd: str, roots: Sequence[str]) -> str:
    """Return a note for the model about files in the session's directories `roots` that have narrowed a search of a
    command, "" if there are none. What .gitignore leaves out is expected, and is not told. The files are looked for:
    call this in a thread."""
    if not _MENTIONED.search(command):
        return ""
    told = []
    for program, words in _searches(command):
        starts = [path for word in words if os.path.isdir(path := os.path.join(cwd, word))] or [cwd]
        found = _found([*starts, *_above(starts, roots)], starts, _OBEYED[program])
        if found:
            shown = ", ".join(os.path.relpath(path, cwd) for path in found[:_SHOWN])
            told.append(f"{program} left out what {shown}{', …' if len(found) > _SHOWN else ''} of the project names")
    return "".join(f"({note}; --no-ignore shows all.)\n" for note in dict.fromkeys(told)).rstrip("\n")


def _searches(command: str) -> Iterable[tuple[str, list[str]]]:
    """Yield each search program that a line runs and that obeys such files, with its arguments. A line that is read in
    another way than the shell reads it only gets a note too many or too few."""
    for part in _BETWEEN_COMMANDS.split(command):
        try:
            words = shlex.split(part)
        except ValueError:  # a quote that another part closes
            words = part.split()
        names = [os.path.basename(word) for word in words]
        at = next((at for at, name in enumerate(names) if name in _OBEYED), -1)
        if at >= 0 and not any(_SHOWS_ALL.fullmatch(word) for word in words[at + 1 :]):
            yield names[at], words[at + 1 :]


def _above(starts: Iterable[str], roots: Sequence[str]) -> list[str]:
    """Return the directories of the session above those in which a search starts: it obeys their files as well."""
    above = []
    for start in starts:
        directory = os.path.dirname(os.path.realpath(start))
        while any(f"{directory}/".startswith(f"{os.path.realpath(root)}/") for root in roots):
            above.append(directory)
            directory = os.path.dirname(directory)
    return above


def _found(looked_at: Iterable[str], starts: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the files with these names that leave something out: in the directories, and below those in `starts`."""
    waiting = [(path, path in starts) for path in dict.fromkeys(looked_at)]
    found: list[str] = []
    for directory, goes_down in waiting:  # it grows meanwhile
        if len(found) > _SHOWN:
            break
        found += [path for name in names if _says_something(path := os.path.join(directory, name))]
        if goes_down and len(waiting) < _MAX_DIRECTORIES:
            waiting += [(path, True) for path in _inner(directory)]
    return found


def _inner(directory: str) -> list[str]:
    """Return the directories in a directory that such programs search by default."""
    try:
        with os.scandir(directory) as entries:
            return [
                entry.path
                for entry in entries
                if entry.name[0] != "." and entry.name not in _NOT_SEARCHED and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []


def _says_something(path: str) -> bool:
    """Return whether a file has a line that is no comment."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            lines = file.read(_MAX_BYTES).splitlines()
    except OSError:
        return False
    return any(line.strip() and not line.lstrip().startswith(b"#") for line in lines)
