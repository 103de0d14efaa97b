"""Says what a cage has probably stopped, from what a command has printed. Landlock tells nobody else."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from collections.abc import Iterator

from .cage_rules import CageRules

_MAX_CHARS = 200
_FILES = ("Permission denied", "Read-only file system", "Invalid cross-device link", "Device or resource busy")
_CALLS = ("Operation not permitted", "Bad system call")
_NETWORK = (
    *("Could not resolve host", "Couldn't resolve host", "Temporary failure in name resolution", "EAI_AGAIN"),
    *("Couldn't connect to server", "Network is unreachable", "Name or service not known", "ENETUNREACH"),
)
_KILLED_BY_FILTER = (-31, 159)
_NODE = (
    *("EACCES: permission denied", "EPERM: operation not permitted", "EROFS: read-only file system"),
    "EBUSY: resource busy or locked",
)
_MAX_ENTRIES = 100
_QUOTED = re.compile(r"['\"‘]([^'\"‘’]+)['\"’]")
_NAMED = re.compile(r"(?:bash: line \d+: (.+)|.+ ['‘]([^'‘’]+)['’]): [A-Z][^:'\"]+")  # it ends with file and reason
_LINKED = (
    " (hard links: the same files have names where no command in the sandbox may write, as in the store of a package"
    " manager. They are read-only here, and cannot be removed. Their directory can be moved away: mv node_modules old)"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def stopped(output: str, code: int, rules: CageRules, cwd: str = "", command: str = "") -> str:
    """Return one line about what the cage has probably stopped, "" for nothing. `output` is the end of what `command`
    has printed in `cwd`. If it has not failed, the line must name a file that the cage protects."""
    if code in _KILLED_BY_FILTER:
        return "stopped by the sandbox: a system call of another architecture"
    for line in output.splitlines():
        if code and not rules.network and any(each in line for each in _NETWORK):
            return f"stopped by the sandbox: network: {_shown(line)}"
        words = _error_words(line, code, command)
        if words and _is_of_cage(line.strip(), words, rules, cwd) in (True, None if code else True):
            linked = words != _FILES[0] and any(_is_linked(cwd, name) for name in _names(line.strip(), words))
            return f"stopped by the sandbox: {_shown(line)}{_LINKED if linked else ''}"
    return ""


def _is_linked(cwd: str, name: str) -> bool:
    path = os.path.join(cwd, name)
    with contextlib.suppress(OSError, ValueError):
        info = os.lstat(path)
        if not stat.S_ISDIR(info.st_mode):
            return info.st_nlink > 1
        with os.scandir(path) as entries:
            return any(each.is_file() and each.stat().st_nlink > 1 for each in itertools.islice(entries, _MAX_ENTRIES))
    return False


def _error_words(line: str, code: int, command: str) -> str:
    if line.strip() in command or (not code and command and not _may_come_from(command, line)):
        return ""
    return next((each for each in (*_FILES, *_CALLS, *_NODE) if each in line), "")


def _may_come_from(command: str, line: str) -> bool:
    """Return whether a line is perhaps an error of a command that went on, and not the content of a file."""
    named = _NAMED.fullmatch(line.strip())
    if named is not None and named[1]:
        return ">" in command and os.path.basename(named[1]) in command
    names = _QUOTED.findall(line) or [line.rpartition(": ")[0].rpartition(": ")[2]]
    return line.partition(":")[0] in command and any(os.path.basename(name) in command for name in names)


def _is_of_cage(line: str, words: str, rules: CageRules, cwd: str) -> bool | None:
    """Return whether the cage has caused this error, not the file's own permissions; None if it is not sure."""
    if not cwd:
        return None
    for name in _names(line, words):
        path = os.path.join(cwd, name)
        if os.path.lexists(path):
            return _is_of_cage_at(path, words, rules, line.endswith(words))
    named = _NAMED.fullmatch(line)
    above = os.path.dirname(os.path.join(cwd, named[1] or named[2])) if named else ""
    return os.access(above, os.W_OK | os.X_OK) if os.path.isdir(above) else None


def _is_of_cage_at(path: str, words: str, rules: CageRules, at_end: bool) -> bool | None:
    """The same for an error at a path. This process has the permissions of the command, but no cage."""
    if words in (_FILES[0], _NODE[0]):
        if not os.access(path, os.R_OK | os.X_OK if os.path.isdir(path) else os.R_OK):
            return False
        real = os.path.realpath(path) + "/"
        if any(real.startswith(top + "/") for top in rules.write):
            is_program = os.path.isdir(path) or os.access(path, os.X_OK)
            return None if is_program else False
        readable = any(real.startswith(top + "/") for top in rules.read)
        if readable and not os.access(path, os.W_OK) and not os.access(path, os.X_OK):
            return False
    return True if at_end else None


def _names(line: str, words: str) -> Iterator[str]:
    yield from _QUOTED.findall(line)
    for piece in reversed(line.split(": ")):
        if piece and words not in piece:
            yield piece
            yield piece.split()[-1] if piece.split() else piece


def _shown(line: str) -> str:
    clean = _CONTROL.sub(" ", line).strip()
    return clean if len(clean) <= _MAX_CHARS else clean[: _MAX_CHARS - 1] + "…"
