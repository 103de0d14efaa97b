"""A process that is talked to in lines over its stdin and stdout: MCP servers, and agents of others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence

from ccb.tunnel.wire.dataclass import dataclass

from ..sandbox.cage_rules import CageRules
from .deadline import within
from .host import Host
from .process import Process

_MAX_LOGGED = 64 << 10  # bytes of its stderr
_KEPT_STDERR = 4_000
_SHOWN = 300  # characters of its last line on stderr
_GRACE_S = 0.5  # between the end of its stdin and SIGTERM

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TalkRules:
    """`name` is that of the process in the log. A line has at most `longest` bytes; as many may wait to be read by the
    process, and twice as many of what it says. `secret` is left out of all that it says: agents put the address of
    their models into error messages."""

    name: str
    longest: int
    secret: str = ""


class StdioProcess(asyncio.Protocol):
    """Owns the process. The protocol is that of its stderr."""

    _stdin: asyncio.WriteTransport
    _stderr: asyncio.ReadTransport
    _process: Process
    _watch: asyncio.Task[None]

    def __init__(self, rules: TalkRules) -> None:
        self.code: int | None = None
        self._rules = rules
        self._unread = bytearray()
        self._news = asyncio.Event()
        self._why_stopped = ""
        self._said = b""  # the end of stderr
        self._logged = 0
        self._quiet = asyncio.Event()  # the end of stderr has come

    @staticmethod
    async def start(
        rules: TalkRules,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        host: Host,
        cage: CageRules | None = None,
    ) -> StdioProcess:
        """Raise OSError, or ValueError for text that no process can be given."""
        made, loop = StdioProcess(rules), asyncio.get_running_loop()
        (given, stdin), (stderr, said) = os.pipe(), os.pipe()
        made._stdin, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(stdin, "wb", 0))
        made._stderr, _ = await loop.connect_read_pipe(lambda: made, os.fdopen(stderr, "rb", 0))
        process = None
        try:
            process = await host.start(argv, cwd, made._take, env, cage=cage, redirect=(given, said))
        finally:
            os.close(given)
            os.close(said)
            if process is None:
                made._stdin.close()
                made._stderr.close()
        made._process = process
        made._watch = loop.create_task(made._watched())
        return made

    async def read(self) -> bytes:
        """Return the next lines of stdout, or the start of one that is too long; b"" at the end."""
        while b"\n" not in self._unread and len(self._unread) <= self._rules.longest and self.code is None:
            self._news.clear()
            await self._news.wait()
        size = self._unread.rfind(b"\n") + 1 or len(self._unread)
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return self._without_secret(data)

    def _without_secret(self, data: bytes) -> bytes:
        return data.replace(self._rules.secret.encode(), b"...") if self._rules.secret else data

    def send(self, data: bytes) -> None:
        """Raise OSError if the process has ended, or does not read."""
        if self.code is not None:
            raise OSError("it has ended")
        waiting = self._stdin.get_write_buffer_size()
        if waiting and waiting + len(data) > self._rules.longest:
            raise OSError(f"it does not read what it is sent: {waiting} bytes wait")
        self._stdin.write(data)

    async def ended(self) -> str:
        """Wait for the end. Return how it came, with the last line on stderr."""
        await asyncio.wait({self._watch})
        if self._why_stopped:
            return f"was stopped: {self._why_stopped}"
        code = self.code or 0
        how = f"has ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
        line = self._without_secret(self._said).decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"{how}: {line[:_SHOWN]}" if line else how

    def kill(self, why: str) -> None:
        """End the process, unless it has ended. `why` is for people."""
        if self.code is None:
            self._why_stopped = self._why_stopped or why
            self._process.kill()

    async def close(self) -> None:
        """End the process and all that it has started: its stdin ends, then come SIGTERM and SIGKILL."""
        self._stdin.close()
        await asyncio.wait({self._watch}, timeout=_GRACE_S)
        await self._process.stop()
        await asyncio.wait({self._watch})

    async def _watched(self) -> None:
        code = await self._process.wait()
        await self._process.stop()
        with contextlib.suppress(asyncio.TimeoutError):
            await within(_GRACE_S, self._quiet.wait())
        self.code = code
        self._news.set()
        self._stdin.close()
        self._stderr.close()

    def _take(self, data: bytes) -> None:
        self._unread += data
        self._news.set()
        if len(self._unread) > 2 * self._rules.longest:
            self.kill(f"more than {2 * self._rules.longest >> 20} MiB of what it said waited to be read")

    def data_received(self, data: bytes) -> None:
        self._said = (self._said + data)[-_KEPT_STDERR:]
        self.log(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._quiet.set()

    def log(self, data: bytes) -> None:
        """Write what the process says into the log, up to a limit."""
        shown = self._without_secret(data)[: max(0, _MAX_LOGGED - self._logged)].decode("utf-8", "replace").rstrip()
        self._logged += len(data)
        if shown:
            log.info("%s says: %s", self._rules.name, shown)
