"""`ccb export`, `import` and `move`: a session in a file, from a file, and on another machine.

The laptop leads both hosts through the steps of `remote/session_store/session_moves.py`, and carries the archive. Each
step can be repeated, so the same command, given again, ends a move that was cut off.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field

from ccb.tunnel.errors import CcbError, ConnectionLost, CopyFailed, ProtocolError, UsageError
from ccb.tunnel.link.worker_refusals import SESSION_ID
from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.wire.session_archive import MAX_BYTES, TREE, BadArchive, Manifest, check_archive

from ..command_line.arguments import Arguments, ConnectionOptions, SessionChoice
from ..command_line.exit_codes import ExitCode
from ..command_line.parser import arguments_at
from ..command_line.transport_choice import host_command, host_label, needs_host, resume_command
from ..config.log import state_dir
from ..connect.session_rows import Count, HostWords, ReportRow, reports, row_of
from ..files.copying import CopyOrder, size_of
from ..terminal.console import print_line, say
from ..terminal.stdio import in_thread
from ..terminal.terminal_prompts import read_line
from .cp import CopyingHost
from .host_commands import session_meant

_SHORT = 8
Row = TypeVar("Row", bound=ReportRow)


class FoundRow(ReportRow):
    session: Annotated[str, Field(pattern=SESSION_ID)]
    moved: bool = False


class JournalRow(ReportRow):
    bytes: Count
    sha256: Annotated[str, Field(max_length=64)]


class ExportedRow(ReportRow):
    path: HostWords
    journal: JournalRow


class PlaceRow(ReportRow):
    path: HostWords
    directory: HostWords


class _Host(CopyingHost):
    """One end of a move."""

    async def step(self, name: str, kind: str, shape: type[Row], **params: object) -> Row:
        """Let the host carry out a step, and return its report. Over a lost connection it is asked once more."""
        try:
            return await self._step(name, kind, shape, params, again=False)
        except ConnectionLost:
            return await self._step(name, kind, shape, params, again=True)

    async def _step(self, name: str, kind: str, shape: type[Row], params: Mapping[str, object], *, again: bool) -> Row:
        transport, bundle = await self.reached(again)
        found: Row | None = None
        async with aclosing(reports(transport, bundle, {"command": "move", "step": name, **params})) as answer:
            async for report in answer:
                if report.kind == kind:
                    found = row_of(shape, report.body, transport.name)
        if found is None:
            raise ProtocolError(f"{transport.name} did not say what became of the move", do="Try it again.")
        return found

    async def meant(self, arguments: Arguments) -> str:
        return await session_meant(arguments, *await self.reached())


async def run_export(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Write a session into a file. It stays where it is."""
    async with _Host(arguments, environ) as host:
        given = await host.meant(arguments)
        files = arguments.archive.with_files
        found = await host.step("look", "session", FoundRow, session=given)
        exported = await host.step("export", "exported", ExportedRow, session=found.session, files=files)
        path = Path(arguments.archive.output or f"ccb-{found.session[:_SHORT]}.tar")
        if await in_thread(path.is_dir):
            path /= f"ccb-{found.session[:_SHORT]}.tar"
        progress = await host.copy(CopyOrder(False, str(path), exported.path.raw, private=True, most=MAX_BYTES))
        await in_thread(lambda: _checked(path, host_label(arguments.connection)))
        await host.step("sent", "sent", ReportRow, session=found.session)
    print_line(f"exported {found.session[:_SHORT]} to {one_line(str(path))} ({size_of(progress.done)})")
    return ExitCode.OK


async def run_import(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Make the session in a file one of the host."""
    path = await in_thread(Path(arguments.rest[0]).expanduser)
    with tempfile.TemporaryDirectory(dir=_own_folder(environ)) as folder:
        if arguments.archive.source == "claude":
            from ..files.claude_transcript import convert

            source, path = path, Path(folder) / "session.tar"
            for line in await in_thread(lambda: convert(source, path)):
                say(f"ccb: {line}")
        manifest, has_tree = await in_thread(lambda: _checked(path, one_line(arguments.rest[0])))
        files = has_tree and await _takes_files(arguments)
        async with _Host(arguments, environ) as there:
            place = await there.step(
                "expect", "expected", PlaceRow, session=manifest.session, directory=arguments.directory, files=files
            )
            await _bring(there, path, manifest.session, place, files=files)
            await there.step("settle", "settled", ReportRow, session=manifest.session)
    _tell("imported", arguments, manifest.session, place.directory.raw)
    return ExitCode.OK


async def run_move(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Take a session to another machine. Whatever cuts it off, one of the two owns the session."""
    there = await moved(arguments, environ)
    assert there.session.resume is not None and there.directory is not None
    _tell("moved", there, there.session.resume, there.directory)
    return ExitCode.OK


async def moved(arguments: Arguments, environ: Mapping[str, str]) -> Arguments:
    """Move a session, and return the arguments that go on with it there. Raise CcbError."""
    target = arguments_at(arguments, arguments.rest[0])
    label = f"{host_label(target.connection, platform.node())}:{target.directory}"
    if arguments.connection.local:
        arguments = replace(arguments, connection=ConnectionOptions(local=True))
    async with _Host(arguments, environ) as here, _Host(target, environ) as there:
        given = await here.meant(arguments)
        found = await here.step("look", "session", FoundRow, session=given, to=label)
        session, directory = found.session, HostText(str(target.directory))
        if found.moved:
            say(f"ccb: {session[:_SHORT]} has left for {one_line(label)} earlier; ending that move")
        else:
            files = await _takes_files(arguments)
            place = await there.step(
                "expect", "expected", PlaceRow, session=session, directory=target.directory, files=files, again=True
            )
            directory = place.directory
            exported = await here.step("export", "exported", ExportedRow, session=session, files=files, to=label)
            with tempfile.TemporaryDirectory(dir=_own_folder(environ)) as folder:
                path = Path(folder) / "session.tar"
                await here.copy(CopyOrder(False, str(path), exported.path.raw, private=True, most=MAX_BYTES))
                await in_thread(lambda: _checked(path, host_label(arguments.connection)))
                await _bring(there, path, session, place, files=files)
            journal = exported.journal.model_dump()
            await here.step("leave", "left", ReportRow, session=session, to=label, journal=journal)
        await there.step("settle", "settled", ReportRow, session=session)
    return replace(target, session=replace(target.session, resume=session), directory=directory.raw, rest=())


async def move_along(arguments: Arguments, session: str, place: str, environ: Mapping[str, str]) -> Arguments:
    """Move the session that the person has just left with /move. Return the arguments that go on with it there."""
    connection = arguments.connection
    if connection.target is None and needs_host(connection):
        connection = replace(connection, local=True)
    choice = SessionChoice(resume=session, reconnect_timeout=arguments.session.reconnect_timeout)
    leaving = replace(arguments, command="move", connection=connection, session=choice, prompt=None, rest=(place,))
    try:
        there = await moved(leaving, environ)
        ports = replace(there.ports, reverses=())  # the person let another host reach ports of this machine
        return replace(there, command="ssh", ports=ports)
    except CcbError:
        say("ccb: the move is not over. End it, or go on where the session was:")
        say(f"  {host_command(leaving, 'move', session, place)}", f"  {resume_command(arguments, session)}")
        raise


async def _bring(there: _Host, path: Path, session: str, place: PlaceRow, *, files: bool) -> None:
    await there.copy(CopyOrder(True, str(path), place.path.raw))
    await there.step("receive", "received", ReportRow, session=session, directory=place.directory.raw, files=files)


async def _takes_files(arguments: Arguments) -> bool:
    """Return whether the files of the directory go along. Raise UsageError if nobody says so."""
    options = arguments.archive
    if options.with_files or options.no_files:
        return options.with_files
    if not sys.stdin.isatty():
        raise UsageError("nobody says whether the files go along", do="Add --with-files or --no-files.")
    question = "Take the files along, with what is not committed? What git ignores stays. (yes/no) "
    answer = ((await read_line(question)) or "").lower()
    if answer not in ("y", "yes", "n", "no"):
        raise UsageError("nothing was moved", do="Answer yes or no.")
    return answer in ("y", "yes")


def _checked(path: Path, where: str) -> tuple[Manifest, bool]:
    """Return what an archive is of, and whether it has files. Raise CcbError."""
    try:
        with path.open("rb") as file:
            manifest, names = check_archive(file)
    except BadArchive as error:
        do = "Export the session again."
        raise CopyFailed(f"what came from {where} cannot be taken as a session: {error}", do=do) from None
    except OSError as error:
        raise UsageError(f"{one_line(str(path))}: {error.strerror}", do="Check the path.") from None
    return manifest, TREE in names


def _own_folder(environ: Mapping[str, str]) -> Path:
    folder = state_dir(environ)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _tell(what: str, target: Arguments, session: str, directory: str) -> None:
    where = f"{host_label(target.connection)}:{HostText(directory).path}"
    print_line(f"{what} {session[:_SHORT]} to {where}. Go on with it there:")
    print_line(f"  {resume_command(replace(target, directory=None), session, directory=directory)}")
