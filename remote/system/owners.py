"""Whose a file is: what stands above a project acts on it, and in a place like /tmp anybody may have put it there."""

from __future__ import annotations

import os
import stat


def is_ours(path: str) -> bool:
    """Return whether only this user and root can have put a path there or change it, with what it leads to."""
    try:
        real = os.path.realpath(path)
        places = dict.fromkeys((path, os.path.dirname(path), real, os.path.dirname(real)))
        return all(only_we_write(place) for place in places)
    except ValueError:
        return False


def owner_of(path: str) -> str:
    """Return the name of the user whose a file is, or the number; "" if it is not there."""
    import pwd

    try:
        user = os.stat(path).st_uid
    except (OSError, ValueError):
        return ""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def repository_top(directory: str) -> str:
    """Return the nearest directory up that has a `.git`; "" for none, or for one above that others may have put."""
    first = here = os.path.realpath(directory)
    while not os.path.lexists(os.path.join(here, ".git")):
        if here == os.path.dirname(here):
            return ""
        here = os.path.dirname(here)
    return here if here == first or is_ours(os.path.join(here, ".git")) else ""


def only_we_write(path: str) -> bool:
    """Return whether a path exists, and this user or root owns it, and nobody else may write to it."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    if info.st_uid not in (0, os.geteuid()):
        return False
    if stat.S_ISLNK(info.st_mode):  # its mode says nothing
        return True
    if info.st_mode & stat.S_IWOTH:
        return False
    # many systems give each user a group of their own, with the same number, which may write to what they make
    return not info.st_mode & stat.S_IWGRP or (info.st_gid in (0, os.geteuid()) and not _names_others(path))


def _names_others(path: str) -> bool:
    """Return whether a file has a list of further users and groups: the bits of the group speak for them, too."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except (OSError, AttributeError):  # the file system or the system has none
        return False
