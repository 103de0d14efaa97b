"""Resolve the directory that a session works in from the text the person wrote.

This module is imported before hello, so it imports next to nothing.
"""

from __future__ import annotations

import os

from . import paths
from .refusal import HostRefusal

_MAX_NAMES = 5000  # entries of a directory to search for a name like the missing one
_MAX_NEAR = 5


def resolve_directory(path: str) -> str:
    """Return the absolute directory for `path`: absolute, `~…`, or relative to the home directory.

    Raise HostRefusal when it does not exist (the refusal lists similar names), is not a directory, or cannot be
    entered.
    """
    home = paths.home_directory()
    if path == "~" or path.startswith("~/"):
        full = home + path[1:]
    elif path.startswith("~"):
        full = os.path.expanduser(path)
    else:
        full = os.path.join(home or "/", path)
    full = os.path.normpath(full or "/")
    try:
        with os.scandir(full):
            os.stat(os.path.join(full, "."))  # fails where this user may not enter
    except NotADirectoryError:
        if os.path.exists(full):
            raise HostRefusal("not_a_directory", "%s is not a directory" % full, {"path": full}) from None
        raise _missing(full) from None
    except FileNotFoundError:
        raise _missing(full) from None
    except OSError as error:
        data: dict[str, object] = {"path": full, "reason": error.strerror or str(error)}
        raise HostRefusal("no_such_path", "%s cannot be used: %s" % (full, error.strerror), data) from None
    return full


def _missing(full: str) -> HostRefusal:
    """Return the refusal for a directory that does not exist. It holds the nearest parent that exists, and names
    similar to the missing one."""
    import difflib

    parent, wanted = os.path.split(full)
    while parent != "/" and not os.path.isdir(parent):
        parent, wanted = os.path.split(parent)
    try:
        names = sorted(name for name in os.listdir(parent) if os.path.isdir(os.path.join(parent, name)))[:_MAX_NAMES]
    except OSError:
        names = []
    by_case = {name.lower(): name for name in names}
    close = difflib.get_close_matches(wanted.lower(), list(by_case), n=_MAX_NEAR, cutoff=0.5)
    near = [os.path.join(parent, by_case[name]) for name in close]
    return HostRefusal("no_such_path", "%s does not exist" % full, {"path": full, "parent": parent, "near": near})
