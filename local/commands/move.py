"""`ccb export`, `import` and `move`: a session in a file, from a file, and on another machine.

The laptop leads both hosts through the steps of `remote/session_store/session_moves.py`, and carries the archive. Each
step can be repeated, so the same command, given again, ends a move that was cut off.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ccb.tunnel.errors import CcbError, ConnectionLost, CopyFailed, ProtocolError, UsageError
from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.wire.session_archive import MAX_BYTES, TREE, BadArchive, Manifest, check_archive

from ..command_line.arguments import Arguments, ConnectionOptions, SessionChoice
from ..command_line.exit_codes import ExitCode
from ..command_line.parser import arguments_at
from ..command_line.transport_choice import host_command, host_label, needs_host, resume_command
from ..config.policy import check_directory
from ..connect.session_rows import Count, HostWords, ReportRow, SessionId, rows_of
from ..files.copying import CopyOrder, size_of
from ..terminal.console import print_line, say
from ..terminal.stdio import in_thread
from ..terminal.terminal_prompts import read_line
from .cp import CopyingHost
from .host_commands import session_meant

_SHORT = 8


class StepRow(ReportRow):
    """What a step has found or made: `path` is that of an archive, `journal` the size of a journal."""

    session: SessionId = ""
    moved: bool = False
    path: HostWords = HostText("")
    directory: HostWords = HostText("")
    journal: Count = 0


class _Host(CopyingHost):
    """One end of a move. Its steps go through to the node that owns the session; the archive is in the home."""

    async def step(self, name: str, **params: object) -> StepRow:
        """Let the host carry out a step, and return its report. Over a lost connection it is asked once more."""
        try:
            return await self._step(name, params, again=False)
        except ConnectionLost:
            return await self._step(name, params, again=True)

    async def _step(self, name: str, params: Mapping[str, object], *, again: bool) -> StepRow:
        transport, basics = await self.reached(again)
        command = {"command": "move", "step": name, **params}
        found = await rows_of(transport, basics.bundle, command, "done", StepRow, settings=basics.settings)
        if not found:
            raise ProtocolError(f"{transport.name} did not say what became of the move", do="Try it again.")
        return found[0]

    async def fetch(self, path: Path, session: str, **params: object) -> tuple[int, int]:
        """Let the host export a session, and write the archive into `path`. Return the size of the journal, and of the
        archive."""
        exported = await self.step("export", session=session, **params)
        progress = await self.copy(CopyOrder(False, str(path), exported.path.raw, private=True, most=MAX_BYTES))
        await in_thread(lambda: _checked(path, host_label(self._arguments.connection)))
        return exported.journal, progress.done

    async def bring(self, path: Path, session: str, place: StepRow, *, files: bool) -> None:
        """Let the host have a session. Raise PolicyRefused for a directory in which none may work."""
        _, basics = await self.reached()
        check_directory(basics.settings.policy, place.directory.raw)
        await self.copy(CopyOrder(True, str(path), place.path.raw))
        await self.step("receive", session=session, directory=place.directory.raw, files=files)


async def run_export(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Write a session into a file. It stays where it is."""
    async with _Host(arguments, environ) as host:
        given = await session_meant(arguments, *await host.reached())
        session = (await host.step("look", session=given)).session
        path = await in_thread(lambda: _place_of(Path(arguments.host_command.output or "."), session))
        made = path.with_name(f".{path.name}.{session[:_SHORT]}")  # an older file stays if this one is damaged
        try:
            _, size = await host.fetch(made, session, files=arguments.host_command.with_files)
            await in_thread(lambda: made.replace(path))
        finally:
            await in_thread(lambda: made.unlink(missing_ok=True))
        await host.step("sent", session=session)
    print_line(f"exported {session[:_SHORT]} to {one_line(str(path))} ({size_of(size)})")
    return ExitCode.OK


def _place_of(output: Path, session: str) -> Path:
    """Return the file that an export is written to. Raise UsageError."""
    try:
        path = output / f"ccb-{session[:_SHORT]}.tar" if output.is_dir() else output
        if path.exists() and not path.is_file():  # such as /dev/null
            raise UsageError(f"{one_line(str(path))} is no regular file", do="Name another file with --output.")
        return path
    except OSError as error:
        raise UsageError(f"{one_line(str(output))}: {error.strerror}", do="Check the path.") from None


async def run_import(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    """Make the session in a file one of the host."""
    path = await in_thread(Path(arguments.rest[0]).expanduser)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.host_command.source == "claude":
            from ..files.claude_transcript import convert

            source, path = path, Path(folder) / "session.tar"
            for line in await in_thread(lambda: convert(source, path)):
                say(f"ccb: {line}")
        manifest, has_tree = await in_thread(lambda: _checked(path, one_line(arguments.rest[0])))
        files = has_tree and await _takes_files(arguments)
        async with _Host(arguments, environ) as there:
            place = await there.step("expect", session=manifest.session, directory=arguments.directory, files=files)
            await there.bring(path, manifest.session, place, files=files)
            await there.step("settle", session=manifest.session)
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
        given = await session_meant(arguments, *await here.reached())
        found = await here.step("look", session=given, to=label)
        session, directory = found.session, HostText(str(target.directory))
        if found.moved:
            say(f"ccb: {session[:_SHORT]} has left for {one_line(label)} earlier; ending that move")
        else:
            files = await _takes_files(arguments)
            place = await there.step("expect", session=session, directory=target.directory, files=files, again=True)
            directory = place.directory
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "session.tar"
                journal, _ = await here.fetch(path, session, files=files, to=label)
                await there.bring(path, session, place, files=files)
            await here.step("leave", session=session, to=label, journal=journal)
        await there.step("settle", session=session)
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


async def _takes_files(arguments: Arguments) -> bool:
    """Return whether the files of the directory go along. Raise UsageError if nobody says so."""
    options = arguments.host_command
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


def _tell(what: str, target: Arguments, session: str, directory: str) -> None:
    where = f"{host_label(target.connection)}:{HostText(directory).path}"
    print_line(f"{what} {session[:_SHORT]} to {where}. Go on with it there:")
    print_line(f"  {resume_command(replace(target, directory=None), session, directory=directory)}")
