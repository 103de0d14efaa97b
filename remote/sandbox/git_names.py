"""The files of a project that git uses because a repository says so, beside those in the repository itself."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from typing import Callable, NamedTuple, Optional

Ask = Callable[[str], bytes]
"""Returns what `git config --list -z --show-origin --includes` prints in a directory, b"" where there is no git."""

LIST_SETTINGS = """
unset GIT_DIR GIT_WORK_TREE
"$0" config --list -z --show-origin --includes 2>/dev/null && printf '\\0.'
"""
"""The script that prints this, and a mark at its end, with the path of git as its name."""

_State = Optional[tuple[int, int, int]]
_MAX_BYTES = 1 << 20
_MAX_PARTS = 1000  # of one path, with those of its links
_NAMES_A_PATH = ("hookspath", "path", "attributesfile", "excludesfile")
_NAMES_NO_FILE = ("name", "email", "merge", "remote", "url", "fetch", "push", "worktree")
_OWN_CONFIGURATION = ("/etc/gitconfig", "~/.gitconfig", "~/.config/git/config", "$XDG_CONFIG_HOME/git/config")
_WORD = re.compile(r"[^\s\"';&|()<>=!]+")


def way(path: str) -> list[str]:
    """Return the links over which the kernel gets from an absolute path to a file, and the file itself. It need not
    exist. At the end of a loop, or of a way that the kernel would not go either, is the path itself."""
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
    """Return the links over which a `.git` leads to a directory of git, itself or the file that it is, and that
    directory."""
    steps = way(path)
    named = _text(steps[-1]).partition("gitdir:")[2].strip()
    return [*steps, *way(os.path.join(os.path.dirname(steps[-1]), named))] if named else steps


class _Settings(NamedTuple):
    """What git has said about a repository, and the state of the files that it is from. Of what is `named`, some is
    a path for sure, and some a word that is one if there is such a file."""

    states: dict[str, _State]
    named: dict[str, bool]


class GitSettings:
    """Asks git for the settings of repositories, again when a file of theirs has changed."""

    def __init__(self) -> None:
        self._kept: dict[str, _Settings] = {}

    def named_by(self, repository: str, worktree: str, ask: Ask) -> list[str]:
        """Return the paths that act through this repository: what its configuration and the person's own name, as
        `core.hooksPath` and programs, and what its hooks lead to. A path that is only named need not exist."""
        if not os.path.lexists(f"{repository}/HEAD"):
            return []  # git takes it for no repository
        kept = self._kept.get(worktree)
        if kept is None or kept.states != {path: _state(path) for path in kept.states}:
            kept = self._kept[worktree] = _asked(repository, worktree, ask)
        found = [path for path, is_path in kept.named.items() if is_path or os.path.isfile(path)]
        found += _hooks(f"{repository}/hooks")
        return [path for path in dict.fromkeys(found) if not path.startswith(f"{repository}/")]  # that is protected


def _asked(repository: str, worktree: str, ask: Ask) -> _Settings:
    own = [os.path.expandvars(os.path.expanduser(path)) for path in _OWN_CONFIGURATION]
    own += [f"{repository}/{name}" for name in ("HEAD", "commondir", "config", "config.worktree")]
    states = {path: _state(path) for path in own}
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
            states.update({path: _state(path) for path in paths if section.startswith("include")})
        states[source] = _state(source)
    return _Settings(states, named)


def _state(path: str) -> _State:
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return info.st_dev, info.st_ino, info.st_ctime_ns


def _hooks(directory: str) -> Iterator[str]:
    """Yield the links that hooks are or lead over, and what stands at their ends."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield from way(entry.path)
    except OSError:
        return


def _text(path: str) -> str:
    """Return the beginning of a regular file, "" for anything else."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", opener=_without_waiting) as file:
            return file.read(_MAX_BYTES) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else ""
    except (OSError, ValueError):
        return ""


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)  # a pipe of this name would never open
