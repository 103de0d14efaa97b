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
directory, name, header = int(sys.argv[1]), sys.argv[2], bytes.fromhex(sys.argv[3])
parts = sys.stdin.buffer.read().split(b"\\0")
codes = {}
for file, source in zip(map(bytes.decode, parts[::2]), parts[1::2]):
    codes[file] = marshal.dumps(compile(source, "<ccb>/" + file, "exec", dont_inherit=True))
body = header + marshal.dumps(codes)
temporary = ".%s.%d-%s" % (name[:16], os.getpid(), os.urandom(8).hex())  # as `ccb gc` knows it
flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
try:
    with open(os.open(temporary, flags, 0o600, dir_fd=directory), "wb") as opened:
        opened.write(hashlib.sha256(body).digest() + body)
    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
except BaseException:
    os.unlink(temporary, dir_fd=directory)
    raise
"""
"""Compiles what it reads, as the stub does, and puts the copy in its place in one step. In the worker this would leave
15 MB of memory behind that it never needs again."""


class CopyWriter:
    """Writes the copy for the bundle at `bundle_path` unless one is used (`no_copy` is ""). `digest` is its hash."""

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
        self._now.set()
        if self._task is not None:
            await self._task

    async def _write(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._now.wait(), DELAY_S)  # noqa: TID251 - nobody cancels this task
        loader: Any = compiled_copy.__spec__ and compiled_copy.__spec__.loader  # the stub's importer
        try:
            await asyncio.get_running_loop().run_in_executor(None, write_copy, self._path, self._digest, loader.entries)
        except (OSError, Odd, subprocess.TimeoutExpired) as error:
            log.warning("the compiled copy of the worker cannot be written: %s", error)


def write_copy(bundle_path: str, digest: str, sources: Mapping[str, bytes]) -> None:
    """Compile the bundle beside it, and remove copies whose bundle is gone. Raise Odd, TimeoutExpired or OSError."""
    path = copy_path(bundle_path)
    if not path:
        return
    directory = private_directory(os.path.dirname(path))
    try:
        modules = [part for file, source in sources.items() if file.endswith(".py") for part in (file.encode(), source)]
        words = [str(directory), os.path.basename(path), header_of(digest).hex()]
        argv = [sys.executable, "-I", "-S", "-c", _COMPILER, *words]
        given = b"\0".join(modules)
        done = subprocess.run(
            argv, input=given, capture_output=True, timeout=_COMPILE_S, check=False, pass_fds=[directory]
        )
        if done.returncode:
            last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise Odd(f"it could not be compiled: {last[:300]}")
        names = set(os.listdir(directory))
        for copy in filter(None, map(_COPY.fullmatch, names)):
            if not {copy[1] + ".bundle", copy[1] + ".zip"} & names:
                with contextlib.suppress(OSError):
                    os.unlink(copy[0], dir_fd=directory)
    finally:
        os.close(directory)
