"""Do one headless run on a session of the API. The session on the host ends with it, and every wait at the end has a
limit."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ccb.tunnel.errors import AuthFailed, CcbError, ConnectionLost, HostKeyError, UsageError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire import client_requests as requests
from ccb.tunnel.wire.control_protocol import Request, RequestFailed, new_uuid
from ccb.tunnel.wire.messages import as_blocks

from ..api.session import Session
from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode, error_lines
from ..command_line.transport_choice import host_command
from ..connect.host_connection import HostConnection
from ..terminal.console import say, stdout_failure
from ..terminal.signals import Interrupts
from ..terminal.stdio import Writer
from ..terminal.terminal_prompts import prompts_for
from .output_formats import RetryReports, TranscriptMirror, add_unsent, make_output, report
from .own_answers import OwnAnswers
from .stdin_input import EarlyInput, InputPump, read_prompt
from .turn_results import GOODBYE_S, TurnReports, TurnResults, state_flags

if TYPE_CHECKING:
    from ..connect.connect_session import OpenSession
    from ..session.remote_session import RemoteSession
    from ..session.session_client import Json
    from .event_printer import EventPrinter

log = logging.getLogger(__name__)
HURRIED_GOODBYE_S = 1.0  # seconds for the host to end the session if the person pressed Ctrl+C twice
STDIN, STDOUT = 0, 1
_REASONS = {
    ExitCode.INTERRUPTED: "Interrupted (SIGINT)",
    ExitCode.TERMINATED: "Terminated (SIGTERM)",
    ExitCode.HANGUP: "Hung up (SIGHUP, or nobody reads stdout)",
}


async def go_back_to(session: RemoteSession, message: str, drops: str = "") -> None:
    """Let the conversation go on after a message. `drops` is the only turn that may be left out. Raise UsageError."""
    try:
        rewind = requests.ConversationRewind(after=message, drops=drops)
        await session.request(Request(requests.REWIND_CONVERSATION, rewind))
    except RequestFailed as refused:
        if str(refused).startswith(requests.DROPS_MORE):
            do = "Resume without --resume-session-at, or name the last message of the turn that stays."
            raise UsageError(str(refused), do=do) from None
        raise UsageError(
            f"the session cannot go on from that message: {HostText(str(refused))}",
            do="Give --resume-session-at the uuid of a message that this session has printed.",
        ) from None


async def restored_files(session: RemoteSession, prompt: str) -> str:
    try:
        done = await session.request(Request(requests.REWIND_FILES, requests.FileRewind(prompt)))
    except RequestFailed as refused:
        raise UsageError(
            f"the files were not put back: {HostText(str(refused))}",
            do="Give --rewind-files the uuid of a prompt of this session; /rewind in the REPL lists the prompts.",
        ) from None
    listed = as_blocks(done.get("failed"))
    failed = {HostText(str(each.get("path"))).path: HostText(str(each.get("why"))) for each in listed}
    names = [HostText(str(each)).path for each in done.get("filesChanged") or ()]
    put_back = ", ".join(name for name in names if name not in failed)
    said = f"put back: {put_back}" if put_back else "no file was changed since"
    return "; ".join([said, *(f"{path} was not restored: {why}" for path, why in failed.items())])


def with_boot_fields(arguments: Arguments, request: Json) -> tuple[Arguments, Json]:
    """Return the arguments with what the request says, and what the client is told that ccb has done with it."""
    sdk, permissions = arguments.sdk, arguments.permissions
    confirmed: Json = {}
    servers, settings, denied, plugins = map(request.get, ("mcpServers", "settings", "disallowedTools", "plugins"))
    if isinstance(servers, dict):
        sdk = replace(sdk, mcp_config=(*sdk.mcp_config, json.dumps({"mcpServers": servers})))
        confirmed["mcp_servers_applied"] = True
    if isinstance(settings, dict | str):
        sdk = replace(sdk, settings=settings if isinstance(settings, str) else json.dumps(settings))
        confirmed["settings_applied"] = True
    if isinstance(denied, list):
        permissions = replace(permissions, disallowed_tools=(*permissions.disallowed_tools, *map(str, denied)))
        confirmed["disallowed_tools_applied"] = True
    if isinstance(plugins, list):
        paths = [str(each["path"]) for each in as_blocks(plugins) if each.get("path")]
        sdk = replace(sdk, plugin_dirs=(*sdk.plugin_dirs, *paths))
        confirmed["plugins_applied"] = len(paths) == len(plugins)
    return replace(arguments, sdk=sdk, permissions=permissions), confirmed


async def run_headless(arguments: Arguments) -> ExitCode:
    """Do the run, and return its exit code. If an exception leaves this function it is a bug in ccb."""
    writer = Writer(STDOUT)
    run = HeadlessRun(arguments, writer)
    bug: Exception | None = None
    with Interrupts(last=True) as interrupts:
        work = asyncio.create_task(run.work(), name="headless run")
        await _first_of(work, interrupts.first, writer.broken)
        if work.done():
            try:
                code = work.result()
            except CcbError as error:
                code = await run.report_failure(error)
            except Exception as error:  # noqa: BLE001 - raised below, once the reader of stdout has its result
                bug, code = error, ExitCode.INTERNAL
                await run.results.fail([f"a bug in ccb: {type(error).__name__}"], reason="internal_error")
        else:
            code = interrupts.first.result() if interrupts.first.done() else stdout_failure(writer.broken.result())
            interrupting = asyncio.create_task(run.interrupt(), name="interrupt")
            await _first_of(interrupting, interrupts.second)
            if not interrupting.done():
                await cancelled(interrupting)
                await run.stop_at_once()
            await cancelled(interrupting, work)
            await run.results.fail([_REASONS.get(code, "stdout cannot be written")], reason="aborted")
        await run.results.output.finish()
        await _drain(writer, interrupts)
        if writer.broken.done() and code is ExitCode.OK:  # the formats text and json are written only now
            code = stdout_failure(writer.broken.result())
    if bug is not None:
        raise bug
    return code


async def _drain(writer: Writer, interrupts: Interrupts) -> None:
    draining = asyncio.create_task(writer.drain(), name="drain")
    if interrupts.second.done():
        await asyncio.wait({draining}, timeout=HURRIED_GOODBYE_S)
    else:
        await _first_of(draining, interrupts.second if interrupts.first.done() else interrupts.first)
    await cancelled(draining)


class HeadlessRun:
    """One run: `work` does all of it, the other methods end it early."""

    def __init__(self, arguments: Arguments, writer: Writer) -> None:
        streams = arguments.streams
        session_id = arguments.session.session_id or new_uuid()
        self._arguments = replace(arguments, session=replace(arguments.session, session_id=session_id))
        self._has_stdin_messages = streams.input_format == "stream-json"
        output = make_output(streams.output_format, writer, verbose=streams.verbose, terminal=os.isatty(STDOUT))
        flags = state_flags(os.environ) if self._has_stdin_messages else None
        self.results = TurnResults(
            TurnReports(output, flags, self._has_stdin_messages, session_id),
            output,
            RetryReports(quiet=streams.output_format == "stream-json"),
            print_all=self._has_stdin_messages,
            print_failures=streams.output_format != "text",  # stdout has only answers then
        )
        self._mirror = TranscriptMirror(output, os.environ, Path.cwd()) if arguments.sdk.mirror else None
        self._own = OwnAnswers()
        self._printer: EventPrinter | None = None  # while the session is open
        self._stdin = EarlyInput(STDIN, output.message)

    async def work(self) -> ExitCode:
        if self._arguments.session.rewind_files:
            return await self._work("")
        if not self._has_stdin_messages:
            return await self._work(await read_prompt(self._arguments.prompt, STDIN, say=report))
        async with self._stdin:
            if self._arguments.sdk.await_initialize:
                request = await self._stdin.first_request()
                self._arguments, confirmed = with_boot_fields(self._arguments, request)
                self._stdin.confirmed = self._own.confirmed = confirmed
            return await self._work("")

    async def _work(self, prompt: str) -> ExitCode:
        async with HostConnection(self._arguments, prompts_for(headless=True)) as host:
            session = Session(host, self._arguments, None, self.results.pending)
            await session.open()
            try:
                await self._drive(session, prompt)
            finally:
                await session.abandon()
        return self.results.exit_code

    async def _drive(self, session: Session, prompt: str) -> None:
        self._attached(session)
        from .event_printer import EventPrinter  # the worker is still being loaded

        hides = self._stdin.answered if self._has_stdin_messages else None
        printer = self._printer = EventPrinter(session, self.results, self._own, self._mirror, hides)
        pump = InputPump(printer, session.opened.projects.keep, partial(self._run_command, session.opened))
        feeding = asyncio.create_task(self._feed(printer, pump, prompt), name="input")
        printing = asyncio.create_task(printer.print_all(), name="output")
        stops = True
        try:
            await asyncio.wait({feeding, printing}, return_when=asyncio.FIRST_COMPLETED)
            if not printing.done():
                await feeding
            await printing
            stops = False
        except ConnectionLost as lost:
            stops = False  # the session goes on without this run
            if session.remote.reading:
                report(f"{lost.what}; this ccb ends when it has read the answer that it asked for")
                await session.remote.read_out()
            add_unsent(lost, session.remote)
            raise
        except (AuthFailed, HostKeyError) as error:
            add_unsent(error, session.remote)
            raise
        finally:
            try:
                task = asyncio.current_task()
                if task is not None and not task.cancelling():  # who cancels this stops the session
                    await self._leave(session, stops=stops)
            finally:
                await cancelled(feeding, printing)
                await printer.close()
                self._printer = None

    async def interrupt(self) -> None:
        """Stop the running turn, wait for its result, and stop the session, each for a limited time."""
        from ..session.session_client import LinkState

        printer = self._printer
        if printer is None:
            return
        session = printer.session
        if session.remote.state is LinkState.FENCED:  # the session belongs to another client now
            if session.remote.reading:
                report("left in the middle of the answer; the client that drives now asks for it again")
            return
        printer.questions.ended = True
        if self.results.pending:
            self.results.printed.clear()
            with suppress(TimeoutError, CcbError, RequestFailed):
                async with asyncio.timeout(GOODBYE_S):
                    await session.remote.interrupt()
                    await self.results.printed.wait()
        await self._leave(session, stops=True)

    async def stop_at_once(self) -> None:
        """Stop the session without waiting for a result. Otherwise it would go on waiting on the host."""
        from ..session.session_client import LinkState

        session = self._printer.session if self._printer is not None else None
        if session is None or session.remote.state is LinkState.FENCED or session.remote.ended_on_host:
            return
        if not await session.remote.stopped(HURRIED_GOODBYE_S):
            command = host_command(session.opened.arguments, "stop", session.id)
            report(f"the host did not confirm in time that the session is stopped; stop it with `{command}`")

    async def report_failure(self, error: CcbError) -> ExitCode:
        log.info("the run failed", exc_info=error)
        say(*error_lines(error))
        lines = [line for line in (error.what, error.evidence, error.do) if line]
        reason = "link_lost" if isinstance(error, ConnectionLost) else "startup_failed"
        await self.results.fail(lines, reason=reason)
        return error.exit_code

    def _attached(self, session: Session) -> None:
        for warning in session.warnings:
            report(warning)
        hello = session.remote.hello
        if hello.storage != "disk":
            for note in hello.notes:
                report(f"on the host: {note}")
        self.results.reports.session_id = hello.session
        if self._mirror is not None:
            self._mirror.begin(hello.session)
        self._stdin.connected.set()

    async def _feed(self, printer: EventPrinter, pump: InputPump, prompt: str) -> None:
        choice, session = self._arguments.session, printer.session.remote
        if choice.rewind_files:
            printer.questions.ended = True
            report(await restored_files(session, choice.rewind_files))
            await printer.stop_session()
            return
        if choice.resume_at:
            await go_back_to(session, choice.resume_at, choice.drops_turn or "")
        if not self._has_stdin_messages and await pump.send_prompt(prompt):
            await printer.stop_early()
            return
        if self._has_stdin_messages:
            await pump.send_messages(self._stdin.messages())
        await printer.stop_session()

    async def _run_command(self, connected: OpenSession, prompt: str) -> str | None:
        from ..slash_commands.session_api import info_of, laptop_of
        from .command_results import command_result

        return await command_result(prompt, connected.session, info_of(connected), laptop_of(connected))

    async def _leave(self, session: Session, *, stops: bool) -> None:
        from ..session.session_client import LinkState

        await session.leave(stay=not stops)
        if stops and session.remote.state not in (LinkState.CLOSED, LinkState.LOST):
            report(f"the host was not reached, so the session is not stopped. {session.come_back}")


async def _first_of(*futures: asyncio.Future[ExitCode] | asyncio.Future[None] | asyncio.Future[OSError]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
