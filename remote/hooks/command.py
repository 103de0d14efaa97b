"""Runs the shell command of a hook: JSON on stdin, limited output, and no process left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping

from ccb.tunnel.wire.dataclass import dataclass

from ..system.deadline import within
from ..system.host import Host, StdioRedirect

_MAX_STDOUT, _MAX_STDERR = 1 << 20, 1 << 16
_CHUNK = 65536


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended. `code` is its exit code, negative for a signal, None if it was stopped at its timeout.
    `whole`: all of its stdout is here."""

    code: int | None
    stdout: str
    stderr: str
    whole: bool = True


class _BoundedOutput:
    """The first bytes of an output. `is_cut`: there were more."""

    def __init__(self, most: int) -> None:
        self.is_cut = False
        self._most = most
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self.is_cut = self.is_cut or len(self._data) + len(data) > self._most
        self._data += data[: self._most - len(self._data)]

    def text(self) -> str:
        return self._data.decode("utf-8", "replace")


async def run_command(
    host: Host, command: str, cwd: str, payload: bytes, timeout_s: float, env: Mapping[str, str] = {}, project: str = ""
) -> CommandEnd:
    """Run a command of the shell in `cwd` with `payload` on its stdin, and `env` in its environment. `project` is the
    directory of the session, if that is another one. The command and everything
    that it started is stopped at its end, at the timeout and when this is cancelled. Raise OSError if it cannot be
    started."""
    stdout, stderr = _BoundedOutput(_MAX_STDOUT), _BoundedOutput(_MAX_STDERR)
    shell = host.which("bash") or "/bin/sh"
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(os, "pipe2") else os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, True)
    loop = asyncio.get_running_loop()

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(reader, _CHUNK)
            if data:
                stderr.add(data)
            else:
                loop.remove_reader(reader)

    try:
        import tempfile

        with tempfile.TemporaryFile() as given:
            given.write(payload)
            given.seek(0)
            redirect = StdioRedirect(given.fileno(), writer)
            whole = {**env, "CLAUDE_PROJECT_DIR": project or cwd}
            process = await host.start([shell, "-c", command], cwd, stdout.add, whole, redirect=redirect)
        loop.add_reader(reader, read)
        code: int | None = None
        try:
            with contextlib.suppress(asyncio.TimeoutError):
                code = await within(timeout_s, process.wait())
        finally:
            await process.stop()
        read()
        return CommandEnd(code, stdout.text(), stderr.text(), not stdout.is_cut)
    finally:
        loop.remove_reader(reader)
        os.close(reader)
        os.close(writer)
