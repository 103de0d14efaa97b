"""`ccb cp`: copy a file or a folder between this machine and a host, with the progress on stderr."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Self

from ccb.tunnel.plain_text import HostText
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.spelling import spelled

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import host_label
from ..connect.host_connection import connect_host
from ..connect.startup import LoadedBasics
from ..files.both_ends.copy_channel import CopyProgress
from ..files.copying import CopyOrder, copy, progress_line, size_of
from ..terminal.console import say, write_over
from ..terminal.terminal_prompts import prompts_for

_EVERY_S = 0.2


async def copy_files(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Copy, and return AGENT_FAILED if something had to be left out. Raises CcbError."""
    assert arguments.copy is not None
    order = CopyOrder(*arguments.copy)
    async with CopyingHost(arguments, environ) as host:
        progress = await host.copy(order)
    for path, why in progress.skipped:
        say(f"ccb: left out: {HostText(spelled(path)).path}: {why}")
    files = f"{progress.copied} files, " if progress.copied != 1 else ""
    say(f"copied {order.shown} ({files}{size_of(progress.done)})")
    return ExitCode.AGENT_FAILED if progress.skipped else ExitCode.OK


class CopyingHost:
    """A host to copy from and to, over as many connections as it takes."""

    def __init__(self, arguments: Arguments, environ: Mapping[str, str]) -> None:
        self._arguments = arguments
        self._environ = environ
        self._prompts = prompts_for(headless=False)
        self._connected = asyncio.Event()  # while it is not set, a login may ask for something on the terminal
        self._stack = AsyncExitStack()
        self._reached: tuple[Transport, LoadedBasics] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def reached(self, again: bool = False) -> tuple[Transport, LoadedBasics]:
        """Return the connection, or `again` a new one, and what runs commands over it. Raise CcbError."""
        if self._reached is None or again:
            if self._reached is None and sys.stderr.isatty():
                say(f"Connecting to {host_label(self._arguments.connection)} …")
            self._connected.clear()
            _write("")
            await self._stack.aclose()
            connecting = connect_host(self._arguments, self._prompts, self._environ)
            self._reached = await self._stack.enter_async_context(connecting)
        self._connected.set()
        return self._reached

    async def copy(self, order: CopyOrder) -> CopyProgress:
        """Copy, with one line about it on a terminal. Raise CcbError."""
        progress = CopyProgress()

        async def open_transport(again: bool) -> Transport:
            return (await self.reached(again))[0]

        async with _shown(self._connected, order, progress):
            await copy(order, open_transport, progress)
        return progress


def _write(text: str) -> None:
    if sys.stderr.isatty():
        write_over(text)


@contextlib.asynccontextmanager
async def _shown(connected: asyncio.Event, order: CopyOrder, progress: CopyProgress) -> AsyncIterator[None]:
    """On a terminal, keep one line about the copy up to date."""

    async def show() -> None:
        while sys.stderr.isatty():
            await connected.wait()
            _write(progress_line(order.shown, progress, shutil.get_terminal_size((80, 24)).columns - 1))
            await asyncio.sleep(_EVERY_S)

    showing = asyncio.create_task(show(), name="progress of a copy")
    try:
        yield
    finally:
        await cancelled(showing)
        _write("")
