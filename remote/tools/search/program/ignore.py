"""The .gitignore files of git repositories. The index is not consulted: a tracked file can be ignored."""

from __future__ import annotations

import errno
import os
import re
import stat

from ....system.owners import only_we_write
from .globs import translate

TYPE_CHECKING = False
if TYPE_CHECKING:  # each import is felt where each search starts the program anew
    from collections.abc import Sequence

_MAX_BYTES = 1 << 20
_MAX_LINES = 10_000  # Python takes two seconds to compile as many patterns


class Rules:
    """One .gitignore file. Paths are relative to its directory."""

    def __init__(self, text: str) -> None:
        self._text: str | None = text  # until it is needed: ripgrep may answer without it
        self._any: re.Pattern[str] | None = None
        self._rules: list[tuple[str, bool, bool]] = []
        self._compiled: list[tuple[re.Pattern[str], bool, bool]] = []

    def verdict(self, path: str, is_directory: bool) -> bool | None:
        """Return True for an ignored path, False for a path that a `!` rule includes again, None if no rule matches.
        The last matching rule wins."""
        if self._text is not None:
            lines, self._text = self._text.removeprefix("\ufeff").split("\n"), None
            rules = [rule for line in lines if (rule := _rule(line)) is not None]
            self._any = re.compile("|".join(f"(?:{body})" for body, _, _ in rules), re.DOTALL) if rules else None
            self._rules = rules[::-1]
        if self._any is None or not self._any.fullmatch(path):
            return None
        if not self._compiled:
            self._compiled = [(re.compile(body, re.DOTALL), neg, only) for body, neg, only in self._rules]
        for pattern, negated, directories_only in self._compiled:
            if (is_directory or not directories_only) and pattern.fullmatch(path):
                return not negated
        return None


class Ignore:
    """The ignore rules in force in one directory. `below` returns the rules for a directory inside it. `excludes`: the
    files `.git/info/exclude` count too. `unobeyed` are the files that are no regular ones, as a link to a device or a
    pipe that never opens, or too large. `is_strangers`: the repository that ripgrep would see is one of somebody else,
    above the project."""

    def __init__(
        self, frames: list[tuple[int, Rules]], in_repository: bool, excludes: bool, unobeyed: set[str]
    ) -> None:
        self._frames = frames  # (length of the directory's path with its slash, rules), the innermost last
        self._in_repository = in_repository
        self._excludes = excludes
        self.unobeyed = unobeyed
        self.is_strangers = False

    @staticmethod
    def at(root: str, project: Sequence[str] = (), excludes: bool = False) -> Ignore:
        """Return the rules in force where a search starts, including those of the parent directories in the same
        repository. Above the directories of the `project`, only those count to which nobody else may write."""
        found = Ignore([], False, excludes, set())
        own = tuple(os.path.join(os.path.realpath(each), "") for each in project)
        directories, here, counts = [root], root, True
        while here != os.path.dirname(here) and not os.path.lexists(os.path.join(here, ".git")):
            here = os.path.dirname(here)
            counts = counts and (os.path.join(os.path.realpath(here), "").startswith(own) or only_we_write(here))
            if counts:
                directories.append(here)
        for directory in reversed(directories):
            found = found.below(directory)
        found.is_strangers = not counts and os.path.lexists(os.path.join(here, ".git"))
        return found

    def below(self, directory: str, names: set[str] | None = None) -> Ignore:
        """Return the rules inside `directory` (absolute). `names` are its entries, if the caller has them."""
        starts = os.path.lexists(os.path.join(directory, ".git")) if names is None else ".git" in names
        inside = starts or self._in_repository
        has_file = inside and (names is None or ".gitignore" in names)
        text = self._text(os.path.join(directory, ".gitignore")) if has_file else None
        if text is None and not starts:
            return self
        frames = [] if starts else self._frames
        excluded = self._text(os.path.join(directory, ".git/info/exclude")) if starts and self._excludes else None
        rules = [(len(directory.rstrip("/")) + 1, Rules(each)) for each in (excluded, text) if each is not None]
        return Ignore(frames + rules, inside, self._excludes, self.unobeyed)

    def ignores(self, path: str, is_directory: bool) -> bool:
        """Return whether the rules exclude this entry (absolute path)."""
        for length, rules in reversed(self._frames):
            verdict = rules.verdict(path[length:], is_directory)
            if verdict is not None:
                return verdict
        return False

    def _text(self, path: str) -> str | None:
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
                info = os.fstat(file.fileno())
                if stat.S_ISREG(info.st_mode) and info.st_size <= _MAX_BYTES:
                    data = file.read(_MAX_BYTES)
                    if data.count(b"\n") <= _MAX_LINES:
                        return os.fsdecode(data)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            if error.errno == errno.EACCES and os.access(path, os.R_OK):
                return None  # the cage hides what is outside of the project
        self.unobeyed.add(path)
        return None


def _rule(line: str) -> tuple[str, bool, bool] | None:
    """Return (regular expression, negated, directories only) for one line, None for a blank one or a comment."""
    if line.endswith("\r"):
        line = line[:-1]
    if line.startswith("#"):
        return None
    stripped = line.rstrip(" ")
    if len(stripped) < len(line) and (len(stripped) - len(stripped.rstrip("\\"))) % 2:
        stripped += " "
    negated = stripped.startswith("!")
    glob = stripped[1:] if negated else stripped
    only = glob.endswith("/")
    if only:
        glob = glob[:-1]
    if not glob or glob == "/":
        return None
    anchored = "/" in glob
    body = translate(glob[1:] if glob.startswith("/") else glob)
    return (body if anchored else f"(?:.*/)?{body}"), negated, only
