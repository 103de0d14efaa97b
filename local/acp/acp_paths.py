"""Paths of the editor and paths of the host: the working directory, and what `--map` says is the same on both."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from ccb.tunnel.wire.json_rpc import INVALID_PARAMS, RpcError


class PathMap:
    """`place` is the directory of the host as the person named it (absolute, or with `~`), `maps` are `REMOTE=LOCAL`:
    a path of the host, and the same one here. The first working directory of the editor, or that of this process,
    stands for `place`, which `there` names without links once it is known."""

    def __init__(self, host: str, place: str, maps: Sequence[str] = ()) -> None:
        self.host = host
        self.place = place.rstrip("/") or "/"
        self.there = ""
        pairs = (each.partition("=") for each in maps)
        self._to_editor = [(clean(there), clean(here)) for there, _, here in pairs]
        self._to_host = [(here, there) for there, here in self._to_editor]
        self._root = ""

    @staticmethod
    def folder(cwd: object) -> str:
        """Return a working directory of the editor without `.` and `..`. Raise RpcError."""
        if not isinstance(cwd, str) or not cwd.startswith("/") or "\0" in cwd:
            raise RpcError(INVALID_PARAMS, f"cwd must be an absolute path, not {str(cwd)[:200]!r}")
        return clean(cwd)

    def directory(self, cwd: object) -> str:
        """Return the directory of the host for a working directory of the editor. Raise RpcError."""
        here = self.folder(cwd)
        if (there := _mapped(self._to_host, here)) is not None:
            return there
        self._root = self._root or here
        if (there := _mapped([(self._root, self.place)], here)) is not None:
            return there
        raise RpcError(
            INVALID_PARAMS,
            f"{here} is outside of {self._root}, which stands for {self.host}:{self.place}. "
            f"`--map /PATH/ON/HOST={here}` says which directory of the host it is.",
        )

    def cwd(self, path: str) -> str | None:
        """Return the working directory of the editor for one of the host, None for one that the editor has not."""
        root = self._root or str(Path.cwd())
        return _mapped([*self._to_editor, (self.there, root)], path)

    def shown(self, path: str) -> str:
        """Return what the editor opens for a file of the host: the path itself unless `--map` names another one."""
        return _mapped(self._to_editor, path) or path

    def on_host(self, path: str) -> str | None:
        """Return the path on the host of a file that the editor names, None if it is only here."""
        return _mapped(self._to_host, path)


def local_path(uri: str) -> str | None:
    """Return the path of a `file:` URI, None for any other one."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # such as http://[
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in (path := unquote(parts.path)):
        return None
    return path or None


def clean(path: str) -> str:
    """Return an absolute path without `.`, `..` and doubled slashes, by its text alone."""
    return posixpath.normpath(path).replace("//", "/", 1) if path.startswith("//") else posixpath.normpath(path)


def _mapped(pairs: Sequence[tuple[str, str]], path: str) -> str | None:
    """Return a path at the other end, None if no pair of folders has it. `..` leads out of no folder."""
    here = PurePosixPath(clean(path))
    found = (str(PurePosixPath(other, here.relative_to(root))) for root, other in pairs if here.is_relative_to(root))
    return next(found, None)
