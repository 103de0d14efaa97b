"""`ccb.connect`: a host, its sessions, and what a program does there itself."""

from __future__ import annotations

import asyncio
import os
import posixpath
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.transports.pipe import Transport

from ..command_line.arguments import Arguments
from ..connect.host_connection import HostConnection
from ..connect.host_script import MAX_BYTES, Completed, run_command
from .options import HostOptions, OpeningOptions, arguments_of, check_keywords
from .questions import OWN_TOOLS, Callbacks, Permissions, Questions
from .session import CLOSE_S, Session

if TYPE_CHECKING:
    from ..files.both_ends.copy_channel import CopyProgress
    from ..ports.port_forwards import Forward
    from .tools import Tool


@dataclass(frozen=True)
class SessionInfo:
    """A session of the host. `title` is its name, else its first prompt; `state` is that of its agent."""

    id: str
    title: str
    directory: str
    alive: bool
    state: str


def connect(
    target: str | os.PathLike[str] = ".",
    *,
    permissions: Permissions | None = None,
    questions: Questions | None = None,
    own_tools: Sequence[Tool] = (),
    **options: Unpack[HostOptions],
) -> Host:
    """Return a host to enter with `async with`: `host:/path`, or a directory of this machine (`.`, `~/app`, `/srv`).
    `options` are those of the command line, and hold for each session. `permissions` and `questions` answer the agent,
    `own_tools` run in this program. Raises TypeError for unknown options, UsageError for wrong values."""
    check_keywords("connect", options, HostOptions.__annotations__)
    tools: dict[str, Tool] = {}
    if own_tools:
        from .tools import tools_by_name

        tools = tools_by_name(own_tools)
    return Host(os.fspath(target), dict(options), Callbacks(permissions, questions, tools))


class Host:
    """A host, with one login for all that a program does there."""

    def __init__(self, target: str, options: dict[str, Any], callbacks: Callbacks) -> None:
        self._target, self._options, self._callbacks = target, options, callbacks
        self._arguments = self._parsed({})
        self._connection = HostConnection(self._arguments, NobodyToAsk())
        self._sessions: set[Session] = set()
        self._entered = False
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        self._entered = True
        try:
            await self._connection.connected()
            self._arguments, _ = await self._connection.placed(self._arguments)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the sessions and the connection, also if this is cancelled. Takes at most 20 seconds, whatever the host
        does."""
        if self._entered:
            self._entered = False
            self._closing = asyncio.create_task(self._close(), name="end of a host")
        if self._closing is not None:
            await asyncio.wait({self._closing})

    async def _close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._sessions), return_exceptions=True)
        closing = asyncio.ensure_future(self._connection.__aexit__())
        await asyncio.wait({closing}, timeout=CLOSE_S)
        if not closing.done() and (transport := self._connection.current) is not None:
            transport.abort()
        closing.cancel()

    async def session(self, **options: Unpack[OpeningOptions]) -> Session:
        """Open a session: a new one, or one that exists, by its ID or the start of it (`resume`). `options` outrank
        those of `connect`. Raises TypeError, CcbError."""
        check_keywords("session", options, OpeningOptions.__annotations__)
        parsed = self._parsed(dict(options))
        placed = replace(parsed, connection=self._arguments.connection, directory=self._arguments.directory)
        session = Session(self._open, placed, self._callbacks)
        self._sessions = {each for each in self._sessions if not each.closed} | {session}
        return await session.open()

    async def sessions(self) -> list[SessionInfo]:
        """Return the sessions of the host, those used last first. Raises CcbError."""
        listed = await (await self._open.sessions()).listed()
        return [SessionInfo(row.session, row.prompt.raw, row.cwd.raw, row.alive, row.state) for row in listed]

    async def run(
        self, command: str, *, directory: str = "", input: bytes | str = b"", timeout: float | None = None
    ) -> Completed:
        """Run a command line with /bin/sh in the directory of the host, with `input` on stdin. Raises CcbError, and
        TimeoutError after `timeout` seconds: the command then loses its pipes."""
        transport = await self._transport()
        place = directory or self._arguments.directory or "~"
        data = input.encode() if isinstance(input, str) else input
        async with asyncio.timeout(timeout):
            return await run_command(transport, command, place, data)

    async def read(self, path: str, *, most: int = MAX_BYTES) -> bytes:
        """Return the content of a file of the host. Raises CcbError, also for more than `most` bytes."""
        with tempfile.TemporaryDirectory(prefix="ccb-") as top:
            file = Path(top, "file")
            await self._copied(str(file), path, upload=False, private=True, most=most)
            return await asyncio.to_thread(file.read_bytes)

    async def write(self, path: str, data: bytes | str) -> None:
        """Write a file of the host, whole or not at all. Raises CcbError."""
        with tempfile.TemporaryDirectory(prefix="ccb-") as top:
            file = Path(top, posixpath.basename(path) or "file")
            await asyncio.to_thread(file.write_bytes, data.encode() if isinstance(data, str) else data)
            await self._copied(str(file), path, upload=True)

    async def copy(self, source: str | os.PathLike[str], target: str | os.PathLike[str]) -> CopyProgress:
        """Copy a file or a folder, as `ccb cp` does: `:PATH` is a path of the host, and one of the two is. Return what
        was done. Raises CcbError."""
        paths = os.fspath(source), os.fspath(target)
        upload = paths[1].startswith(":")
        if upload == paths[0].startswith(":"):
            raise ValueError("one of the two paths is `:PATH`, a path of the host")
        local, remote = paths if upload else paths[::-1]
        return await self._copied(local, remote[1:], upload=upload)

    async def forward(self, port: int, local: int = 0) -> Forward:
        """Let a port of this machine (`.local`, `.url`) lead to one of the host, until the host is closed. It goes over
        a session: over an open one, else over a new one. Raises CcbError."""
        found = next((each for each in self._sessions if not each.closed), None)
        return await (found or await self.session()).forward(port, local)

    def _parsed(self, options: dict[str, Any]) -> Arguments:
        own = OWN_TOOLS if self._callbacks.tools else ""
        return arguments_of(self._target, {**self._options, **options}, asks=self._callbacks.asks, own_tools=own)

    @property
    def _open(self) -> HostConnection:
        if not self._entered:
            raise RuntimeError("enter the host first: async with ccb.connect(…) as host")
        return self._connection

    async def _transport(self, again: bool = False) -> Transport:
        return await self._open.transport(ask=False)

    async def _copied(
        self, local: str, remote: str, *, upload: bool, private: bool = False, most: int = 0
    ) -> CopyProgress:
        from ..files.both_ends.copy_channel import CopyProgress
        from ..files.copying import CopyOrder, copy

        here = (self._arguments.directory or "~").rstrip("/")
        remote = remote if remote.startswith(("/", "~")) else f"{here}/{remote}"
        progress = CopyProgress()
        await copy(CopyOrder(upload, local, remote, private=private, most=most), self._transport, progress)
        return progress
