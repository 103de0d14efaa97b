"""Writes the compiled copy of the bundle, once in the life of a daemon that had to compile the worker itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from . import compiled_copy
from .compiled_copy import MISSING, Odd, copy_path, header_of, private_directory

log = logging.getLogger(__name__)

DELAY_S = 1.0  # seconds between the end of the first turn and the writing, so that what a client waits for comes first

_COPY = re.compile(r"([0-9a-f]{64})\.[\w.+-]+\.code")


_COMPILE_S = 60.0

_COMPILER = """
import hashlib, marshal, os, sys
os.nice(10)
parts = sys.stdin.buffer.read().split(b"\\0")
codes = {}
for name, source in zip(map(bytes.decode, parts[::2]), parts[1::2]):
    codes[name] = marshal.dumps(compile(source, "<ccb>/" + name, "exec", dont_inherit=True))
body = bytes.fromhex(sys.argv[1]) + marshal.dumps(codes)
sys.stdout.buffer.write(hashlib.sha256(body).digest() + body)
"""
"""Compiles what it reads, as the stub does, and writes the copy. In the worker this would leave 15 MB of memory behind
that it never needs again."""


class CopyWriter:
    """Writes the copy for the bundle at `bundle_path`, whose hash is `digest`. `no_copy` says why this daemon has not
    used a copy; with "" it has, and nothing is written."""

    def __init__(self, bundle_path: str, digest: str, no_copy: str) -> None:
        self._path = bundle_path
        self._digest = digest
        self._wanted = bool(bundle_path and no_copy)
        if self._wanted and no_copy != MISSING:
            log.warning("the compiled copy of the worker beside %s was not used: %s", bundle_path, no_copy)
        self._has_worked = False
        self._now = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def session_is(self, *, working: bool) -> None:
        """Note whether a turn runs. Soon after the first one has ended, the copy is written, once."""
        self._has_worked = self._has_worked or working
        idle_again = self._has_worked and not working
        if idle_again and self._wanted and self._task is None and not self._now.is_set():
            self._task = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        """If the copy was to be written soon, write it now."""
        self._now.set()
        if self._task is not None:
            await self._task

    async def _write(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._now.wait(), DELAY_S)  # noqa: TID251 - nobody cancels this task
        try:
            await asyncio.get_running_loop().run_in_executor(None, write_copy, self._path, self._digest, _sources())
        except (OSError, Odd, subprocess.TimeoutExpired) as error:
            log.warning("the compiled copy of the worker cannot be written: %s", error)
        except Exception:
            log.exception("the compiled copy of the worker cannot be written")


def _sources() -> Mapping[str, bytes]:
    """Return the files of the bundle by their names, from the stub's importer."""
    loader: Any = compiled_copy.__spec__ and compiled_copy.__spec__.loader
    entries: Mapping[str, bytes] = loader.entries
    return entries


def write_copy(bundle_path: str, digest: str, sources: Mapping[str, bytes]) -> None:
    """Compile every module of the bundle, and put the copy beside it in one step. Remove copies whose bundle is gone.
    Raise Odd or OSError."""
    path = copy_path(bundle_path)
    if not path:
        return
    directory = private_directory(os.path.dirname(path))
    try:
        modules = [part for file, source in sources.items() if file.endswith(".py") for part in (file, source)]
        given = b"\0".join(part.encode() if isinstance(part, str) else part for part in modules)
        _put(directory, os.path.basename(path), digest, given)
        _remove_orphans(directory)
    finally:
        os.close(directory)


def _put(directory: int, name: str, digest: str, sources: bytes) -> None:
    """Write the file under a temporary name, which `ccb gc` knows, and rename it. It need not survive a power cut. A
    worker that is killed while it compiles, which takes a second, leaves no file."""
    argv = [sys.executable, "-I", "-S", "-c", _COMPILER, header_of(digest).hex()]
    import shutil  # not at the start of a worker
    import tempfile

    with tempfile.TemporaryFile() as compiled:  # it has no name, and would be much memory
        done = subprocess.run(
            argv, input=sources, stdout=compiled, stderr=subprocess.PIPE, timeout=_COMPILE_S, check=False
        )
        if done.returncode:
            last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise Odd(f"it could not be compiled: {last[:300]}")
        compiled.seek(0)
        temporary = ".%s.%d-%s" % (digest[:16], os.getpid(), os.urandom(8).hex())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, 0o600, dir_fd=directory)
        try:
            with os.fdopen(file, "wb") as opened:
                shutil.copyfileobj(compiled, opened)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise


def _remove_orphans(directory: int) -> None:
    names = set(os.listdir(directory))
    for name in names:
        copy = _COPY.fullmatch(name)
        if copy and not {copy[1] + ".bundle", copy[1] + ".zip"} & names:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=directory)
