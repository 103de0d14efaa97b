"""The host for one call whose path was checked: its file operations reach just that, wherever links lead by then.

A caged command that runs beside the call may replace a directory by a link between the check and the operation."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable

from ..sandbox.rules import CageRules
from ..sandbox.server import Availability
from .host import DirEntry, Host, StdioRedirect
from .process import Process
from .regular_files import ABSENT, FileInfo


class PinnedHost:
    """A host whose file operations work on `real` only, a real path, and follow no link on the way to it. It needs
    /proc, which hosts with a cage have."""

    def __init__(self, host: Host, real: str) -> None:
        self._host = host
        self._real = real

    def real_path(self, path: str) -> str:
        return self._host.real_path(path)

    def peek(self, path: str, most: int) -> bytes | None:
        try:
            with self._held(path) as held:
                return self._host.peek(held, most)
        except OSError:
            return None

    async def stat(self, path: str, follow: bool = True) -> FileInfo | None:
        try:
            with self._held(path) as held:
                return await self._host.stat(held, follow=True)
        except (FileNotFoundError, NotADirectoryError):
            return None

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        with self._held(path) as held:
            return await self._host.read(held, offset, limit)

    async def list(self, path: str) -> list[DirEntry]:
        with self._held(path) as held:
            return await self._host.list(held)

    async def replace(
        self, path: str, data: bytes, expected: str, resolved: bool = False, unkept: str = ""
    ) -> FileInfo:
        self._check(path)
        directory, name = os.path.split(self._real)
        with _opened(directory, make=expected == ABSENT) as held:
            return await self._host.replace(f"{held}/{name}", data, expected, True, unkept)

    async def restore(self, path: str, data: bytes | None, expected: str, mode: int) -> None:
        self._check(path)
        await self._host.restore(self._real, data, expected, mode)

    def which(self, name: str) -> str | None:
        return self._host.which(name)

    async def start(
        self,
        argv: Sequence[str],
        cwd: str,
        on_output: Callable[[bytes], None],
        env: Mapping[str, str] | None = None,
        cage: CageRules | None = None,
        redirect: StdioRedirect | None = None,
    ) -> Process:
        return await self._host.start(argv, cwd, on_output, env, cage, redirect)

    def cages(self) -> Availability:
        return self._host.cages()

    def known_cages(self) -> Availability | None:
        return self._host.known_cages()

    def close(self) -> None:
        self._host.close()

    def _check(self, path: str) -> None:
        if self._host.real_path(path) != self._real:
            raise PermissionError(errno.EPERM, "it leads elsewhere than when it was checked", path)

    @contextlib.contextmanager
    def _held(self, path: str) -> Iterator[str]:
        """Hold the file or directory open, and return a path that leads to just this one."""
        self._check(path)
        with _opened(self._real) as held:
            yield held


@contextlib.contextmanager
def _opened(path: str, *, make: bool = False) -> Iterator[str]:
    """Open a real path without following a link, and return a path that leads to what was opened. `make`: it is a
    directory, which is made with its parents if it is missing."""
    file = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        parts = [part for part in path.split("/") if part]
        for at, part in enumerate(parts):
            inner = at < len(parts) - 1 or make
            entered = _enter(file, part, inner=inner, make=make)
            os.close(file)
            file = entered
        if stat.S_ISLNK(os.fstat(file).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def _enter(directory: int, name: str, *, inner: bool, make: bool) -> int:
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_DIRECTORY if inner else 0)
    try:
        return os.open(name, flags, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
        return os.open(name, flags, dir_fd=directory)
