"""The machine as tools see it, and pinned paths: a command may put a link in the place of a directory meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Callable, TypeVar, Union

from ccb.tunnel.wire.dataclass import dataclass

from ..sandbox.cage_rules import CageRules
from ..sandbox.cage_server import Availability, CageServer
from ..sandbox.outliving import held_below
from .deadline import to_its_end, within
from .process import MARK, Process, attended_environment, child_environment, new_mark, started
from .regular_files import ABSENT, FileInfo, FileKind, info_of, open_regular, replace_file, restore_file

T = TypeVar("T")

_BLOCK = 1 << 20


@dataclass(frozen=True)
class DirEntry:
    """One name in a directory. `target` is where a link points to, as written in it."""

    name: str
    kind: FileKind
    target: str = ""


class Host:
    """What tools do on this machine. All paths are absolute. Every method may raise OSError. `session` is the token in
    the mark of every process; `which` finds no programs under `untrusted` directories."""

    def __init__(
        self,
        session: str = "",
        untrusted: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        cages: CageServer | None = None,
    ) -> None:
        self.session = session or new_mark()
        self._untrusted = [real for real in map(os.path.realpath, untrusted) if real != "/"]
        self._environ = os.environ if environ is None else environ
        self._cages = cages or CageServer()

    def real_path(self, path: str) -> str:
        """Return `path` with every link resolved; its last parts need not exist."""
        return os.path.realpath(path)

    async def stat(self, path: str) -> FileInfo | None:
        """Return the state of a path; None when it does not exist."""
        return await _in_thread(_stat, path)

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        """Return up to `limit` bytes from `offset`, fewer only at the end. Raise NotAFile."""
        return await _in_thread(_read, path, offset, limit)

    async def list(self, path: str) -> list[DirEntry]:
        """Return the entries of a directory, sorted by name."""
        return await _in_thread(_list, path)

    async def replace(self, path: str, data: bytes, expected: str, is_real: bool = False, unkept: str = "") -> FileInfo:
        """Replace the content of a file that has the digest `expected` (`ABSENT`: create it) with `data`. Keep mode,
        owner and hard links, in one atomic step unless that would make another file of it; `unkept`, why the content
        could not be kept, forbids the latter. Raise FileChanged, and change nothing, for another content."""
        real = path if is_real else os.path.realpath(path)
        return await self._write(real, replace_file, data, expected, unkept)

    async def restore(self, path: str, data: bytes | None, expected: str, mode: int) -> None:
        """Give the file at a real path the content `data`, None to remove it, if its digest is `expected`. A new file
        gets `mode`. Raise FileChanged, and change nothing, for another content."""
        await self._write(path, restore_file, data, expected, mode)

    async def _write(self, path: str, change: Callable[..., T], *arguments: object) -> T:
        def write() -> T:
            with self._cages.writing(os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))):
                return change(path, *arguments)

        return await _in_thread(write)

    def which(self, name: str) -> str | None:
        """Return the path of a program, None for one inside the project or by a relative entry of PATH."""
        import shutil  # like tempfile, it takes 4 ms, and no session begins with it

        for directory in self._environ.get("PATH", os.defpath).split(os.pathsep):
            found = shutil.which(name, path=directory) if os.path.isabs(directory) else None
            if found and not any(is_under(os.path.realpath(found), root) for root in self._untrusted):
                return found
        return None

    async def start(
        self,
        argv: Sequence[str],
        cwd: str,
        on_output: Callable[[bytes], None],
        env: Mapping[str, str] | None = None,
        cage: CageRules | None = None,
        redirect: Sequence[int] = (),
    ) -> Process:
        """Start a process (see `process.started`) in `cwd` or the nearest ancestor that can be entered, with `env`
        added. With a `cage`, it has a TMPDIR of its own; without one, `redirect` may have descriptors for stdin and
        stderr, which the caller closes. Raise CageUnavailable."""
        return await self._start(
            argv, cwd, on_output, {**child_environment(self._environ), **(env or {})}, cage, redirect
        )

    async def start_attended(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], terminal: Sequence[int]
    ) -> Process:
        """Start a process of the person, without a cage. `terminal` are its stdin and stderr. See `start`."""
        return await self._start(
            argv, cwd, lambda _: None, {**attended_environment(self._environ), **env}, None, terminal
        )

    async def _start(
        self,
        argv: Sequence[str],
        cwd: str,
        on_output: Callable[[bytes], None],
        env: Mapping[str, str],
        cage: CageRules | None,
        redirect: Sequence[int],
    ) -> Process:
        whole = {**env, MARK: new_mark(self.session)}
        cwd = await _in_thread(nearest_directory, cwd)
        watches = cage is not None or self._cages.watches
        if watches and cage is None:  # what it makes is left where it is, unlike what caged ones leave
            await _in_thread(self._cages.begin_uncaged)
        return await started(self._cages, argv, cwd, whole, on_output, cage, redirect, finishes=watches)

    async def output(
        self,
        argv: Sequence[str],
        seconds: float,
        most: int,
        *,
        cage: CageRules | None = None,
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
    ) -> tuple[int | None, bytes]:
        """Run a program. Return its exit code, None if it takes longer than `seconds`, and what it prints, about `most`
        bytes of it. Raise OSError if it cannot be started."""
        output = bytearray()

        def take(data: bytes) -> None:
            if len(output) <= most:
                output.extend(data)

        process, code = await self.start(argv, cwd, take, env, cage=cage), None
        try:
            with contextlib.suppress(asyncio.TimeoutError):  # it is stopped
                code = await within(seconds, process.wait())
        finally:
            if code is None or process.has_leftovers():
                await process.stop()
        return code, bytes(output)

    def cages(self) -> Availability:
        """Return which cages hold on this machine. The first call takes about 50 ms; call it from any thread."""
        return self._cages.availability()

    def known_cages(self) -> Availability | None:
        """Return what `cages` has returned; None before it was called."""
        return self._cages.known

    def close(self) -> None:
        """Release what the host keeps for starting processes. The processes go on."""
        self._cages.close()


def nearest_directory(path: str) -> str:
    """Return `path` if it is a directory that can be entered, else its nearest ancestor that is one."""
    while path != "/" and not (os.path.isdir(path) and os.access(path, os.X_OK)):
        path = os.path.dirname(path)
    return path


async def _in_thread(function: Callable[..., T], *args: object) -> T:
    """Run a file operation in a thread. When cancelled, wait until it has ended, so that none goes on unseen."""
    return await to_its_end(asyncio.get_running_loop().run_in_executor(None, function, *args))


def _stat(path: str) -> FileInfo | None:
    try:
        return info_of(os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read(path: str, offset: int, limit: int) -> bytes:
    data = bytearray()
    with open_regular(path) as file:
        while chunk := os.pread(file, min(limit - len(data), _BLOCK), offset + len(data)):
            data += chunk
    return bytes(data)


def _list(path: str) -> list[DirEntry]:
    entries = []
    with os.scandir(path) as found:
        for item in found:
            target = ""
            if item.is_symlink():
                kind = FileKind.LINK
                with contextlib.suppress(OSError):
                    target = os.readlink(item.path)
            elif item.is_dir(follow_symlinks=False):
                kind = FileKind.DIRECTORY
            else:
                kind = FileKind.FILE if item.is_file(follow_symlinks=False) else FileKind.OTHER
            entries.append(DirEntry(item.name, kind, target))
    return sorted(entries, key=lambda entry: entry.name)


def is_under(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


class PinnedHost:
    """The file operations on a real path, without following a link on the way. It needs /proc, as cages do."""

    def __init__(self, host: Host, real: str) -> None:
        self._host = host
        self._real = real

    def real_path(self, path: str) -> str:
        return self._host.real_path(path)

    async def stat(self, path: str) -> FileInfo | None:
        try:
            with self._held(path) as held:
                return await self._host.stat(held)
        except (FileNotFoundError, NotADirectoryError):
            return None

    async def read(self, path: str, offset: int, limit: int) -> bytes:
        with self._held(path) as held:
            return await self._host.read(held, offset, limit)

    async def list(self, path: str) -> list[DirEntry]:
        with self._held(path) as held:
            return await self._host.list(held)

    async def replace(self, path: str, data: bytes, expected: str, *, unkept: str = "") -> FileInfo:
        directory, name = os.path.split(self._real)
        with self._held(path, directory, make=expected == ABSENT) as held:
            return await self._host.replace(f"{held}/{name}", data, expected, True, unkept)

    def _held(self, path: str, real: str = "", *, make: bool = False) -> contextlib.AbstractContextManager[str]:
        """Hold the file or directory open, and return a path that leads to just this one."""
        if self._host.real_path(path) != self._real:
            raise PermissionError(errno.EPERM, "it leads elsewhere than when it was checked", path)
        return _opened(real or self._real, make=make)


Files = Union[Host, PinnedHost]


@contextlib.contextmanager
def _opened(path: str, *, make: bool = False) -> Iterator[str]:
    """Return a path to what was opened at a real path, not over links. `make`: a directory, made if missing."""
    with held_below("/", path, make=make, any_kind=not make) as file:
        if stat.S_ISLNK(os.fstat(file).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        yield f"/proc/self/fd/{file}"
