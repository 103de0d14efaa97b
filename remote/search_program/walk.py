"""The files of a tree."""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import time
from collections.abc import Iterable, Iterator

from .globs import Globs, Ignore

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable


_IGNORED = re.compile(rb"ignoring (?:\./)?(.+?): Ignore\(IgnoreMatch\(Gitignore\(Glob \{ from: Some\(\"(.*?)\"\)")


def left_out(told: bytes) -> tuple[set[str], bool]:
    """Return the entries that .gitignore leaves out, and whether another file left out something, as a command told
    that had the option `--debug`."""
    ignored: set[str] = set()
    is_foreign = False
    for path, source in _IGNORED.findall(told):
        if source.endswith(b".gitignore"):
            ignored.add(os.fsdecode(path))
        else:
            is_foreign = True
    return ignored, is_foreign


_SIGKILL = 9  # `signal` imports much
_MEMORY = 1 << 30
_COMPUTING_S = 300  # of all threads together
_SOON_S = 1.0


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


class Running:
    """A command that runs in `root`, in the locale C. If it is `quiet`, its stdout is dropped. OSError is raised if it
    cannot be started."""

    def __init__(self, root: str, command: list[str], quiet: bool = False) -> None:
        (self._out, out_end), (self._err, err_end) = os.pipe(), os.pipe()
        stdout: Any = (os.POSIX_SPAWN_DUP2, out_end, 1)
        if quiet:
            stdout = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
        stdin: Any = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        streams = [stdin, (os.POSIX_SPAWN_DUP2, err_end, 2), stdout]
        back = os.getcwd()
        try:
            os.chdir(root)
            self._pid = os.posix_spawn(command[0], command, {**os.environ, "LC_ALL": "C"}, file_actions=streams)
        finally:
            os.chdir(back)
            os.close(out_end)
            os.close(err_end)

    def end(self, seconds: float, is_stuck: Callable[[], bool] | None = None) -> tuple[bytes, bytes, int | None]:
        """Wait. Return the command's stdout, its stderr, and its exit code: None if it was killed, because its time was
        over, or because it had printed nothing: for a second if `is_stuck` says so, or for half of its time."""
        now = time.monotonic()
        until, silent_until = now + seconds, now + (min(_SOON_S, seconds / 2) if is_stuck else seconds)
        with open(self._out, "rb", 0) as found, open(self._err, "rb", 0) as told:
            texts, waiting = {found: bytearray(), told: bytearray()}, [found, told]
            while waiting:
                left = (until if texts[found] else min(until, silent_until)) - time.monotonic()
                ready = select.select(waiting, [], [], max(0, left))[0]
                if not ready:
                    asked, is_stuck = is_stuck, None
                    if asked is not None and not texts[found] and not asked():
                        silent_until = now + seconds / 2
                        continue
                    os.kill(self._pid, _SIGKILL)
                    break
                for pipe in ready:
                    piece = pipe.read(1 << 16)
                    texts[pipe] += piece
                    if not piece:
                        waiting.remove(pipe)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return bytes(texts[found]), bytes(texts[told]), None if waiting else code


_MAX_ARGUMENTS = 96 * 1024  # bytes of file names in one command line
_SLOW_S = 3.0  # for 1 MiB of a file, or 4,096 lines
_NAME_S = 0.5  # for one name
_LOST_S = 30.0
_LOOK_S = 2.0  # to find out why ripgrep prints nothing
_TO_FINISH = 2.0  # extra seconds to build a result from what was found in time


class Deadline(Exception):
    """The time for the search is over."""


class TooSlow(Exception):
    """A pattern or a disk takes too long in one file."""


class Limits:
    """The time to stop (`until`, monotonic seconds), and a record of what was not searched. `late`: something was left
    out for lack of time. `unread`: the paths that could not be read. `cut`: the number of lines that were not searched
    to their end. `large`: the number of files that are too large for a multi-line search. `ignored`: the entries that
    .gitignore leaves out. `unobeyed`: the files .gitignore that are none. `start`: the rules of .gitignore where the
    search starts. `foreign`: the files that are not in UTF-8.
    `binary`: how many files are no text. `slow`: the files in which a pattern took too long. `stopped_in`: the file in
    which the time was over."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.late = False
        self.unread: set[str] = set()
        self.cut = 0
        self.large = 0
        self.ignored: set[str] = set()
        self.unobeyed: set[str] = set()
        self.start: Ignore | None = None
        self.foreign: set[str] = set()
        self.binary = 0
        self.slow: list[str] = []
        self.stopped_in = ""
        self._scanning = False
        self._alive = self._slow_s = 0.0

    def missed(self, path: str, error: OSError) -> None:
        """Note that `path` (absolute) could not be read. A file that is gone is not noted."""
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            self.unread.add(path)

    def check(self) -> None:
        self._alive = time.monotonic()
        if self._alive > self.until:
            raise Deadline

    def scanning(self, *, on: bool, slow_s: float = _SLOW_S) -> None:
        """Let `tick` end what takes longer than `slow_s` from now on, or not any more."""
        self._alive, self._scanning, self._slow_s = time.monotonic(), on, slow_s

    def judged(self, path: str, judge: Callable[..., bool], *arguments: object) -> bool:
        """Return what a pattern says of a name. If that takes too long, note the name and return False."""
        self.scanning(on=True, slow_s=_NAME_S)
        try:
            return judge(*arguments)
        except TooSlow:
            self.slow.append(path)
            return False
        finally:
            self.scanning(on=False)

    def tick(self) -> None:
        """End a step of the scan that takes too long. Call it from a signal handler, which a regular expression runs
        too. Raise TooSlow or Deadline."""
        now = time.monotonic()
        if now > self.until + _LOST_S:
            os._exit(1)  # the worker, which would have stopped this by now, was killed
        if self._scanning and now > self.until:
            raise Deadline
        if self._scanning and now > self._alive + self._slow_s:
            self._alive = now
            raise TooSlow

    def end_listing(self) -> None:
        """Note that the time is over. The first time, grant a little more to build a result from what was found."""
        if not self.late:
            self.late = True
            self.until += _TO_FINISH

    @property
    def left(self) -> float:
        """How many seconds another program may take."""
        return max(0.1, self.until - time.monotonic())


class Found:
    """A file, relative to the root of the search."""

    def __init__(self, path: str, mtime_ns: int, size: int) -> None:
        self.path = path
        self.mtime_ns = mtime_ns
        self.size = size


RIPGREP = (
    *("--no-config", "--hidden", "--no-ignore-dot", "--no-ignore-global", "--no-ignore-exclude"),
    *("--glob", "!.git", "--null"),
    f"--threads={min(12, 2 * (os.cpu_count() or 1))}",  # it waits for the kernel more than it computes
)
"""Options with which ripgrep sees the tree as the walker does."""

_COMPLAINT = re.compile(rb"^(?:rg: )?\./(.+?): [^\n]*\(os error ([0-9]+)\)$", re.DOTALL | re.MULTILINE)


_OF_A_TYPE = "--type=ccbwanted"
MAX_WHOLE = 16 << 20
"""Largest file that ripgrep searches, in bytes: it takes several times the memory of the longest line. Larger files are
scanned piece by piece."""

_MAX_SIZE = f"--max-filesize={MAX_WHOLE}"
_NO_FILE = re.compile(rb"ignoring \./((?:[^\n]*/)?)\.gitignore: failed to pass")
_TOO_LARGE = re.compile(rb"ignoring \./(.+?): [0-9]+ bytes$", re.DOTALL | re.MULTILINE)


def files(root: str, chosen: list[Globs], rg: str, limits: Limits) -> Iterator[str]:
    """Yield the relative paths of all files that every one of `chosen` matches."""
    use_rg = rg and not limits.unobeyed
    listed = _by_ripgrep(root, listing_command(rg, chosen), limits, False) if use_rg else None
    yield from matched(walk(root, limits) if listed is None else listed, chosen, limits)


def _match_all(chosen: list[Globs], path: str) -> bool:
    return all(globs.match(path) for globs in chosen)


def matched(paths: Iterable[str], chosen: list[Globs], limits: Limits) -> Iterator[str]:
    """Yield the paths that every one of `chosen` matches."""
    for path in paths:
        if not chosen or limits.judged(path, _match_all, chosen, path):
            yield path


def listing_command(rg: str, chosen: list[Globs]) -> list[str]:
    """Return the command of ripgrep that lists all files, except some that `chosen` does not match."""
    return _telling([rg, *RIPGREP, *type_options(chosen), "--files", "./"])


def _telling(command: list[str]) -> list[str]:
    """Let ripgrep tell what it leaves out, unless it would tell of every other file: it does if it knows the names of
    its files."""
    return command if _OF_A_TYPE in command else [command[0], "--debug", *command[1:]]


def type_options(chosen: list[Globs]) -> list[str]:
    """Return options that let ripgrep skip files by their names. They define a file type, because a `--glob` would
    bring back files that .gitignore excludes."""
    named = [globs.names for globs in chosen if globs.names]
    if not named or any(":" in name for name in named[0]):
        return []
    return [*(f"--type-add=ccbwanted:{name}" for name in named[0]), _OF_A_TYPE]


_NO_CONTINUATION = r"(?:[\x01-\x09\x0b-\x7f\xc0-\xff]|$)"
_NOT_UTF8 = (  # bytes that show, in one line, that a file is not in UTF-8
    rf"(?-u:[\xc0-\xff]{_NO_CONTINUATION}|[\xe0-\xff][\x80-\xbf]{_NO_CONTINUATION}"
    rf"|[\xf0-\xff][\x80-\xbf][\x80-\xbf]{_NO_CONTINUATION}|(?:^|[\x01-\x09\x0b-\x7f])[\x80-\xbf])"
)
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$#&~-]")


def matching_command(
    rg: str, chosen: list[Globs], texts: list[str], ignore_case: bool, foreign: bool = False
) -> list[str]:
    """Return the command of ripgrep that lists the files that contain one of the texts, and perhaps some others. With
    `foreign`, it lists those that are not in UTF-8 as well. It tells which files are too large for it."""
    options = ["--text", "--files-with-matches", *(["--ignore-case"] if ignore_case else ())]
    if foreign:
        texts = [*(_SPECIAL.sub(r"\\\g<0>", text) for text in texts), _NOT_UTF8]
    else:
        options.append("--fixed-strings")
    wanted = [option for text in texts for option in ("-e", text)]
    return _telling([rg, *RIPGREP, *type_options(chosen), _MAX_SIZE, *options, *wanted, "--", "./"])


def matching_by_ripgrep(root: str, command: list[str], chosen: list[Globs], limits: Limits) -> list[str] | None:
    """Return the files that `matching_command` lists, as far as `chosen` matches them; None if ripgrep does not work
    here."""
    listed = _by_ripgrep(root, command, limits, True)
    if listed is None:
        return None
    return in_time(matched(listed, chosen, limits), limits)


def matching_by_grep(
    root: str, grep: str, paths: Iterable[str], texts: list[str], ignore_case: bool, limits: Limits
) -> Iterator[str]:
    """Yield the `paths` whose files contain one of the texts, and perhaps some others."""
    wanted = [option for text in texts for option in ("-e", text)]
    command = [grep, "-lZaF", *(["-i"] if ignore_case else ()), *wanted, "--"]
    for batch in _batches(paths):
        limits.check()
        names = [os.path.join(".", path) for path in batch]
        try:
            listed, _, code = Running(root, [*command, *names]).end(limits.left)
        except OSError:
            yield from batch
            continue
        if code is None:
            raise Deadline
        if code > 1 or (listed and not listed.endswith(b"\0")):
            yield from batch  # grep met unreadable files or lacks these options: let the scan decide
        else:
            found = _names(listed)
            yield from found
            yield from (path for path in batch if _is_wide(os.path.join(root, path)) and path not in found)


def _is_wide(path: str) -> bool:
    """Return whether a file has the byte order mark of UTF-16, in which grep does not find a text."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(file, 2) in (b"\xff\xfe", b"\xfe\xff")
    except OSError:
        return False
    finally:
        os.close(file)


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in paths:
        batch.append(path)
        size += len(os.fsencode(path)) + 12
        if size > _MAX_ARGUMENTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _by_ripgrep(root: str, command: list[str], limits: Limits, reads: bool) -> list[str] | None:
    """Return the files that a command of ripgrep lists, None if it does not work here. If the command `reads` the
    files, add those that it could not read, so that the scan decides on them."""
    try:
        search = Running(root, command)
        listing = [command[0], *RIPGREP, *([_MAX_SIZE] if reads else ()), "--files", "--debug", "./"]
        narrowing = Running(root, listing, quiet=True) if _OF_A_TYPE in command else None
    except OSError:
        return None
    out, told, code = search.end(limits.left, lambda: _is_blinded(root, limits))
    if code is None and out:
        limits.end_listing()
    told_apart = narrowing.end(0.1 if code is None else limits.left)[1] if narrowing else told
    ignored, by_other_files = left_out(told_apart)
    if _has_failed(out, told, code) or (by_other_files and code is not None):
        return None  # our own walker obeys no other files
    limits.ignored |= ignored
    for name in _NO_FILE.findall(told_apart):
        (limits.start or Ignore.at(root)).below(os.path.join(root, os.fsdecode(name)))  # finds out what it is
    large = [os.fsdecode(name) for name in _TOO_LARGE.findall(told_apart)] if reads else []
    return _names(out) + _unread(root, told, limits, reads) + large


def _has_failed(out: bytes, told: bytes, code: int | None) -> bool:
    """Return whether ripgrep does not work here: what it printed, what it complained of, and its exit code say so."""
    if code is None:
        return not out
    return code < 0 or (code > 1 and not out and not _COMPLAINT.search(told))


def _is_blinded(root: str, limits: Limits) -> bool:
    """Return whether there is a .gitignore that may keep ripgrep for ever, as a pipe or a link to a device."""
    until, limits.until = limits.until, min(limits.until, time.monotonic() + _LOOK_S)
    try:
        return any(bool(limits.unobeyed) for _ in walk(root, limits)) or bool(limits.unobeyed)
    except Deadline:
        return bool(limits.unobeyed)
    finally:
        limits.until = until


def _unread(root: str, complaints: bytes, limits: Limits, reads: bool) -> list[str]:
    """Note the directories that ripgrep could not read. If it `reads` files, return the files that it could not
    read."""
    found: dict[str, None] = {}
    for name, number in _COMPLAINT.findall(complaints):
        path = os.path.join(root, os.fsdecode(name))
        if os.path.isdir(path) and not os.path.islink(path):
            limits.missed(path, OSError(int(number), ""))
        elif reads:
            found[os.fsdecode(name)] = None
    return list(found)


def _names(listed: bytes) -> list[str]:
    """Split NUL-terminated names into relative paths. Drop a truncated last name."""
    return [os.fsdecode(name[2:] if name.startswith(b"./") else name) for name in listed.split(b"\0")[:-1]]


def in_time(paths: Iterable[str], limits: Limits) -> list[str]:
    """Return the paths that arrive before the time is over."""
    found: list[str] = []
    try:
        for path in paths:
            found.append(path)  # noqa: PERF402 - the paths that came in time are kept
    except Deadline:
        limits.end_listing()
    return found


def walk(root: str, limits: Limits) -> Iterator[str]:
    """Yield every file below `root`, as a relative path. Directories that cannot be read are noted and skipped."""
    start = limits.start or Ignore.at(root)
    limits.unobeyed = start.unobeyed
    waiting = [(root, "", start)]
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
            if limits.judged(path, rules.ignores, path, is_directory):
                limits.ignored.add(prefix + entry.name)
                continue
            if is_directory:
                waiting.append((path, prefix + entry.name + "/", rules))
            else:
                yield prefix + entry.name


def with_times(root: str, paths: Iterable[str], limits: Limits) -> list[Found]:
    """Return the files with their times, newest first, then by path. Leave out files that are gone, and those that
    could not be examined in time."""
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
