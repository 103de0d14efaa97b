"""Paths of the editor and paths of the host: the working directory, and what `--map` says is the same on both."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ccb.tunnel.wire.json_rpc import INVALID_PARAMS, RpcError

_NOT_FOLLOWED = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotRead(Exception):
    """A file of the laptop does not go along with a prompt; the text says why."""


class PathMap:
    """`place` is the directory of the host as the person named it (absolute, or with `~`), `maps` are `REMOTE=LOCAL`:
    a path of the host, and the same one here. The first working directory of the editor, or that of this process,
    stands for `place`. With `same`, both ends are this machine, and every path is itself."""

    def __init__(self, host: str, place: str, maps: Sequence[str] = (), *, same: bool = False) -> None:
        self.host = host
        self._same = same
        self._place = place.rstrip("/") or "/"
        self._found = [self._place] if place.startswith("/") else []  # as absolute paths
        pairs = (each.partition("=") for each in maps)
        self._to_editor = [(_clean(there), _clean(here)) for there, _, here in pairs]
        self._to_host = [(here, there) for there, here in self._to_editor]
        self._root = ""

    @staticmethod
    def folder(cwd: object) -> str:
        """Return a working directory of the editor without `.` and `..`. Raise RpcError."""
        if not isinstance(cwd, str) or not cwd.startswith("/") or "\0" in cwd:
            raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, not {str(cwd)[:200]!r}")
        return _clean(cwd)

    def directory(self, cwd: object) -> str:
        """Return the directory of the host for a working directory of the editor. Raise RpcError."""
        here = self.folder(cwd)
        if self._same:
            return here
        if (there := _mapped(self._to_host, here)) is not None:
            return there
        self._root = self._root or here
        below = _below(self._root, here)
        if below is None:
            raise RpcError(
                INVALID_PARAMS,
                f"{here} is outside of {self._root}, which stands for {self.host}:{self._place}. "
                f"`--map /PATH/ON/HOST={here}` says which directory of the host it is.",
            )
        return _joined(self._place, below)

    @property
    def needs_home(self) -> bool:
        """Whether only the home directory on the host says where the place is."""
        return not (self._found or self._same)

    def home_is(self, path: str) -> None:
        below = self._place.removeprefix("~").strip("/")
        self._found.append(_joined(path, below))

    def working_in(self, cwd: str, directory: str) -> None:
        """Note that a session that was opened in `directory`, as this map named it, works in `cwd` of the host. A link
        may have led there."""
        if directory == self._place and cwd not in self._found:
            self._found.append(cwd)

    def cwd(self, path: str) -> str | None:
        """Return the working directory of the editor for one of the host, None for one that the editor has not."""
        if self._same:
            return path
        root = self._root or str(Path.cwd())
        return _mapped([*self._to_editor, *((found, root) for found in self._found)], path)

    def shown(self, path: str) -> str:
        """Return what the editor opens for a file of the host: the path itself unless `--map` names another one."""
        return _mapped(self._to_editor, path) or path

    def is_here(self, path: str) -> bool:
        """Return whether the editor opens this very file of the host."""
        return self._same or _mapped(self._to_editor, path) is not None

    def on_host(self, path: str) -> str | None:
        """Return the path on the host of a file that the editor names, None if it is only here."""
        return _clean(path) if self._same else _mapped(self._to_host, path)


def local_path(uri: str) -> str | None:
    """Return the path of a `file:` URI, None for any other one."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # such as http://[
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in (path := unquote(parts.path)):
        return None
    return path or None


def read_in(roots: Sequence[str], path: str, most: int) -> bytes:
    """Return the bytes of a file of the laptop that is in one of the editor's folders. No link is followed on the way
    from the folder, so that none leads out of it. Raise NotRead."""
    for root in roots:
        below = _below(_clean(root), _clean(path))
        if below:
            try:
                return _read_below(root, below.split("/"), most)
            except OSError as error:
                raise NotRead(error.strerror or "it cannot be read") from None
    raise NotRead("it is outside of the folders of the editor")


def _read_below(root: str, parts: Sequence[str], most: int) -> bytes:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _NOT_FOLLOWED | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        file = os.open(parts[-1], _NOT_FOLLOWED | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise NotRead("it is a folder" if stat.S_ISDIR(found.st_mode) else "it is no file")
        if found.st_size > most:
            raise NotRead(f"it has more than {most >> 10} KB")
        return opened.read(most)


def _clean(path: str) -> str:
    """Return an absolute path without `.`, `..` and doubled slashes, by its text alone."""
    return posixpath.normpath(path).replace("//", "/", 1) if path.startswith("//") else posixpath.normpath(path)


def _mapped(pairs: Sequence[tuple[str, str]], path: str) -> str | None:
    """Return a path at the other end, None if no pair of folders has it. `..` leads out of no folder."""
    path = _clean(path)
    for root, other in pairs:
        if (below := _below(root, path)) is not None:
            return _joined(other, below)
    return None


def _below(root: str, path: str) -> str | None:
    """Return a path relative to `root`, "" for the root itself, None if it is elsewhere."""
    if path == root:
        return ""
    start = root if root.endswith("/") else f"{root}/"
    return path[len(start) :] if path.startswith(start) else None


def _joined(root: str, below: str) -> str:
    return posixpath.join(root, below) if below else root
