"""The git repository that a session's directory belongs to, where it lies outside of that directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from ..system.host import is_under
from ..system.owners import is_ours, repository_top
from ..system.regular_files import NotAFile, open_regular

_MAX_BYTES = 4096
_MAX_CONFIGURATION = 256 << 10
_NAMES_A_FILE = re.compile(r'^[ \t]*(?:path|excludesfile|attributesfile)[ \t]*=[ \t]*"?([^"#;\n]+)', re.I | re.M)


def repository_around(directory: str, home: str) -> list[str]:
    """Return the paths outside of a session's directory that git reads when it runs there: the repository that the
    directory is a part of, or of which it is a linked worktree or a submodule. What files in the directory claim does
    not count, because anybody may have written them: the repository itself must confirm it."""
    real = os.path.realpath(directory)
    top = repository_top(real)
    if not top:
        return []
    marker = os.path.join(top, ".git")
    found = [] if top == real else [marker if is_under(os.path.realpath(home), top) else top]
    if os.path.isfile(marker):
        found += _linked(marker, real)
    return found


def files_of_own_configuration(home: str) -> list[str]:
    """Return the files that the person's own configuration of git names: git ends with an error if it cannot read an
    included one."""
    own = [os.path.join(home, ".gitconfig"), os.path.join(home, ".config", "git", "config")]
    included = _named_in(own, home)
    return [*included, *_named_in(included, home)]


def _named_in(paths: Iterable[str], home: str) -> list[str]:
    """Return the regular files that configuration files name."""
    found = []
    for path in paths:
        try:
            with open(path, "rb") as file:
                text = os.fsdecode(file.read(_MAX_CONFIGURATION))
        except OSError:
            continue
        for name in _NAMES_A_FILE.findall(text):
            name = name.strip()
            named = home + name[1:] if name.startswith("~/") else os.path.join(os.path.dirname(path), name)
            if "\0" not in named and os.path.isfile(named):
                found.append(os.path.realpath(named))
    return found


def _linked(marker: str, session: str) -> list[str]:
    """Return the directory of the repository that a `.git` file names, if it is outside of the session's directory and
    was made for this file by git: nobody who can only write in the session's directory can fake that. It must be this
    user's own."""
    named = _line(marker)
    if not named.startswith("gitdir: ") or "\0" in named:
        return []
    inner = os.path.realpath(os.path.join(os.path.dirname(marker), named[len("gitdir: ") :]))
    if is_under(inner, session):
        return []
    common = os.path.dirname(os.path.dirname(inner))
    if os.path.basename(os.path.dirname(inner)) == "worktrees" and os.path.basename(common) == ".git":
        confirmed = os.path.realpath(_line(os.path.join(inner, "gitdir"))) == os.path.realpath(marker)
        return [common] if confirmed and is_ours(common) and is_ours(inner) else []
    outer = repository_top(os.path.dirname(os.path.dirname(marker)))
    modules = os.path.realpath(os.path.join(outer, ".git", "modules")) if outer else ""
    return [inner] if modules and is_under(inner, modules) and is_ours(inner) and not is_under(outer, session) else []


def _line(path: str) -> str:
    """Return the first line of a small file, or ""."""
    try:
        with open_regular(path) as file:
            return os.fsdecode(os.read(file, _MAX_BYTES)).partition("\n")[0]
    except (OSError, NotAFile):
        return ""
