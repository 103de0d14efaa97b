"""What acts later, kept as it is. What exists before a command is a mount that it cannot change. What is new after it
is set aside, whoever made it. Directories are read again only if their state shows a change, whose time no command can
set. Files with names where no command may write, as in a package store, count, too."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from itertools import islice
from typing import Callable, NamedTuple, Optional

from .cage_directories import let_in
from .cage_rules import AT_THE_TOP, AT_TOP_IF_THERE, REPOSITORY_HEAD, SET_ASIDE, acts_later, is_repository, is_unknown

_LONGEST_NAME = 255


def set_aside(top: str, path: str) -> tuple[str, str]:
    """Rename a path below `top`, or what makes it a repository. Return what, and its new name. Raise OSError."""
    is_named = acts_later(os.path.basename(path))
    if not (is_named or os.path.islink(path)) and os.path.isdir(path) and is_repository(os.listdir(path)):
        path = os.path.join(path, REPOSITORY_HEAD)
    directory, name = os.path.split(path)
    kept = os.fsencode(name)[: _LONGEST_NAME - len(SET_ASIDE) - 9].decode("utf-8", "ignore") or "kept"
    with held_below(top, os.path.relpath(directory, top)) as held:
        new = f"{kept}{SET_ASIDE}"
        with contextlib.suppress(FileNotFoundError):
            while os.stat(new, dir_fd=held, follow_symlinks=False):  # no command knows which name comes next
                new = f"{kept}{SET_ASIDE}-{secrets.token_hex(4)}"
        try:
            os.rename(name, new, src_dir_fd=held, dst_dir_fd=held)
        except PermissionError:  # by the mode of the directory, if it is this user's own
            mode, itself = stat.S_IMODE(os.fstat(held).st_mode), f"/proc/self/fd/{held}"
            os.chmod(itself, mode | stat.S_IRWXU)
            try:
                os.rename(name, new, src_dir_fd=held, dst_dir_fd=held)
            finally:
                os.chmod(itself, mode)
        return path, new


@contextlib.contextmanager
def held_below(top: str, inner: str, *, make: bool = False, any_kind: bool = False) -> Iterator[int]:
    """Hold open what is at a path below a directory, on the way to which no link is followed. `make` directories that
    are missing. `any_kind`: it may be something else than a directory, as a link."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(top, flags | os.O_DIRECTORY)
    try:
        parts = [part for part in inner.split("/") if part not in ("", ".")]
        for number, part in enumerate(parts, 1):
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=file)
            kind = 0 if any_kind and number == len(parts) else os.O_DIRECTORY
            entered = os.open(part, flags | kind, dir_fd=file)
            os.close(file)
            file = entered
        yield file
    finally:
        os.close(file)


_MAX_DIRECTORIES = 200_000
_MAX_PROTECTED = 4000
_MAX_LINKED = 1000
_MAX_OPEN = 200
_DEPTH, _MAX_ENTRIES = 2, 200  # of the links in a directory that acts later
_ENTERED = stat.S_IRUSR | stat.S_IXUSR
_TICK_NS = 2_500_000_000  # the coarsest clock of a file system: a directory may change again within the tick


class TooLarge(OSError):
    """A directory in which not everything can be counted and protected."""


class _State(NamedTuple):
    device: int
    number: int
    changed: int
    modified: int
    mode: int


_Links = dict[str, tuple[int, int, int]]
"""The paths of files with several names: the numbers of device and file, and how many names it has."""


class _Directory(NamedTuple):
    """What is in a directory. `settled`: a change shows in its state."""

    state: _State
    settled: bool
    found: list[str]
    unknown: list[str]
    linked: _Links


class _Held(NamedTuple):
    """A file as it was when a command got it as a mount. As long as it is open (`file`), none gets its number."""

    file: int
    info: os.stat_result

    def is_replaced(self, path: str) -> bool:
        """Return whether another file is there now, which no mount covers."""
        now = _stat(path)
        if now is None or not os.path.samestat(now, self.info):
            return now is not None
        may_be_other = self.file < 0 and not stat.S_ISDIR(self.info.st_mode)
        return may_be_other and now.st_ctime_ns != self.info.st_ctime_ns


class LaterActors:
    """What acts later in a directory: `known` before or accepted, `named` by git, `held` as a mount."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.tops: Collection[str] = ()
        self.known: set[str] = set()
        self.named: set[str] = set()
        self.held: dict[str, _Held] = {}
        self._directories: dict[str, _Directory] = {}
        self._settings: dict[str, _Settings] = {}

    def accept(self, found: set[str]) -> None:
        """Take what is there now for known, of which `found` acts later for sure."""
        self.known = found | steps(found | self.named, self.tops) | self.unknown(found)
        self.release()

    def hold(self, paths: Iterable[str]) -> None:
        for path in paths:
            opens = len(self.held) < _MAX_OPEN
            with contextlib.suppress(OSError):
                if path not in self.held:
                    file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC) if opens else -1
                    self.held[path] = _Held(file, os.fstat(file) if opens else os.lstat(path))

    def release(self) -> None:
        for held in self.held.values():
            if held.file >= 0:
                os.close(held.file)
        self.held.clear()

    def take(self) -> set[str]:
        """Return the paths that are there now, behind no link. A repository without a `.git` counts as a whole."""
        kept = self._directories.items()
        changed = [path for path, old in kept if not old.settled or _state(_stat(path)) != old.state]
        insist = bool(self._directories)
        for path in changed if insist else [self.top]:
            self._read(path, insist)
        return {path for each in self._directories.values() for path in each.found}

    def unknown(self, repositories: Set[str]) -> set[str]:
        """Return what nobody knows at the top and in `repositories`, but for empty files, as stamps are."""
        there = (each for path, each in self._directories.items() if path == self.top or f"{path}/.git" in repositories)
        infos = {name: _stat(name) for each in there for name in each.unknown}
        return {name for name, info in infos.items() if info and (info.st_size or not stat.S_ISREG(info.st_mode))}

    def protected(self, found: set[str]) -> list[str]:
        """Return the paths that a command may neither change nor make, when `found` is there. Raise TooLarge."""
        paths = [os.path.join(self.top, name) for name in AT_THE_TOP]
        paths += [path for name in AT_TOP_IF_THERE if os.path.lexists(path := os.path.join(self.top, name))]
        paths += sorted(found)
        if len(self._directories) > _MAX_DIRECTORIES:
            raise TooLarge(f"{self.top} holds more than {_MAX_DIRECTORIES:,} directories")
        if len(paths) > _MAX_PROTECTED:
            raise TooLarge(f"{self.top} holds more than {_MAX_PROTECTED:,} files that act outside of the cage later")
        if self.top in found:
            raise TooLarge(f"{self.top} is itself a repository of git, which cannot be protected")
        return list(dict.fromkeys(paths))

    def named_by_git(self, found: set[str], tops: Collection[str], ask: Ask) -> set[str]:
        """Return the paths below `tops` that act because a repository in `found` names them. They need not exist."""
        named: set[str] = set()
        for path in found:
            if os.path.basename(path) == ".git":
                named.update(named_by(repository_way(path)[-1], os.path.dirname(path), ask, self._settings))
            elif os.path.isdir(path) and not acts_later(os.path.basename(path)):
                named.update(named_by(path, path, ask, self._settings))
        return {path for path in named if is_below(path, tops)}

    def linked(self) -> _Links:
        """Return the names of files with more than one, but for what acts later and what is in it."""
        return {path: file for each in self._directories.values() for path, file in each.linked.items()}

    def forget(self) -> None:
        """Read everything again next time: a link that somebody makes to a file shows in no directory of the file."""
        self._directories.clear()

    def _read(self, path: str, insist: bool) -> None:
        """Read a directory and the unread ones in it. `insist`: also those whose mode forbids it."""
        waiting = [path]
        while waiting:
            directory = waiting.pop()
            self._directories.pop(directory, None)
            state = _state(_stat(directory))
            if state is None or not stat.S_ISDIR(state.mode):
                continue
            settled = max(state.changed, state.modified) < time.time_ns() - _TICK_NS
            state = _entered(directory, state) if insist else state
            names, inner, linked = _listed(directory)
            found = [os.path.join(directory, name) for name in names if acts_later(name)]
            if is_repository(names):
                found, inner, linked = [*found, directory], [], {}
            looked_at = names if directory == self.top or ".git" in names else []
            unknown = [os.path.join(directory, name) for name in looked_at if is_unknown(name)]
            self._directories[directory] = _Directory(state, settled, found, unknown, linked)
            paths = (os.path.join(directory, name) for name in inner)
            waiting += [path for path in paths if path not in self._directories]


def _entered(directory: str, state: _State) -> _State:
    if stat.S_IMODE(state.mode) & _ENTERED != _ENTERED and os.geteuid():
        with contextlib.suppress(OSError):
            let_in(directory, _ENTERED)
            return _state(_stat(directory)) or state
    return state


def _stat(path: str, follow: bool = False) -> os.stat_result | None:
    with contextlib.suppress(OSError, ValueError):
        return os.stat(path, follow_symlinks=follow)
    return None


def _state(info: os.stat_result | None) -> _State | None:
    if info is None:
        return None
    return _State(info.st_dev, info.st_ino, info.st_ctime_ns, info.st_mtime_ns, info.st_mode)


def _listed(directory: str) -> tuple[list[str], list[str], _Links]:
    """Return the names in a directory, those of directories to read, and the paths of files with several names."""
    names: list[str] = []
    inner: list[str] = []
    linked: _Links = {}
    try:
        entries = os.scandir(directory)
    except OSError:
        return names, inner, linked
    with entries:
        for entry in entries:
            names.append(entry.name)
            if entry.is_dir(follow_symlinks=False):
                if not acts_later(entry.name):
                    inner.append(entry.name)
            elif not entry.is_symlink() and not acts_later(entry.name):
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    if info.st_nlink > 1:
                        linked[entry.path] = info.st_dev, info.st_ino, info.st_nlink
    return names, inner, linked


def linked_outside(linked: _Links, protected: Iterable[str]) -> list[str]:
    """Return the files of which a name is missing here, or is protected, or their directories if they are too many."""
    places = dict.fromkeys(protected, True)  # by path: is it protected, or in what is
    seen: dict[tuple[int, int], list[str]] = {}
    for path, (device, number, _) in linked.items():
        seen.setdefault((device, number), []).append(path)
    paths: set[str] = set()
    for same in seen.values():
        here = [path for path in same if not places.get(path) and not _is_in(os.path.dirname(path), places)]
        if len(here) < max(linked[path][2] for path in same):
            paths.update(here)
    while len(paths) > _MAX_LINKED:
        deepest = max(path.count("/") for path in paths)
        paths = {os.path.dirname(path) if path.count("/") == deepest else path for path in paths}
    return sorted(paths)


def _is_in(directory: str, places: dict[str, bool]) -> bool:
    if directory not in places:
        above = os.path.dirname(directory)
        places[directory] = above != directory and _is_in(above, places)
    return places[directory]


def steps(paths: Iterable[str], tops: Collection[str]) -> set[str]:
    """Return the links below `tops` to these paths or, not deep, in them, and what stands at their ends there."""
    found: list[str] = []
    for path in paths:
        ends = repository_way(path) if os.path.basename(path) == ".git" else way(path)
        found += ends
        if os.path.basename(path) != ".git" and is_below(ends[-1], tops):
            found += (step for link in _links_in(ends[-1], _DEPTH, _MAX_ENTRIES) for step in way(link)[1:])
    return {path for path in found if is_below(path, tops) and os.path.lexists(path)}


def _links_in(directory: str, depth: int, most: int | None = None) -> Iterator[str]:
    with contextlib.suppress(OSError, ValueError), os.scandir(directory) as entries:
        for entry in islice(entries, most):
            if entry.is_symlink():
                yield entry.path
            elif depth > 1 and entry.is_dir(follow_symlinks=False):
                yield from _links_in(entry.path, depth - 1, most)


def is_below(path: str, tops: Collection[str]) -> bool:
    return any(path.startswith(top + "/") for top in tops)


# Returns what the script prints in a directory, b"" where there is no git. Its name is the path of git.
Ask = Callable[[str], bytes]
LIST_SETTINGS = """
unset GIT_DIR GIT_WORK_TREE
"$0" config --list -z --show-origin --includes 2>/dev/null && printf '\\0.'
"""
_MAX_BYTES = 1 << 20
_MAX_PARTS = 1000  # of one path, with those of its links
_NAMES_A_PATH = ("hookspath", "path", "attributesfile", "excludesfile")
_NAMES_NO_FILE = ("name", "email", "merge", "remote", "url", "fetch", "push", "worktree")
_OWN_CONFIGURATION = ("/etc/gitconfig", "~/.gitconfig", "~/.config/git/config", "$XDG_CONFIG_HOME/git/config")
_WORD = re.compile(r"[^\s\"';&|()<>=!]+")


def way(path: str) -> list[str]:
    """Return the links over which the kernel gets to a path, and the file itself, which need not exist."""
    links: list[str] = []
    reached = ""
    parts = path.split("/")[::-1]
    for _ in range(_MAX_PARTS):
        part = parts.pop() if parts else None
        if part is None:
            break
        if part in ("", ".", ".."):
            reached = os.path.dirname(reached).rstrip("/") if part == ".." else reached
            continue
        reached += f"/{part}"
        with contextlib.suppress(OSError, ValueError):  # it is no link, is not there, or cannot be
            target = os.readlink(reached)
            links.append(reached)
            reached = "" if target.startswith("/") else os.path.dirname(reached).rstrip("/")
            parts += target.split("/")[::-1]
    return [*links, path if parts else reached or "/"]


def repository_way(path: str) -> list[str]:
    """Return the links over which a `.git` leads to a directory of git, the file that it may be, and that directory."""
    steps, text = way(path), b""
    with contextlib.suppress(OSError, ValueError):
        text = read_regular(steps[-1], _MAX_BYTES)
    named = os.fsdecode(text).partition("gitdir:")[2].strip()
    return [*steps, *way(os.path.join(os.path.dirname(steps[-1]), named))] if named else steps


_Settings = tuple[dict[str, Optional[_State]], dict[str, bool]]
"""The files that git has read, with their states, and what it has said: is this a path for sure, or only if there?"""


def named_by(repository: str, worktree: str, ask: Ask, kept: dict[str, _Settings]) -> list[str]:
    """Return the paths that act through this repository, by its configuration, the person's and hooks. Git is asked
    again when a file has changed that it has read for what is `kept` of each work tree."""
    if not os.path.lexists(f"{repository}/HEAD"):
        return []  # git takes it for no repository
    states, named = kept.get(worktree, ({}, {}))
    if not states or states != _states(states):
        states, named = kept[worktree] = _asked(repository, worktree, ask)
    found = [path for path, is_path in named.items() if is_path or os.path.isfile(path)]
    # the links that hooks are or lead over, and what stands at their ends
    found += (step for link in _links_in(f"{repository}/hooks", 1) for step in way(link))
    return [path for path in dict.fromkeys(found) if not path.startswith(f"{repository}/")]  # that is protected


def _asked(repository: str, worktree: str, ask: Ask) -> _Settings:
    own = [os.path.expandvars(os.path.expanduser(path)) for path in _OWN_CONFIGURATION]
    own += [f"{repository}/{name}" for name in ("HEAD", "commondir", "config", "config.worktree")]
    states = _states(own)
    named: dict[str, bool] = {}
    words = os.fsdecode(ask(worktree)).split("\0")
    for origin, setting in zip(words[::2], words[1::2]):
        source = os.path.join(worktree, origin.partition(":")[2])
        bases = (worktree, repository, os.path.dirname(source))
        key, _, value = setting.partition("\n")
        section, _, name = key.rpartition(".")
        if name in _NAMES_NO_FILE and section != "alias":
            continue
        is_path = name in _NAMES_A_PATH
        for word in filter(None, [value] if is_path else _WORD.findall(value)):
            paths = {os.path.normpath(os.path.join(base, os.path.expanduser(word))) for base in bases} - set(bases)
            named.update({path: is_path or named.get(path, False) for path in paths})
            states.update(_states(paths if section.startswith("include") else ()))
        states.update(_states((source,)))
    return states, named


def _states(paths: Iterable[str]) -> dict[str, _State | None]:
    return {path: _state(_stat(path, follow=True)) for path in paths}


def read_regular(path: str, most: int) -> bytes:
    """Return the start of a regular file. Raise OSError, at once also for a pipe, which may never open."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return file.read(most)


_log = logging.getLogger(__name__)

_MAX_ROUNDS = 20


class DirectoryGuard:
    """Watches the session's directories from the first command on. It belongs to one thread at a time."""

    def __init__(self) -> None:
        self._watched: dict[str, LaterActors] = {}
        self._links_changed = False
        self._linked: set[str] = set()  # also elsewhere, when a command started

    @property
    def watches(self) -> bool:
        return bool(self._watched)

    def begin(
        self, tops: Sequence[str], alone: bool, ask: Ask, protected: Sequence[str] = ()
    ) -> tuple[list[str], list[str]]:
        """Return what the next command may neither change nor make, and the files that have another name elsewhere.
        `alone`: what is there is accepted. `ask` tells the settings of git. Raise OSError, as TooLarge."""
        paths: list[str] = []
        for top in filter(os.path.isdir, tops):
            watched = self._watched.get(top) or LaterActors(top)
            accepts = alone or top not in self._watched
            if alone and self._links_changed:
                watched.forget()
            found = watched.take()
            named = watched.named_by_git(found, tops, ask)
            if accepts:
                watched.tops, watched.named = tops, named
                watched.accept(found)
            self._watched[top] = watched
            inside = [*watched.protected(found), *sorted(steps(found | named, tops))]
            watched.hold(inside)
            paths += inside
        self._links_changed = self._links_changed and not alone
        linked = self._linked_outside(tops, (*paths, *protected))
        if any(each in linked for each in tops):
            raise TooLarge("too many files there have another name (a hard link) outside of the session's directories")
        self._linked.update(linked)
        return list(dict.fromkeys(paths)), linked

    def check(self, ours: Set[str]) -> list[str]:
        """Set aside what is new, but for the paths that ccb itself has made. Return a line about each."""
        lines: list[str] = []
        for watched in self._watched.values():
            lines += _set_new_aside(watched, ours)
        return lines

    def newly_linked(self) -> list[str]:
        """Return a line about files that have another name elsewhere since the last command started."""
        new = [path for path in self._linked_outside(self._watched, ()) if path not in self._linked]
        self._linked.update(new)
        more = f" and {len(new) - 1:,} more" if new[1:] else ""
        return [f"{new[0]}{more}: hard links to files elsewhere, which that command could write"] if new else []

    def accept(self) -> None:
        """Take what is there now for known, as a person has allowed what made it, and links it may have made."""
        for watched in self._watched.values():
            watched.accept(watched.take())
        self._links_changed = True

    def acts_later(self, path: str) -> bool:
        """Return whether a file acts later, by its name or place, or because something leads to it."""
        return any(_acts_in(watched, path) for watched in self._watched.values())

    def _linked_outside(self, tops: Iterable[str], protected: Iterable[str]) -> list[str]:
        linked: _Links = {}
        for top in tops:
            linked.update(self._watched[top].linked() if top in self._watched else {})
        return linked_outside(linked, protected)

    def release(self) -> None:
        for watched in self._watched.values():
            watched.release()


def _acts_in(watched: LaterActors, path: str) -> bool:
    top = watched.top
    while path.startswith(top + "/"):
        above, name = os.path.split(path)
        if acts_later(name) or path in watched.held or path in watched.named:
            return True
        looked_at = above == top or f"{above}/.git" in watched.known
        if looked_at and is_unknown(name) and path not in watched.known:
            return True
        path = above
    return False


def _set_new_aside(watched: LaterActors, ours: Set[str]) -> list[str]:
    lines: list[str] = []
    left = set(ours)
    for _ in range(_MAX_ROUNDS):  # what is set aside may hold more
        found = watched.take()
        found |= steps(found | watched.named, watched.tops) | watched.unknown(watched.known)
        watched.known &= found
        replaced = {path for path, held in watched.held.items() if held.is_replaced(path)}
        new = (found - watched.known | replaced) - left
        if not new:
            break
        for path in sorted(new):
            top = max((each for each in watched.tops if f"{path}/".startswith(f"{each}/")), key=len)
            try:
                renamed, new_name = set_aside(top, path)
                why = " (it was replaced while a command in the sandbox ran)" if path in replaced else ""
                lines.append(f"{os.path.relpath(renamed, top)} is now {new_name}{why}")
            except FileNotFoundError:
                continue  # it was in what was set aside before it
            except OSError as error:
                left.add(path)
                lines.append(f"{os.path.relpath(path, top)} could not be set aside: {error.strerror}")
    if lines:
        _log.warning("set aside in %s: %s", watched.top, "; ".join(lines[:20]))
    return lines
