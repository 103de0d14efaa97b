"""The files of a tree: regular files, hidden ones too, nothing of .git, nothing that .gitignore leaves out; links are
not followed. ripgrep lists them where it is, our own walker where it is not."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .globs import Globs
from .ignore import Ignore

_ARGUMENTS = 96 * 1024  # bytes of file names for one command line
_TO_FINISH = 2.0  # seconds


class Deadline(Exception):
    """The time for the search is over."""


@dataclass
class Limits:
    """When to stop (monotonic seconds), and what was not looked at: `late` says that something was left out for lack of
    time; `unread` are paths that the system did not let us read, `cut` counts lines that were not searched to their
    end, `large` files that are too large for a multi-line search."""

    until: float
    late: bool = False
    unread: set[str] = field(default_factory=set)
    cut: int = 0
    large: int = 0

    def missed(self, path: str, error: OSError) -> None:
        """`path` (absolute) could not be read. What is gone meanwhile is not missed."""
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            self.unread.add(path)

    def check(self) -> None:
        if time.monotonic() > self.until:
            raise Deadline

    def end_listing(self) -> None:
        """The time is over: a little more, once, to make a result of what was found."""
        if not self.late:
            self.late = True
            self.until += _TO_FINISH

    @property
    def left(self) -> float:
        """Seconds for another program."""
        return max(0.1, self.until - time.monotonic())


@dataclass(frozen=True)
class Found:
    """A file, relative to the root of the search."""

    path: str
    mtime_ns: int
    size: int


RIPGREP = (
    *("--no-config", "--hidden", "--no-ignore-dot", "--no-ignore-global", "--no-ignore-exclude"),
    *("--glob", "!.git", "--null", "--encoding=none"),
)
"""Options with which ripgrep sees the tree as the walker does."""

_COMPLAINT = re.compile(rb"^(?:rg: )?\./(.+?): [^\n]*\(os error ([0-9]+)\)$", re.DOTALL | re.MULTILINE)


def files(root: str, chosen: list[Globs], rg: str, limits: Limits) -> Iterator[str]:
    """Relative paths of all files that every one of `chosen` matches."""
    listed = _by_ripgrep(root, [rg, *RIPGREP, *type_options(chosen), "--files", "./"], limits, False) if rg else None
    for path in walk(root, limits) if listed is None else listed:
        if all(globs.match(path) for globs in chosen):
            yield path


def type_options(chosen: list[Globs]) -> list[str]:
    """Options that spare ripgrep the files whose names are not wanted. As a file type, because there .gitignore goes
    first; a `--glob` would bring ignored files back."""
    named = [globs.names for globs in chosen if globs.names]
    if not named or any(":" in name for name in named[0]):
        return []
    return [*(f"--type-add=ccbwanted:{name}" for name in named[0]), "--type=ccbwanted"]


def matching_by_ripgrep(
    root: str, rg: str, chosen: list[Globs], texts: list[str], ignore_case: bool, limits: Limits
) -> list[str] | None:
    """Files with one of the texts, and perhaps some without; None when ripgrep does not work here."""
    options = ["--text", "--fixed-strings", "--files-with-matches", *(["--ignore-case"] if ignore_case else ())]
    wanted = [option for text in texts for option in ("-e", text)]
    command = [rg, *RIPGREP, *type_options(chosen), *options, *wanted, "--", "./"]
    listed = _by_ripgrep(root, command, limits, True)
    if listed is None:
        return None
    return [path for path in listed if all(globs.match(path) for globs in chosen)]


def matching_by_grep(
    root: str, grep: str, paths: Iterable[str], texts: list[str], ignore_case: bool, limits: Limits
) -> Iterator[str]:
    """Of `paths`, those with one of the texts, and perhaps some without."""
    wanted = [option for text in texts for option in ("-e", text)]
    command = [grep, "-lZaF", *(["-i"] if ignore_case else ()), *wanted, "--"]
    for batch in _batches(paths):
        limits.check()
        names = [os.path.join(".", path) for path in batch]
        try:
            done = subprocess.run(
                [*command, *names],
                cwd=root,
                env={**os.environ, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=limits.left,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Deadline from None
        except OSError:
            yield from batch
            continue
        if done.returncode > 1 or (done.stdout and not done.stdout.endswith(b"\0")):
            yield from batch  # unreadable files, or a grep without these options: the scan decides
        else:
            yield from _names(done.stdout)


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in paths:
        batch.append(path)
        size += len(os.fsencode(path)) + 12
        if size > _ARGUMENTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _by_ripgrep(root: str, command: list[str], limits: Limits, reads: bool) -> list[str] | None:
    """What it lists. Where it `reads`, the files that it could not read come with them: the scan decides."""
    try:
        done = subprocess.run(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limits.left,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        limits.end_listing()
        return _names(late.output or b"") + _unread(root, late.stderr or b"", limits, reads)
    except OSError:
        return None
    if done.returncode < 0 or (done.returncode > 1 and not done.stdout and not _COMPLAINT.search(done.stderr)):
        return None
    return _names(done.stdout) + _unread(root, done.stderr, limits, reads)


def _unread(root: str, complaints: bytes, limits: Limits, reads: bool) -> list[str]:
    """The files among what ripgrep could not read; the directories are noted."""
    found: dict[str, None] = {}
    for name, number in _COMPLAINT.findall(complaints):
        path = os.path.join(root, os.fsdecode(name))
        if os.path.isdir(path) and not os.path.islink(path):
            limits.missed(path, OSError(int(number), ""))
        elif reads:
            found[os.fsdecode(name)] = None
    return list(found)


def _names(listed: bytes) -> list[str]:
    """Relative paths out of names that each end in a NUL; one that was cut is left out."""
    return [os.fsdecode(name[2:] if name.startswith(b"./") else name) for name in listed.split(b"\0")[:-1]]


def in_time(paths: Iterable[str], limits: Limits) -> list[str]:
    """The paths that come before the time is over."""
    found: list[str] = []
    try:
        for path in paths:
            found.append(path)  # noqa: PERF402 - what has come stays when the time ends
    except Deadline:
        limits.end_listing()
    return found


def walk(root: str, limits: Limits) -> Iterator[str]:
    """Every file below `root`, as relative paths. Directories that cannot be read are noted and left out."""
    waiting = [(root, "", Ignore.at(root))]
    while waiting:
        limits.check()
        directory, prefix, rules = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                found = list(entries)
        except OSError as error:
            limits.missed(directory, error)
            continue
        if prefix:
            rules = rules.below(directory, {entry.name for entry in found})
        for entry in found:
            if entry.name == ".git":
                continue
            is_directory = entry.is_dir(follow_symlinks=False)
            if not is_directory and not entry.is_file(follow_symlinks=False):
                continue
            path = os.path.join(directory, entry.name)
            if rules.ignores(path, is_directory):
                continue
            if is_directory:
                waiting.append((path, prefix + entry.name + "/", rules))
            else:
                yield prefix + entry.name


def with_times(root: str, paths: Iterable[str], limits: Limits) -> list[Found]:
    """The files with their times, newest first, then by path. What is gone meanwhile is left out, and what there is no
    time for."""
    found = []
    for number, path in enumerate(paths):
        if not number % 1000 and time.monotonic() > limits.until:
            if limits.late:
                break
            limits.end_listing()
        try:
            status = os.lstat(os.path.join(root, path))
        except OSError as error:
            limits.missed(os.path.join(root, path), error)
            continue
        if stat.S_ISREG(status.st_mode):
            found.append(Found(path, status.st_mtime_ns, status.st_size))
    return sorted(found, key=lambda file: (-file.mtime_ns, file.path))
