"""Finds and reads instruction files (CLAUDE.md and AGENTS.md): what the owners of a directory want an agent to know."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable
from itertools import chain, islice
from pathlib import PurePath

from ccb.tunnel.wire.dataclass import dataclass

from ..system.host import is_under
from ..system.owners import is_ours, only_we_write
from .reminders import Occasion

NAMES = ("CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.md")
LOCAL_NAME = "CLAUDE.local.md"
SCOPES = ("user", "project", "local")
_USER_FILES = (".claude/CLAUDE.md", ".config/ccb/AGENTS.md")
_ENDINGS = (".md", ".mdc", ".markdown", ".txt")
_MAX_BYTES = 40 * 1024
_MAX_TOTAL_BYTES = 100 * 1024
_MAX_FILES = 40
_MAX_NAMED = 10 * _MAX_FILES  # in one file: most words that begin with @ name no file of the project
_MAX_IMPORT_DEPTH = 5
_MAX_DIRECTORIES = 2000  # below the session's directory
_CODE = re.compile(r"^(`{3,}|~{3,}).*?(?:^\1|\Z)|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"(?:^|(?<=\s))@([^\s@]+)", re.MULTILINE)


@dataclass(frozen=True)
class InstructionFile:
    """An instruction file. `scope` is `user`, `project` or `local` (a person's own, or a clone brings it). `importer`
    is the file that names it with `@`, "" for none. A text that was cut says so in its last line."""

    path: str
    text: str
    scope: str
    importer: str = ""


def find_instructions(cwd: str, home: str, sources: Collection[str] = SCOPES) -> list[InstructionFile]:
    """Return the user's own files, then those from the root down to `cwd`: the nearest one comes last and counts most.
    Above `cwd`, only files count that nobody but this user and root could have put there."""
    here = os.path.realpath(cwd)
    reader = InstructionReader(here, home)
    candidates = [(os.path.join(home, name), "user") for name in _USER_FILES]
    for directory in _from_root(here):
        counts = directory == here or only_we_write(directory)
        candidates += [each for each in _in_directory(directory) if counts and (directory == here or is_ours(each[0]))]
    for path, scope in candidates:
        if scope in sources and not reader.add(path, scope):
            break
    return reader.found


class InstructionReader:
    """Reads instruction files and what they import. No file is read twice. `found` are the files, within the limits."""

    def __init__(self, cwd: str, home: str) -> None:
        self.found: list[InstructionFile] = []
        self._home = home
        self._root = project_root(cwd, home)
        self._seen: set[tuple[int, int]] = set()
        self._texts: set[str] = set()
        self._left = _MAX_TOTAL_BYTES

    def add(self, path: str, scope: str, importer: str = "", depth: int = 0) -> bool:
        """Read a file that may be missing. Return False when the limits are reached."""
        if scope != "user" and not self._belongs(path):
            return True
        read = _read(path, min(_MAX_BYTES, self._left), self._seen)
        if read is None:
            return True
        text, size = read
        if text.strip() in self._texts or not text.strip():
            return True
        if len(self.found) >= _MAX_FILES or self._left <= 0:
            left_out = "(left out: the instruction files are too long together)"
            self.found.append(InstructionFile(path, left_out, scope, importer))
            return False
        self._texts.add(text.strip())
        self._left -= size
        self.found.append(InstructionFile(path, text, scope, importer))
        if depth == _MAX_IMPORT_DEPTH:
            return True
        return all(self.add(each, scope, path, depth + 1) for each in self._imports(path, text, scope))

    def _belongs(self, path: str) -> bool:
        """Return whether a file is where it seems to be: no link of a project leads out of it."""
        real = os.path.realpath(path)
        return is_under(real, self._root) or (not is_under(path, self._root) and (real == path or is_ours(path)))

    def _imports(self, path: str, text: str, scope: str) -> list[str]:
        """Return the files that a text imports: a clone must not bring the person's files into the conversation."""
        found = []
        for named in islice(dict.fromkeys(_IMPORT.findall(_CODE.sub("", text))), _MAX_NAMED):
            name = named.rstrip(".,;:!?)\"'")
            name = os.path.join(self._home, name[2:]) if name.startswith("~/") else name
            target = os.path.realpath(os.path.join(os.path.dirname(path), name))
            if scope == "user" or target.startswith(self._root + os.sep):
                found.append(target)
        return found[:_MAX_FILES]


class NestedInstructions:
    """The instruction files below the session's directory. The model gets them when it first works with a file beside
    or below them, and again after a compaction. Follow `due` as a source of reminders."""

    def __init__(self, cwd: str, home: str, sources: Collection[str]) -> None:
        self._cwd = os.path.realpath(cwd)
        self._sources = sources
        self._reader = InstructionReader(self._cwd, home)
        self._looked: set[str] = {self._cwd}  # real paths of directories
        self._said = 0

    def touched(self, path: str) -> list[InstructionFile]:
        """Note that the model works with a file: read the instruction files between the session's directory and it.
        Return those that are new."""
        before = len(self._reader.found)
        directory = os.path.dirname(os.path.realpath(os.path.join(self._cwd, path)))
        between: list[str] = []
        while directory.startswith(self._cwd + os.sep) and directory not in self._looked:
            if len(self._looked) + len(between) >= _MAX_DIRECTORIES:
                return []
            between.append(directory)
            directory = os.path.dirname(directory)
        self._looked.update(between)
        for path, scope in chain.from_iterable(map(_in_directory, between[::-1])):
            if scope in self._sources and not self._reader.add(path, scope):
                break
        return self._reader.found[before:]

    def due(self, occasion: Occasion) -> Iterable[str]:
        """Return what is to be said now."""
        found = self._reader.found
        first = 0 if occasion is Occasion.COMPACTED else self._said
        self._said = len(found)
        for file in found[first:]:
            yield f"Instructions for the files in {os.path.dirname(file.path)}:\n\n{instruction_text(file)}"


def instruction_text(file: InstructionFile) -> str:
    whose = {"user": "the user's own, for all projects", "local": "of the project, for this directory"}
    imported = f", imported by {file.importer}" if file.importer else ""
    return f"## {file.path} ({whose.get(file.scope, 'of the project')}{imported})\n\n{file.text.strip()}"


def project_root(cwd: str, home: str) -> str:
    """Return the directory of the repository that `cwd` is in, or `cwd`. The home directory is no repository's, unless
    `cwd` is the home directory, and neither is one to which others may write."""
    here = os.path.realpath(cwd)
    for directory in _from_root(here)[::-1]:
        marker = os.path.join(directory, ".git")
        if os.path.lexists(marker) and directory not in (os.path.realpath(home), os.sep):
            return directory if directory == here or is_ours(marker) else here
    return here


def _in_directory(directory: str) -> list[tuple[str, str]]:
    found = [(os.path.join(directory, name), "project") for name in NAMES]
    return [*found, (os.path.join(directory, LOCAL_NAME), "local")]


def _from_root(directory: str) -> list[str]:
    return [*map(str, list(PurePath(directory).parents)[::-1]), directory]


def _read(path: str, limit: int, seen: set[tuple[int, int]]) -> tuple[str, int] | None:
    """Return (text, bytes used), None for no readable regular file or one read before. Does not block on a FIFO."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or (info.st_dev, info.st_ino) in seen:
                return None
            if os.path.splitext(os.path.realpath(path))[1].lower() not in _ENDINGS:
                return None  # a link in a clone could bring a private key into the conversation
            seen.add((info.st_dev, info.st_ino))
            data = file.read(limit + 1)
    except OSError:
        return None
    if b"\0" in data[:8192]:
        return None
    text = data[:limit].decode("utf-8-sig", "ignore").replace("\r\n", "\n")
    if len(data) > limit:
        whole_lines = text.rpartition("\n")[0] or text
        text = f"{whole_lines}\n(cut here: the file is longer than {limit} bytes; read it for the rest)"
    return text, min(len(data), limit)
