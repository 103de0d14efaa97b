"""`ccb cp`: copy a file or a folder between this machine and a host, with the progress on stderr."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

from ccb.tunnel.plain_text import HostText
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.spelling import spelled

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import host_label
from ..connect.connect_session import connect_host
from ..files.both_ends.copy_channel import CopyProgress
from ..files.copying import CopyOrder, copy, progress_line, size_of
from ..terminal.console import say, write_over
from ..terminal.terminal_prompts import prompts_for

_EVERY_S = 0.2


async def copy_files(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Copy, and return AGENT_FAILED if something had to be left out. Raises CcbError."""
    assert arguments.copy is not None
    order = CopyOrder(*arguments.copy)
    progress = CopyProgress()
    if sys.stderr.isatty():
        say(f"Connecting to {host_label(arguments.connection)} …")
    prompts = prompts_for(headless=False)
    connected = asyncio.Event()  # while it is not set, a login may ask for something on the terminal
    async with AsyncExitStack() as stack:
        hosts = await stack.enter_async_context(AsyncExitStack())

        async def open_transport(again: bool) -> Transport:
            connected.clear()
            _write("")
            await hosts.aclose()
            transport, _ = await hosts.enter_async_context(connect_host(arguments, prompts, environ))
            connected.set()
            return transport

        await stack.enter_async_context(_shown(connected, order, progress))
        await copy(order, open_transport, progress)
    for path, why in progress.skipped:
        say(f"ccb: left out: {HostText(spelled(path)).path}: {why}")
    files = f"{progress.copied} files, " if progress.copied != 1 else ""
    say(f"copied {order.shown} ({files}{size_of(progress.done)})")
    return ExitCode.AGENT_FAILED if progress.skipped else ExitCode.OK


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
