"""The .gitignore files of git repositories. The index is not consulted: a tracked file can be ignored."""

from __future__ import annotations

import errno
import os
import re
import stat

from .globs import translate

_MAX_BYTES = 1 << 20


class Rules:
    """One .gitignore file. Paths are relative to its directory."""

    def __init__(self, text: str) -> None:
        rules = [rule for line in text.removeprefix("\ufeff").split("\n") if (rule := _rule(line)) is not None]
        self._rules = rules[::-1]
        self._any = re.compile("|".join(f"(?:{body})" for body, _, _ in rules), re.DOTALL) if rules else None
        self._compiled: list[tuple[re.Pattern[str], bool, bool]] = []

    def verdict(self, path: str, is_directory: bool) -> bool | None:
        """Return True for an ignored path, False for a path that a `!` rule includes again, None if no rule matches.
        The last matching rule wins."""
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
    pipe that never opens, or too large."""

    def __init__(
        self, frames: list[tuple[int, Rules]], in_repository: bool, excludes: bool, unobeyed: set[str]
    ) -> None:
        self._frames = frames  # (length of the directory's path with its slash, rules), the innermost last
        self._in_repository = in_repository
        self._excludes = excludes
        self.unobeyed = unobeyed

    @staticmethod
    def at(root: str, excludes: bool = False) -> Ignore:
        """Return the rules in force where a search starts, including those of the parent directories in the same
        repository, up to one that others may write to."""
        found = Ignore([], False, excludes, set())
        directories = [root]
        while directories[-1] != os.path.dirname(directories[-1]):
            above = os.path.dirname(directories[-1])
            if is_strangers(above, root):
                break
            directories.append(above)
        for directory in reversed(directories):
            found = found.below(directory)
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
                    return os.fsdecode(file.read(_MAX_BYTES))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
        self.unobeyed.add(path)
        return None


def is_strangers(directory: str, root: str) -> bool:
    """Return whether somebody may have put files into a directory above `root` who is neither this user nor the owner
    of `root`."""
    try:
        info, own = os.stat(directory), os.stat(root)
    except OSError:
        return True
    return bool(info.st_mode & stat.S_IWOTH) or info.st_uid not in (0, os.geteuid(), own.st_uid)


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
