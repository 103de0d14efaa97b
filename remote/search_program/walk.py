"""The files of a tree: listed by ripgrep, or by our own walker with the same result."""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import time
from collections.abc import Iterable, Iterator, Sequence

from .globs import Globs, Ignore

TYPE_CHECKING = False

if TYPE_CHECKING:  # each import is felt where each search starts the program anew
    from typing import Any, Callable

    Found = tuple[str, int]  # the path of a file, relative to the root of the search, and its size

_SIGKILL = 9  # `signal` imports much
_MEMORY = 1 << 30
_COMPUTING_S = 300  # of all threads together
_SOON_S = 1.0
SLOW_S = 3.0  # for 1 MiB of a file, or 4,096 lines
_NAME_S = 0.5  # for one name
_LOST_S = 30.0
_LOOK_S = 2.0  # to find out why ripgrep prints nothing
_TO_FINISH = 2.0  # extra seconds to build a result from what was found in time


def limit() -> None:
    """Limit what this process, and each that it starts, may take: a line of 2 GB costs a search several times that."""
    import resource

    for kind, most in ((resource.RLIMIT_DATA, _MEMORY), (resource.RLIMIT_CPU, _COMPUTING_S)):
        try:
            _, hard = resource.getrlimit(kind)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):
            pass  # a system that does not know it


class Deadline(Exception):
    """The time for the search is over."""


class TooSlow(Exception):
    """A pattern or a disk takes too long in one file."""


class Limits:
    """The time to stop (`until`, monotonic seconds), the rules of the directory where a search starts, and what was not
    searched. `late`: something was left out for lack of time; `left_out`: by permission rules. `cut`: the number of
    lines not searched to their end. `large`: of files too large for a multi-line search. `foreign`: files not in UTF-8.
    `slow`: files in which a pattern took too long."""

    def __init__(self, until: float, start: Ignore | None = None) -> None:
        self.until = until
        self.start = start or Ignore()
        self.late = False
        self.unread: set[str] = set()
        self.cut = self.large = self.binary = 0
        self.left_out = False
        self.ignored: set[str] = set()
        self.foreign: set[str] = set()
        self.slow: set[str] = set()
        self.stopped_in = ""
        self._alive = 0.0
        self._slow_s: float | None = None  # the time for a step, while steps are timed

    def missed(self, path: str, error: OSError) -> None:
        """Note that `path` (absolute) could not be read. A file that is gone is not noted."""
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            self.unread.add(path)

    def check(self) -> None:
        self._alive = time.monotonic()
        if self._alive > self.until:
            raise Deadline

    def timed(self, slow_s: float, path: str, work: Callable[..., bool], *arguments: object) -> bool:
        """Return the result of `work`; if a step of it takes too long or too much memory, note `path`, return False."""
        self._alive, self._slow_s = time.monotonic(), slow_s
        try:
            return work(*arguments)
        except (TooSlow, MemoryError):
            self.slow.add(path)
            return False
        finally:
            self._slow_s = None

    def tick(self) -> None:
        """End a timed step that takes too long: raise TooSlow or Deadline. For a signal handler, which runs also inside
        of a regular expression."""
        now = time.monotonic()
        if now > self.until + _LOST_S:
            os._exit(1)  # the worker, which would have stopped this by now, was killed
        if self._slow_s is not None and now > self.until:
            raise Deadline
        if self._slow_s is not None and now > self._alive + self._slow_s:
            self._alive = now
            raise TooSlow

    def end_listing(self) -> None:
        """Note that the time is over. The first time, grant a little more to build a result from what was found."""
        if not self.late:
            self.late = True
            self.until += _TO_FINISH


MAX_WHOLE = 16 << 20
"""Largest file that ripgrep searches, in bytes: it takes several times the memory of the longest line. Larger files are
scanned piece by piece."""

_RIPGREP = (  # the options with which it sees the tree as the walker does, and tells what it leaves out
    *("--debug", "--no-config", "--hidden", "--no-ignore-dot", "--no-ignore-global", "--no-ignore-exclude"),
    *("--glob", "!.git", "--null"),
    f"--threads={min(12, 2 * (os.cpu_count() or 1))}",  # it waits for the kernel more than it computes
)
_IGNORED = re.compile(rb"ignoring (?:\./)?(.+?): Ignore\(IgnoreMatch\(Gitignore\(Glob \{ from: Some\(\"(.*?)\"\)")
_COMPLAINT = re.compile(rb"^(?:rg: )?\./(.+?): [^\n]*\(os error ([0-9]+)\)$", re.DOTALL | re.MULTILINE)
_NO_FILE = re.compile(rb"ignoring \./((?:[^\n]*/)?)\.gitignore: failed to pass")
_TOO_LARGE = re.compile(rb"ignoring \./(.+?): [0-9]+ bytes$", re.DOTALL | re.MULTILINE)


def files(
    root: str, chosen: list[Globs], limits: Limits, rg: str, texts: Sequence[str] = (), ignore_case: bool = False
) -> list[str]:
    """Return the relative paths of all files that every one of `chosen` matches, as far as they are found in time. With
    `texts`, ripgrep may leave out those that contain none of them."""
    what = ["--files", "./"]
    if texts:
        what = [f"--max-filesize={MAX_WHOLE}", "--text", "--files-with-matches", "--fixed-strings"]
        what += ["--ignore-case"] if ignore_case else []
        what += [*(option for text in texts for option in ("-e", text)), "--", "./"]
    listed = _by_ripgrep(root, [rg, *_RIPGREP, *what], limits, reads=bool(texts)) if rg else None
    if listed is None and rg and texts:
        return files(root, chosen, limits, rg)
    found: list[str] = []
    try:
        for path in walk(root, limits) if listed is None else listed:
            if all(limits.timed(_NAME_S, path, globs.match, path) for globs in chosen):
                found.append(path)  # noqa: PERF401 - what came in time is kept
    except Deadline:
        limits.end_listing()
    return found


def _by_ripgrep(root: str, command: list[str], limits: Limits, *, reads: bool) -> list[str] | None:
    """Return the files that a command of ripgrep lists, None if it does not work here. If the command `reads` the
    files, add those that it could not read or that are too large for it, so that the scan decides on them."""
    if limits.start.unobeyed or limits.start.is_strangers:
        return None  # ripgrep would obey it, or wait for it
    try:
        out, told, code = _output(root, command, limits)
    except OSError:
        return None
    complaints, ignored = dict(_COMPLAINT.findall(told)), _IGNORED.findall(told)
    if _has_failed(out, code, bool(complaints)):
        return None
    if code is None:
        limits.end_listing()
    elif not all(source.endswith(b".gitignore") for _, source in ignored):
        return None  # our own walker obeys no other files
    limits.ignored |= {os.fsdecode(path) for path, source in ignored if source.endswith(b".gitignore")}
    for name in _NO_FILE.findall(told):
        limits.start.below(os.path.join(root, os.fsdecode(name)))  # finds out what it is
    found = [name.removeprefix(b"./") for name in out.split(b"\0")[:-1]]
    unread = _unread(root, complaints, limits)
    return list(map(os.fsdecode, [*found, *unread, *_TOO_LARGE.findall(told)] if reads else found))


def _has_failed(out: bytes, code: int | None, complains: bool) -> bool:
    """Return whether ripgrep does not work here: what it printed, whether it complained, and its exit code say so."""
    if code is None:
        return not out
    return code < 0 or (code > 1 and not out and not complains)


def _unread(root: str, complaints: dict[bytes, bytes], limits: Limits) -> list[bytes]:
    """Note the directories that ripgrep could not read. Return the files that it could not read."""
    files = []
    for name, number in complaints.items():
        path = os.path.join(root, os.fsdecode(name))
        if os.path.isdir(path) and not os.path.islink(path):
            limits.missed(path, OSError(int(number), ""))
        else:
            files.append(name)
    return files


def _output(root: str, command: list[str], limits: Limits) -> tuple[bytes, bytes, int | None]:
    """Return what a command that runs in `root`, in the locale C, prints, and its exit code: None if it was killed,
    because the time is over, or it prints nothing for a second and a .gitignore may keep it for ever, or nothing for
    half of the time. Raise OSError if it cannot be started."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    streams: Any = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        *((os.POSIX_SPAWN_DUP2, out_end, 1), (os.POSIX_SPAWN_DUP2, err_end, 2)),
    ]
    back = os.getcwd()
    try:
        os.chdir(root)
        process = os.posix_spawn(command[0], command, {**os.environ, "LC_ALL": "C"}, file_actions=streams)
    except OSError:
        os.close(out)
        os.close(err)
        raise
    finally:
        os.chdir(back)
        os.close(out_end)
        os.close(err_end)
    now = time.monotonic()
    seconds = max(0.1, limits.until - now)
    silent_until, looked = now + min(_SOON_S, seconds / 2), False
    texts, waiting = {out: bytearray(), err: bytearray()}, [out, err]
    while waiting:
        left = (now + seconds if texts[out] else silent_until) - time.monotonic()
        ready = select.select(waiting, [], [], max(0, left))[0]
        if not ready and not texts[out] and not looked and not _is_blinding(root, limits):
            silent_until, looked = now + seconds / 2, True
        elif not ready:
            os.kill(process, _SIGKILL)
            break
        for pipe in ready:
            piece = os.read(pipe, 1 << 16)
            texts[pipe] += piece
            if not piece:
                waiting.remove(pipe)
    os.close(out)
    os.close(err)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return bytes(texts[out]), bytes(texts[err]), None if waiting else code


def _is_blinding(root: str, limits: Limits) -> bool:
    """Return whether there is a .gitignore that may keep ripgrep for ever, as a pipe or a link to a device."""
    look = Limits(min(limits.until, time.monotonic() + _LOOK_S), limits.start)
    try:
        any(look.start.unobeyed for _ in walk(root, look))
    except Deadline:
        pass
    return bool(look.start.unobeyed)


def walk(root: str, limits: Limits) -> Iterator[str]:
    """Yield every file below `root`, as a relative path. Directories that cannot be read are noted and skipped."""
    waiting = [(root, "", limits.start)]
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
            is_directory = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or not (is_directory or entry.is_file(follow_symlinks=False)):
                continue
            path = os.path.join(directory, entry.name)
            if limits.timed(_NAME_S, path, rules.ignores, path, is_directory):
                limits.ignored.add(prefix + entry.name)
            elif is_directory:
                waiting.append((path, prefix + entry.name + "/", rules))
            else:
                yield prefix + entry.name


def with_times(root: str, paths: Iterable[str], limits: Limits) -> list[Found]:
    """Return the files that are there and can be examined in time: newest first, then by path."""
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
            found.append((-status.st_mtime_ns, path, status.st_size))
    return [(path, size) for _, path, size in sorted(found)]
