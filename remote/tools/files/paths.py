"""Paths as the model writes them, and messages about them."""

from __future__ import annotations

import os

from ccb.tunnel.wire.spelling import spelled, unspelled

from ...system.host import Host
from ...system.pinned import PinnedHost
from ...system.regular_files import FileKind
from ..contract import ToolContext


def absolute(path: str, cwd: str) -> str:
    """Return the path that a model spells, from the session's directory, with `~` expanded. `.` and `..` stay, for the
    system to resolve."""
    path = unspelled(path)
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser("~") + path[1:]
    return os.path.join(cwd, path)


def tree_path(host: Host, path: str) -> str:
    """Return an absolute path without `.` and `..` for the same place. As in permission checks, `link/..` is the parent
    of the directory that the link leads to."""
    return host.real_path(path) if ".." in path.split("/") else os.path.normpath(path)


def path_error(path: str) -> str | None:
    """Return why a string cannot be a path, or None."""
    if not path.strip():
        return "The path is empty."
    if "\0" in path:
        return "The path contains a NUL character."
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return "The path contains characters that no file name can have."
    return None


def host_of(context: ToolContext) -> Host:
    """Return the host for the file operations of a call: it reaches the path that was decided on, and no other."""
    return PinnedHost(context.host, context.call.pinned) if context.call.pinned else context.host


async def missing(host: Host, path: str, cwd: str) -> str:
    """Return the sentence for a path that does not exist, with similar names."""
    parent, name = os.path.split(path.rstrip("/"))
    try:
        entries = await host.list(parent)
    except OSError:
        entries = []
    link = next((entry for entry in entries if entry.name == name and entry.kind is FileKind.LINK), None)
    if link is not None:
        return f"{spelled(path)} is a link to {spelled(link.target)}, which does not exist."
    text = f"File does not exist: {spelled(path)}"
    near = _near_names(
        parent, name, [each.name for each in entries if each.kind is not FileKind.OTHER and each.name != name]
    )
    if near:
        return f"{text}. Did you mean {' or '.join(map(spelled, near))}?"
    return f"{text}. The session's directory is {spelled(cwd)}."


def _near_names(parent: str, name: str, names: list[str]) -> list[str]:
    stem = os.path.splitext(name)[0]
    same = [each for each in names if each.lower() == name.lower() or (stem and os.path.splitext(each)[0] == stem)]
    import difflib

    close = difflib.get_close_matches(name, names[:5000], n=3, cutoff=0.6)
    return [os.path.join(parent, each) for each in dict.fromkeys(same + close)][:3]


def os_error(error: OSError, name: str) -> str:
    """Return one sentence about a failed system call on a path, as it is spelled."""
    return f"{name}: {error.strerror or error}"
