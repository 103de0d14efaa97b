"""Files of a project that act outside of a cage later: what git, agents, editors and shells take from it by
themselves."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence

_ALWAYS = (
    *(".git", ".claude", "CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", ".mcp.json", ".codex", ".gemini", "GEMINI.md"),
    *(".cursor", ".vscode", ".idea", ".envrc"),
)
_IF_THERE = (
    *(".cursorrules", ".aider.conf.yml", ".gitmodules", ".gitconfig", ".husky", ".githooks", "lefthook.yml"),
    *(".pre-commit-config.yaml", ".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zprofile"),
    *(".zshenv", ".ripgreprc", ".tool-versions", ".mise.toml", "mise.toml", ".devcontainer", ".ssh", ".config"),
)
_MOST_DIRECTORIES = 2000
_DEPTH = 3
_MOST_CONFIGURATION = 1 << 20
_NAMES_A_PATH = re.compile(r"^\s*(?:hookspath|path|attributesfile|excludesfile)\s*=\s*\"?([^\"\n]+)", re.I | re.M)


def protected_paths(directories: Sequence[str]) -> tuple[str, ...]:
    """Return the paths in these directories that a command in the cage for the workspace may neither change nor create.
    All of `.git` is among them: a new file in it, as `commondir`, can make git run what the command has written. Of
    repositories further down, those that exist are found, if they are not too deep or too many."""
    found: list[str] = []
    for directory in directories:
        found += [os.path.join(directory, name) for name in _ALWAYS]
        found += [path for name in _IF_THERE if os.path.lexists(path := os.path.join(directory, name))]
        found += _inner(directory)
        found += _named_by_git(directory)
        for path in [each for each in found if os.path.basename(each) == ".git"]:
            found += _git_elsewhere(path, directory)
    return tuple(dict.fromkeys(found))


def _inner(top: str) -> list[str]:
    """Return what is protected in directories below `top`, where it exists."""
    found = []
    waiting = [(top, 0)]
    seen = 0
    while waiting and seen < _MOST_DIRECTORIES:
        directory, depth = waiting.pop(0)
        seen += 1
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if directory != top and entry.name in _ALWAYS:
                        found.append(entry.path)
                    elif depth < _DEPTH and entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
        except OSError:
            continue
    return found


def _git_elsewhere(path: str, directory: str) -> list[str]:
    """Return the directory of the project that a `.git` stands for, if it is a link or a file with a path."""
    target = os.path.realpath(path)
    try:
        with open(path, encoding="utf-8", errors="replace", opener=_without_waiting) as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                named = file.read(4096).partition("gitdir:")[2].strip()
                target = os.path.realpath(os.path.join(os.path.dirname(path), named))
    except OSError:
        pass  # a directory, or nothing that git could read
    ours = target != path and target.startswith(directory + "/") and os.path.isdir(target)
    return [target] if ours else []


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)  # a pipe of this name would never open


def _named_by_git(directory: str) -> list[str]:
    """Return files and directories of the project that git's configuration in it names, as `core.hooksPath`."""
    try:
        path = os.path.join(directory, ".git", "config")
        with open(path, encoding="utf-8", errors="replace", opener=_without_waiting) as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            text = file.read(_MOST_CONFIGURATION) if is_file else ""
    except OSError:
        return []
    found = []
    for match in _NAMES_A_PATH.finditer(text):
        for base in (directory, os.path.join(directory, ".git")):
            path = os.path.normpath(os.path.join(base, match[1].strip()))
            if path.startswith(directory + "/") and os.path.lexists(path):
                found.append(path)
    return found
