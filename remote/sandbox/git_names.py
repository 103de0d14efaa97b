"""The files of a project that git uses because a repository says so, beside those in the repository itself."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence

_MAX_BYTES = 1 << 20
_SETTING = re.compile(r"^\s*([a-z][a-z0-9-]*)\s*=\s*(.*)$", re.I)
_NAMES_A_PATH = ("hookspath", "path", "attributesfile", "excludesfile")
_NAMES_NO_FILE = ("name", "email", "merge", "remote", "url", "fetch", "push", "worktree")
_OWN_CONFIGURATION = ("~/.gitconfig", "~/.config/git/config")
_WORD = re.compile(r"[^\s\"';&|()<>=!]+")


def repository_of(path: str) -> str:
    """Return the directory of git that a `.git` stands for: itself, or what a link or a file with a path leads to."""
    target = os.path.realpath(path)
    if os.path.isfile(target):
        named = _text(target).partition("gitdir:")[2].strip()
        target = os.path.realpath(os.path.join(os.path.dirname(path), named)) if named else target
    return target


def named_by(repository: str, worktree: str, top: str) -> list[str]:
    """Return the paths in the directory `top` that act through this repository: what its configuration and the person's
    own name, as `core.hooksPath` and programs, and what its hooks lead to. A path that is only named need not exist."""
    bases = (worktree, repository)
    found = [path for name in ("config", "config.worktree") for path in _configured(f"{repository}/{name}", bases)]
    found += [path for own in _OWN_CONFIGURATION for path in _configured(os.path.expanduser(own), bases)]
    included = [path for path in found if os.path.isfile(path)]
    found += [named for path in included for named in _configured(path, (*bases, os.path.dirname(path)))]
    found += _hooks(f"{repository}/hooks")
    inside, outside = f"{top}/", f"{repository}/"  # all of the repository is protected anyway
    return [path for path in dict.fromkeys(found) if path.startswith(inside) and not path.startswith(outside)]


def _configured(path: str, bases: Sequence[str]) -> Iterator[str]:
    """Yield what a configuration may name, below each of the directories from which git may see it."""
    for line in _text(path).splitlines():
        setting = _SETTING.match(line)
        name = setting[1].lower() if setting is not None else ""
        if setting is None or "\0" in line or name in _NAMES_NO_FILE:
            continue
        is_path = name in _NAMES_A_PATH
        words = [setting[2].strip().strip('"')] if is_path else _WORD.findall(setting[2])
        for word in filter(None, words):
            for base in bases:
                named = os.path.normpath(os.path.join(base, os.path.expanduser(word)))
                if named != base and (is_path or os.path.isfile(named)):
                    yield named


def _hooks(directory: str) -> Iterator[str]:
    """Yield the files outside of a repository that its hooks are links to."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield os.path.realpath(entry.path)
    except OSError:
        return


def _text(path: str) -> str:
    """Return the beginning of a regular file, "" for anything else."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=_without_waiting) as file:
            return file.read(_MAX_BYTES) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else ""
    except (OSError, ValueError):
        return ""


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)  # a pipe of this name would never open
