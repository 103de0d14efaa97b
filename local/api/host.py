"""`ccb.connect`: a host, its sessions, and what a program does there itself."""

from __future__ import annotations

import asyncio
import os
import posixpath
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from ccb.tunnel.errors import CcbError, ConnectionLost, CopyFailed, UsageError
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.transports.pipe import Pipe, Transport

from ..command_line.arguments import Arguments
from ..connect.host_connection import HostConnection
from .options import OF_HOST, OF_SESSION, HostOptions, SessionOptions, arguments_of, check_keywords
from .questions import OWN_TOOLS, Callbacks, Permissions, Questions
from .session import CLOSE_S, Session

if TYPE_CHECKING:
    from ..files.both_ends.copy_channel import CopyProgress
    from ..files.copying import CopyOrder
    from ..ports.port_forwards import Forward
    from .tools import Tool

MAX_BYTES = 64 << 20
"""The most bytes that `run` and `read` return."""
_NO_DIRECTORY = 97
_PIECE = 64 << 10


@dataclass(frozen=True)
class Completed:
    """A command on the host that has ended. `stderr` is its end, at most 8 KB."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")


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
    check_keywords("connect", options, OF_HOST)
    return Host(os.fspath(target), dict(options), permissions, questions, own_tools)


class Host:
    """A host, with one login for all that a program does there."""

    def __init__(
        self,
        target: str,
        options: dict[str, Any],
        permissions: Permissions | None,
        questions: Questions | None,
        own_tools: Sequence[Tool],
    ) -> None:
        tools = None
        if own_tools:
            from .tools import ToolServer

            tools = ToolServer(own_tools)
        self._target, self._options = target, options
        self._callbacks = Callbacks(permissions, questions, tools)
        self._arguments = self._parsed({})
        self._connection = HostConnection(self._arguments, NobodyToAsk())
        self._sessions: set[Session] = set()
        self._entered = False

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
        """Close the sessions and the connection. Takes at most 20 seconds, whatever the host does."""
        if not self._entered:
            return
        self._entered = False
        await asyncio.gather(*(each.close() for each in self._sessions), return_exceptions=True)
        closing = asyncio.ensure_future(self._connection.__aexit__())
        await asyncio.wait({closing}, timeout=CLOSE_S)
        if not closing.done() and (transport := self._connection.current) is not None:
            transport.abort()
        closing.cancel()

    async def session(
        self,
        *,
        resume: str | None = None,
        continue_latest: bool = False,
        fork_session: bool = False,
        session_id: str | None = None,
        worktree: str | bool = False,
        **options: Unpack[SessionOptions],
    ) -> Session:
        """Open a session: a new one, or one that exists, by its ID or the start of it. `options` outrank those of
        `connect`. Raises TypeError, CcbError."""
        check_keywords("session", options, OF_SESSION)
        chosen = {
            "resume": resume,
            "continue_latest": continue_latest,
            "fork_session": fork_session,
            "session_id": session_id,
            "worktree": worktree,
        }
        parsed = self._parsed({**chosen, **options})
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
        run, fed = f"/bin/sh -c {shlex.quote(command)}", f"head -c {len(data)} |" if data else "</dev/null exec"
        script = f"cd -- {_quoted(place)} || exit {_NO_DIRECTORY}\n{fed} {run}".encode()
        read = f'C=$(dd bs=1 count={len(script)} 2>/dev/null) && exec /bin/sh -c "$C"'
        async with asyncio.timeout(timeout):
            pipe = await transport.execute(f"exec /bin/sh -c '{read}'")
            try:
                output = await _exchanged(pipe, script + data)
                code = await pipe.exit_status()
            finally:
                await pipe.close()
        said = pipe.stderr_tail()
        if not output and code is not None and (error := transport.failure(code, said)) is not None:
            raise error
        if code is None:
            raise ConnectionLost("the command was lost with its connection, or ended by a signal", evidence=said)
        if code == _NO_DIRECTORY and not output:
            raise UsageError(f"there is no directory {place} on {transport.name}", evidence=said)
        return Completed(code, output, said)

    async def read(self, path: str, *, most: int = MAX_BYTES) -> bytes:
        """Return the content of a file of the host. Raises CcbError, also for more than `most` bytes."""
        from ..files.copying import CopyOrder

        with tempfile.TemporaryDirectory(prefix="ccb-") as top:
            file = Path(top, "file")
            await self._copied(CopyOrder(False, str(file), self._remote(path), private=True, most=most))
            return await asyncio.to_thread(file.read_bytes)

    async def write(self, path: str, data: bytes | str) -> None:
        """Write a file of the host, whole or not at all. Raises CcbError."""
        from ..files.copying import CopyOrder

        with tempfile.TemporaryDirectory(prefix="ccb-") as top:
            file = Path(top, posixpath.basename(path) or "file")
            await asyncio.to_thread(file.write_bytes, data.encode() if isinstance(data, str) else data)
            await self._copied(CopyOrder(True, str(file), self._remote(path)))

    async def copy(self, source: str | os.PathLike[str], target: str | os.PathLike[str]) -> CopyProgress:
        """Copy a file or a folder, as `ccb cp` does: `:PATH` is a path of the host, and one of the two is. Return what
        was done. Raises CcbError."""
        from ..files.copying import CopyOrder

        paths = os.fspath(source), os.fspath(target)
        upload = paths[1].startswith(":")
        if upload == paths[0].startswith(":"):
            raise ValueError("one of the two paths is `:PATH`, a path of the host")
        local, remote = paths if upload else paths[::-1]
        return await self._copied(CopyOrder(upload, local, self._remote(remote[1:])))

    async def forward(self, port: int, local: int = 0) -> Forward:
        """Let a port of this machine (`.local`, `.url`) lead to one of the host, until the host is closed. It goes over
        a session: over an open one, else over a new one. Raises CcbError."""
        found = next((each for each in self._sessions if not each.closed), None)
        return await (found or await self.session()).forward(port, local)

    def _parsed(self, options: dict[str, Any]) -> Arguments:
        own = OWN_TOOLS if self._callbacks.tools is not None else ""
        return arguments_of(self._target, {**self._options, **options}, asks=self._callbacks.asks, own_tools=own)

    @property
    def _open(self) -> HostConnection:
        if not self._entered:
            raise RuntimeError("enter the host first: async with ccb.connect(…) as host")
        return self._connection

    async def _transport(self, again: bool = False) -> Transport:
        return await self._open.transport(ask=False)

    async def _copied(self, order: CopyOrder) -> CopyProgress:
        from ..files.both_ends.copy_channel import CopyProgress
        from ..files.copying import copy

        progress = CopyProgress()
        await copy(order, self._transport, progress)
        return progress

    def _remote(self, path: str) -> str:
        here = self._arguments.directory or "~"
        return path if path.startswith(("/", "~")) else f"{here.rstrip('/')}/{path}"


def _quoted(path: str) -> str:
    """Return a path as a word of a shell; `~` at its start is the home."""
    if path == "~":
        return '"$HOME"'
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


async def _exchanged(pipe: Pipe, data: bytes) -> bytes:
    """Write `data`, end the input, and return all output. Raises CcbError."""

    async def feed() -> None:
        with suppress(CcbError):  # a command need not read its input
            for start in range(0, len(data), _PIECE):
                await pipe.write(data[start : start + _PIECE])

    feeding = asyncio.create_task(feed(), name="input of a command")
    output = bytearray()
    try:
        while piece := await pipe.read():
            output += piece
            if len(output) > MAX_BYTES:
                raise CopyFailed(
                    f"the command printed more than {MAX_BYTES >> 20} MB", do="Write it into a file there."
                )
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    return bytes(output)
