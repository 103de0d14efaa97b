"""`ccb cp`: copy a file or a folder between this machine and a host, with the progress on stderr."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack

from ccb.tunnel.plain_text import HostText
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.spelling import spelled

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..command_line.transport_choice import host_label
from ..connect.connect_session import connect_host
from ..files.copying import CopyOrder, CopyProgress, copy, progress_line, size_of
from ..terminal.console import say, write_over
from ..terminal.signals import run_command
from ..terminal.terminal_prompts import prompts_for

_EVERY_S = 0.2


class _Line:
    """The line about the copy on the terminal. It is hidden while a login may ask for something there."""

    hidden = False

    def hide(self, hidden: bool) -> None:
        self.hidden = hidden
        self.write("")

    def write(self, text: str) -> None:
        if sys.stderr.isatty():
            write_over(text)


async def copy_files(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> ExitCode:
    """Copy, and return AGENT_FAILED if something had to be left out. Raises CcbError."""
    assert arguments.copy is not None
    order = CopyOrder(arguments.copy.upload, arguments.copy.local, arguments.copy.remote)
    progress, line = CopyProgress(), _Line()
    if sys.stderr.isatty():
        say(f"Connecting to {host_label(arguments.connection)} …")
    prompts = prompts_for(headless=False)
    async with AsyncExitStack() as stack:
        hosts = await stack.enter_async_context(AsyncExitStack())

        async def open_transport(again: bool) -> Transport:
            line.hide(True)
            await hosts.aclose()
            transport, _ = await hosts.enter_async_context(connect_host(arguments, prompts, environ))
            line.hide(False)
            return transport

        await stack.enter_async_context(_shown(line, order, progress))
        await copy(order, open_transport, progress)
    for path, why in progress.skipped:
        say(f"ccb: left out: {HostText(spelled(path)).path}: {why}")
    say(_summary(order, progress))
    return ExitCode.AGENT_FAILED if progress.skipped else ExitCode.OK


def _summary(order: CopyOrder, progress: CopyProgress) -> str:
    files = f"{progress.copied} files, " if progress.copied != 1 else ""
    return f"copied {order.shown} ({files}{size_of(progress.done)})"


@contextlib.asynccontextmanager
async def _shown(line: _Line, order: CopyOrder, progress: CopyProgress) -> AsyncIterator[None]:
    """On a terminal, keep one line about the copy up to date."""
    if not sys.stderr.isatty():
        yield
        return

    async def show() -> None:
        while True:
            if not line.hidden:
                width = shutil.get_terminal_size((80, 24)).columns - 1
                line.write(progress_line(order.shown, progress, width))
            await asyncio.sleep(_EVERY_S)

    showing = asyncio.create_task(show(), name="progress of a copy")
    try:
        yield
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
        line.write("")


def run_cp(arguments: Arguments) -> ExitCode:
    """Run the command in an event loop of its own."""
    return run_command(copy_files(arguments))
