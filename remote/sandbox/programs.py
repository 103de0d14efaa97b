"""The directories whose programs a caged command may run: those of the system, and the tool chains on PATH."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store"),
    *("/run/current-system", "/snap", "/etc/alternatives", "/etc/profiles"),
)
_BESIDE = {
    "/.cargo": ("../.rustup", "config.toml", "env"),
    "/.local": ("lib", "share/uv", "share/pipx", "pipx", "share/mise/installs", "share/pnpm"),
    "/go": ("pkg/mod",),
    **dict.fromkeys(("/.docker", "/.fly", "/.azure", "/.aws", "/.kube", "/.gem", "/.npm", "/.config", "/.rd"), ()),
    "/.krew": ("store",),
    "/.composer": ("vendor",),
}
"""Directories whose `bin` is on PATH, but which also hold what no program needs, as passwords: beside `bin`, only these
may be read."""

_MAX_SIBLINGS = 4000


def program_directories(excluded: Sequence[str], environ: Mapping[str, str], home: str) -> tuple[str, ...]:
    """Return the directories of programs. Nothing in the directories `excluded` is below one of them, unless such a
    directory holds a whole directory of the system."""
    home = os.path.realpath(home) if os.path.isabs(home) else ""
    found = [*map(os.path.realpath, _SYSTEM), *_of_login(excluded, environ, home)]
    existing = [each for each in dict.fromkeys(found) if os.path.exists(each)]
    outer = [each for each in existing if not any(_is_in(each, other) for other in existing if other != each)]
    return tuple(dict.fromkeys(part for each in outer for part in _without(each, excluded)))


def _of_login(excluded: Sequence[str], environ: Mapping[str, str], home: str) -> list[str]:
    """Return the tool chains on PATH, and the worker's own Python, unless they are in an excluded directory."""
    found = []
    for each in environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(each) and not any(_is_in(os.path.realpath(each), root) for root in excluded):
            found += _tool_chain(os.path.realpath(each), home)
    for prefix in map(os.path.realpath, (sys.base_prefix, sys.prefix)):
        if not _is_in(home, prefix) and not any(_is_in(prefix, root) for root in excluded):
            found.append(prefix)
    return found


def _tool_chain(directory: str, home: str) -> list[str]:
    """Return what the programs in a directory of PATH need: the directory above `bin`, in which their libraries are,
    unless it also holds something else."""
    above = os.path.dirname(directory)
    for ending, names in _BESIDE.items():
        if above == home + ending:
            return [directory, *(os.path.normpath(os.path.join(above, name)) for name in names)]
    if above == "/" or _is_in(home, above) or os.path.basename(directory) not in ("bin", "sbin", "shims"):
        return [directory]
    return [above]


def _without(directory: str, excluded: Sequence[str]) -> list[str]:
    """Return paths that cover a directory without the excluded directories in it: rules of the kernel only allow."""
    inner = [each for each in excluded if _is_in(each, directory) and each != directory]
    if not inner:
        return [directory]
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    paths = [os.path.join(directory, name) for name in names[:_MAX_SIBLINGS]]
    return [part for path in paths if path not in inner for part in _without(path, inner)]


def _is_in(path: str, directory: str) -> bool:
    return bool(path) and (path == directory or path.startswith(directory.rstrip("/") + "/"))


def found_outside(name: str, env: Mapping[str, str], tops: Sequence[str]) -> str | None:
    """Return the path of a program outside of the directories `tops`, or None."""
    import shutil

    places = [place for place in env.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(place)]
    outside = [each for each in places if not f"{os.path.realpath(each)}/".startswith(tuple(f"{top}/" for top in tops))]
    return shutil.which(name, path=os.pathsep.join(outside))
