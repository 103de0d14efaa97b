"""`ccb --plain`: connect, show the session as lines, and say at the end how to come back."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ccb import __version__
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.wire.control_protocol import new_uuid

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode, code_of
from ..commands.session_table import choose_session
from ..config.log import state_dir
from ..connect.connect_session import connect_session
from ..connect.dialer import SpareTransport
from ..files.copying import Transfers
from ..files.fetched_files import FetchedFiles, PrivateFolder
from ..slash_commands.session_api import arguments_for, info_of, laptop_of
from ..terminal.console import print_line
from ..terminal.input_machine import typed_line
from ..terminal.signals import Interrupts
from ..terminal.stdio import read_pieces
from ..terminal.terminal_prompts import prompts_for
from .line_repl import LineRepl

if TYPE_CHECKING:
    from ccb.tunnel.transports.login_prompts import Prompts

    from ..connect.host_sessions import HostSessions
    from ..connect.session_rows import SessionRow


_MAX_LINE = 1 << 20


class FirstLoginPrompts:
    """Asks the person during the first login only: a later one could take a prompt for a password."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts

    def over(self) -> None:
        self._prompts = NobodyToAsk(self._prompts.memory)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._prompts, name)


async def run_plain(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> int:
    prompts = FirstLoginPrompts(prompts_for(headless=False))
    lines = _lines(arguments.prompt)
    async with SpareTransport() as kept:
        while True:
            code, following = await _one_session(arguments, prompts, lines, kept, environ)
            if following is None:
                return code
            arguments = following


async def _one_session(
    arguments: Arguments,
    prompts: FirstLoginPrompts,
    lines: AsyncIterator[str],
    kept: SpareTransport,
    environ: Mapping[str, str],
) -> tuple[int, Arguments | None]:
    """Connect, and show a session. Return the exit code, and the arguments for the session that comes next."""
    session_id, asking = arguments.session.session_id or new_uuid(), cast("Prompts", prompts)
    async with (
        connect_session(
            arguments, session_id=session_id, prompts=asking, choose=_choose, environ=environ, kept=kept
        ) as connected,
        Transfers(connected.files.lend) as transfers,
        FetchedFiles(transfers, PrivateFolder(state_dir(environ) / "opened"), connected.open_with, environ) as fetched,
    ):
        prompts.over()
        hello = connected.session.hello
        info = info_of(connected)
        laptop = laptop_of(connected, transfers, fetched)
        repl = LineRepl(connected.session, info, _write, laptop, environ)
        _write(f"ccb {__version__}, {info.place}. Type a prompt; /help says more.")
        for warning in connected.warnings:
            _write(f"ccb: warning: {warning}")
        code = await _until_left(repl, lines, waits=not sys.stdin.isatty())
        following = repl.following
        stays = f"ccb: this session stays on the host: {connected.resume}"
        for line in repl.farewell() if following is None else [stays]:
            _write(line)
        await connected.session.close(done=True)
    return code, arguments_for(following, arguments, hello.cwd.raw) if following is not None else None


async def _choose(_: HostSessions, rows: Sequence[SessionRow]) -> str | None:
    return await choose_session(rows)


async def _until_left(repl: LineRepl, lines: AsyncIterator[str], *, waits: bool) -> int:
    running = asyncio.create_task(repl.run(lines, waits=waits), name="lines")
    try:
        while True:
            with Interrupts() as signals:
                waited: tuple[asyncio.Future[Any], ...] = (running, signals.first)
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    lost = running.result()
                    return code_of(lost) if lost is not None else ExitCode.OK
                code = signals.first.result()
                if code is not ExitCode.INTERRUPTED or not await repl.interrupted():
                    return int(code)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _lines(first: str | None) -> AsyncIterator[str]:
    if first:
        yield first
    decoder, rest, by_hand = codecs.getincrementaldecoder("utf-8")("replace"), "", sys.stdin.isatty()
    async for piece in read_pieces(sys.stdin.fileno()):
        *whole, rest = (rest + decoder.decode(piece)).split("\n")
        for line in whole:
            yield typed_line(line.rstrip("\r")) if by_hand else line.rstrip("\r")
        rest = rest[:_MAX_LINE]
    if rest.strip():
        yield rest


def _write(text: str) -> None:
    with suppress(OSError):  # the window may be closed
        print_line(text)
