"""Sets aside what acts outside of a cage later: under a name that means nothing to anybody, in the same directory."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator

from .protected import REPOSITORY_HEAD, SET_ASIDE, acts_later, is_repository

_LONGEST_NAME = 255


def set_aside(top: str, path: str) -> tuple[str, str]:
    """Rename a path below the directory `top`; of a repository without a `.git`, rename the file that makes it one.
    Return what was renamed, and its new name. No link on the way is followed: what is outside of `top` stays as it is.
    Raise OSError."""
    if not acts_later(os.path.basename(path)) and _is_repository(path):
        path = os.path.join(path, REPOSITORY_HEAD)
    directory, name = os.path.split(path)
    kept = os.fsencode(name)[: _LONGEST_NAME - len(SET_ASIDE) - 9].decode("utf-8", "ignore") or "kept"
    with _opened(top, os.path.relpath(directory, top)) as held:
        new = f"{kept}{SET_ASIDE}"
        while _exists(new, held):  # no command knows which name comes next
            new = f"{kept}{SET_ASIDE}-{secrets.token_hex(4)}"
        try:
            os.rename(name, new, src_dir_fd=held, dst_dir_fd=held)
        except PermissionError:
            with writable(held):
                os.rename(name, new, src_dir_fd=held, dst_dir_fd=held)
        return path, new


@contextlib.contextmanager
def writable(directory: int) -> Iterator[None]:
    """Let this user change an open directory of its own, whatever its mode was."""
    path, mode = f"/proc/self/fd/{directory}", stat.S_IMODE(os.fstat(directory).st_mode)
    os.chmod(path, mode | stat.S_IRWXU)
    try:
        yield
    finally:
        os.chmod(path, mode)


def _is_repository(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path) and is_repository(os.listdir(path))


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def _opened(top: str, inner: str) -> Iterator[int]:
    """Open a directory below `top`."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(top, flags)
    try:
        for part in inner.split("/") if inner != "." else ():
            entered = os.open(part, flags, dir_fd=file)
            os.close(file)
            file = entered
        yield file
    finally:
        os.close(file)
