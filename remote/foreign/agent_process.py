"""The process of an agent: what it reads from stdin, and says on stdout and stderr."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence

from ..sandbox.cage_rules import CageRules
from ..system.deadline import within
from ..system.host import Host
from ..system.process import Process
from ..tools.output import clean

MAX_UNREAD = 64 << 20  # bytes that the agent has sent, or has not read yet
_MAX_LOGGED = 64 << 10  # bytes of its stderr
_KEPT_STDERR = 4_000
_GRACE_S = 0.5  # between the end of its stdin and SIGTERM
_SHOWN = 300  # characters of its last line on stderr

log = logging.getLogger(__name__)


class AgentProcess(asyncio.Protocol):
    """Owns the process. The protocol is that of its stderr. `secret` is left out of all that the agent says: agents put
    the address of their models into error messages."""

    _stdin: asyncio.WriteTransport
    _stderr: asyncio.ReadTransport
    _process: Process
    _watch: asyncio.Task[None]

    def __init__(self, name: str, secret: str) -> None:
        self.code: int | None = None
        self._secret = secret.encode()
        self._name = name
        self._unread = bytearray()
        self._news = asyncio.Event()
        self._flood = False
        self._said = b""
        self._logged = 0
        self._quiet = asyncio.Event()  # the end of stderr has come

    @staticmethod
    async def start(
        name: str,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        host: Host,
        cage: CageRules | None,
        secret: str = "",
    ) -> AgentProcess:
        """Raise OSError, or ValueError for text that no process can be given."""
        agent, loop = AgentProcess(name, secret), asyncio.get_running_loop()
        (given, stdin), (stderr, said) = os.pipe(), os.pipe()
        agent._stdin, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(stdin, "wb", 0))
        agent._stderr, _ = await loop.connect_read_pipe(lambda: agent, os.fdopen(stderr, "rb", 0))
        process = None
        try:
            process = await host.start(argv, cwd, agent._take, env, cage=cage, redirect=(given, said))
        finally:
            os.close(given)
            os.close(said)
            if process is None:
                agent._stdin.close()
                agent._stderr.close()
        agent._process = process
        agent._watch = loop.create_task(agent._watched())
        return agent

    async def read(self) -> bytes:
        """Return the next lines of stdout, b"" at the end."""
        while b"\n" not in self._unread and self.code is None:
            self._news.clear()
            await self._news.wait()
        size = self._unread.rfind(b"\n") + 1 or len(self._unread)
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return self._without_secret(data)

    def _without_secret(self, data: bytes) -> bytes:
        return data.replace(self._secret, b"...") if self._secret else data

    async def write(self, data: bytes) -> None:
        """Raise OSError if the agent has ended, or does not read."""
        if self.code is not None:
            raise OSError("it has ended")
        if self._stdin.get_write_buffer_size() + len(data) > MAX_UNREAD:
            raise OSError("it does not read what it is sent")
        self._stdin.write(data)

    async def ended(self) -> str:
        """Wait for the end. Return how it ended, with its last line on stderr."""
        await asyncio.wait({self._watch})
        if self._flood:
            return f"was stopped: more than {MAX_UNREAD >> 20} MiB of what it said waited to be read"
        code = self.code or 0
        how = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
        line = clean(self._without_secret(self._said)).strip().rpartition("\n")[2]
        return f"{how}: {line[:_SHOWN]}" if line else how

    def kill(self) -> None:
        self._process.kill()

    async def close(self) -> None:
        """End the process and all that it has started."""
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
        if len(self._unread) > MAX_UNREAD and not self._flood:
            self._flood = True
            self._process.kill()

    def data_received(self, data: bytes) -> None:
        self._said = (self._said + data)[-_KEPT_STDERR:]
        text = clean(self._without_secret(data)[: max(0, _MAX_LOGGED - self._logged)]).rstrip()
        self._logged += len(data)
        if text:
            log.info("the agent %s says: %s", self._name, text)

    def connection_lost(self, error: Exception | None) -> None:
        self._quiet.set()
