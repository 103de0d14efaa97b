"""A run without a person: prompt or NDJSON in, exactly one result for each turn out, one exit code.

The session on the host ends with the run. Every wait at the end is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress

from ccb.tunnel.errors import AuthFailed, CcbError, ConnectionLost, HostKeyError
from ccb.tunnel.plain_text import one_line

from ..command_line.error_text import code_of, error_text
from ..command_line.exit_codes import ExitCode
from ..command_line.model import Arguments
from ..command_line.resume_hint import host_command
from ..connect.connect import connect_session
from ..login.prompts import prompts_for
from ..session.client import ControlError, Json, LinkChange, LinkState, Skipped
from ..session.session import Session
from ..terminal.signals import Interrupts
from ..terminal.stdio import Writer
from ..terminal.stdout import failure_code
from .output import make_output
from .partial_events import PartialEvents
from .results import exit_code, local_result
from .stdin import read_messages, read_prompt

log = logging.getLogger(__name__)

LAST_WORD = 5.0
"""Seconds for the host at the end of a run: its goodbye, or the result after an interrupt."""

LAST_MOMENT = 1.0
"""Seconds for its goodbye when the person is in a hurry."""

STDIN, STDOUT = 0, 1


async def run_headless(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> ExitCode:
    """Do the run; errors are told on stderr and in the result. An exception is a bug, and has had its result too."""
    writer = Writer(STDOUT)
    run = _Run(arguments, writer, environ)
    bug: Exception | None = None
    with Interrupts(last=True) as interrupts:
        work = asyncio.create_task(run.work(), name="headless run")
        await _first_of(work, interrupts.first, writer.broken)
        if work.done():
            try:
                code = work.result()
            except CcbError as error:
                code = await _tell_failure(run, error)
            except Exception as error:  # noqa: BLE001 - raised below, once the reader of stdout has its result
                bug, code = error, ExitCode.INTERNAL
                await run.fail([f"a bug in ccb: {type(error).__name__}"], reason="internal_error")
        else:
            code = interrupts.first.result() if interrupts.first.done() else failure_code(writer.broken.result())
            interrupting = asyncio.create_task(run.interrupt(), name="interrupt")
            await _first_of(interrupting, interrupts.second)
            if not interrupting.done():
                await _cancelled(interrupting)
                await run.stop_at_once()
            await _cancelled(interrupting, work)
            await run.fail([_REASONS.get(code, "stdout cannot be written")], reason="aborted")
        await run.finish()
        draining = asyncio.create_task(writer.drain(), name="drain")
        if interrupts.second.done():
            await asyncio.wait({draining}, timeout=LAST_MOMENT)
        else:
            await _first_of(draining, interrupts.second if interrupts.first.done() else interrupts.first)
        await _cancelled(draining)
        if writer.broken.done() and code is ExitCode.OK:  # text and json are written only now
            code = failure_code(writer.broken.result())
        writer.close()
    if bug is not None:
        raise bug
    return code


_REASONS = {
    ExitCode.INTERRUPTED: "Interrupted (SIGINT)",
    ExitCode.TERMINATED: "Terminated (SIGTERM)",
    ExitCode.HANGUP: "Hung up (SIGHUP, or nobody reads stdout)",
}


async def _tell_failure(run: _Run, error: CcbError) -> ExitCode:
    log.info("the run failed", exc_info=error)
    sys.stderr.write(error_text(error))
    lines = [line for line in (error.what, error.evidence, error.do) if line]
    await run.fail(lines, reason="link_lost" if isinstance(error, ConnectionLost) else "startup_failed")
    return code_of(error)


class _Turns:
    """Which prompts still wait for their result. Several prompts may share a turn."""

    def __init__(self) -> None:
        self.foreign = False  # a turn that this run knows nothing of is under way
        self._waiting: dict[str, None] = {}
        self._seen: set[str] = set()
        self._running: set[str] = set()

    @property
    def open(self) -> bool:
        return bool(self._waiting)

    def asked(self, input_id: str) -> None:
        """A prompt was sent; one that was sent before starts no turn."""
        if input_id not in self._seen:
            self._seen.add(input_id)
            self._waiting[input_id] = None

    def started(self, fact: Json) -> None:
        """The journal says which inputs a turn took."""
        items = fact.get("items")
        for item in items if isinstance(items, list) else []:
            if isinstance(item, dict):
                self._running.add(str(item.get("input")))

    def answered(self) -> bool:
        """A result came; whether it is one of this run."""
        if self.foreign and not self._running:
            self.foreign = False
            return False
        self.foreign = False
        taken = [input_id for input_id in self._waiting if input_id in self._running] or list(self._waiting)[:1]
        for input_id in taken:
            del self._waiting[input_id]
        self._running.clear()
        return True


class _Run:
    """The state of one run: which turns are open, what has been denied, how far stdin is."""

    def __init__(self, arguments: Arguments, writer: Writer, environ: Mapping[str, str]) -> None:
        self._arguments = arguments
        self._environ = environ
        self._output = make_output(arguments.streams.output_format, writer, verbose=arguments.streams.verbose)
        self._session_id = arguments.session.session_id or str(uuid.uuid4())
        self._started = time.monotonic()
        self._session: Session | None = None
        self._streaming = arguments.streams.input_format == "stream-json"
        self._turns = _Turns()
        self._partial = PartialEvents()
        self._quiet = arguments.streams.output_format != "stream-json"  # a reader of the stream sees the tries there
        self._retried = False
        self._asked: set[str] = set()
        self._last: Json | None = None
        self._denied_unasked = False
        self._input_ended = False
        self._result_came = asyncio.Event()
        self._finished = False
        self._resume = ""
        self._goodbye = ""
        self._looking_back: asyncio.Task[None] | None = None

    async def work(self) -> ExitCode:
        """The whole run. Raises CcbError."""
        prompt = "" if self._streaming else await read_prompt(self._arguments.prompt, STDIN, say=_say)
        async with connect_session(
            self._arguments, session_id=self._session_id, prompts=prompts_for(headless=True), environ=self._environ
        ) as connected:
            for warning in connected.warnings:
                sys.stderr.write(f"ccb: {warning}\n")
            session = self._session = connected.session
            if session.hello.storage != "disk":
                for note in session.hello.notes:
                    sys.stderr.write(f"ccb: on the host: {one_line(note)}\n")
            self._session_id, self._resume = session.hello.session, connected.resume
            self._turns.foreign = session.hello.state != "idle"
            feeding = asyncio.create_task(
                self._feed(connected.session) if self._streaming else self._ask(connected.session, prompt), name="input"
            )
            listening = asyncio.create_task(self._listen(connected.session), name="output")
            try:
                await asyncio.wait({feeding, listening}, return_when=asyncio.FIRST_COMPLETED)
                if not listening.done():
                    await feeding
                await listening
            except ConnectionLost as lost:  # the session goes on without this run
                if session.reading:
                    sys.stderr.write(f"ccb: {lost.what}; this ccb ends when it has read the answer that it asked for\n")
                    await session.read_out()
                _add_unsent(lost, session)
                raise
            except Exception as error:
                await self._stop(connected.session)
                if isinstance(error, AuthFailed | HostKeyError):
                    _add_unsent(error, session)
                raise
            finally:
                await _cancelled(feeding, listening, *([self._looking_back] if self._looking_back else []))
                self._session = None
        return self._code()

    async def interrupt(self) -> None:
        """Stop the running turn, wait for its result, stop the session; all bounded."""
        session = self._session
        if session is None:
            return
        if session.state is LinkState.FENCED:  # the session is somebody else's
            if session.reading:
                sys.stderr.write("ccb: left in the middle of the answer; who drives now asks for it again\n")
            return
        self._input_ended = True
        if self._turns.open:
            self._result_came.clear()
            with suppress(TimeoutError, CcbError, ControlError):
                async with asyncio.timeout(LAST_WORD):
                    await session.interrupt()
                    await self._result_came.wait()
        await self._stop(session)

    async def stop_at_once(self) -> None:
        """The person does not want to wait for the result, but a session that nobody stops would wait on the host."""
        session = self._session
        if session is None or session.state is LinkState.FENCED or session.ended_there:
            return
        with suppress(TimeoutError, CcbError):
            async with asyncio.timeout(LAST_MOMENT):
                await session.stop()
                await session.ended()
        if not session.ended_there:
            command = host_command(self._arguments, "stop", self._session_id)
            sys.stderr.write(f"ccb: the host has not said in time that the session is stopped: `{command}`\n")

    async def _stop(self, session: Session) -> None:
        with suppress(TimeoutError, CcbError):
            async with asyncio.timeout(LAST_WORD):
                await session.stop()
                await session.ended()
                return
        if not session.ended_there:
            sys.stderr.write(f"ccb: the host was not reached, so the session is not stopped. {self._come_back()}\n")

    async def fail(self, errors: list[str], *, reason: str) -> None:
        """Give the turn that is open, or never began, a result; a turn has only one."""
        if self._finished or (self._last is not None and not self._turns.open):
            return
        if self._arguments.streams.output_format == "text":
            return  # a text reader wants answers; what failed is on stderr
        duration = round((time.monotonic() - self._started) * 1000)
        self._turns.answered()
        await self._deliver(local_result(self._session_id, errors, reason=reason, duration_ms=duration))

    async def finish(self) -> None:
        """Nothing comes any more on stdout."""
        if not self._finished:
            self._finished = True
            await self._output.finish()

    async def _ask(self, session: Session, prompt: str) -> None:
        self._turns.asked(await session.prompt(prompt))
        self._input_ended = True

    async def _feed(self, session: Session) -> None:
        async for body in read_messages(STDIN):
            if body["type"] == "user":
                self._turns.asked(await session.send(body))
                continue
            if body["type"] == "control_response" and isinstance(body.get("response"), dict):
                self._asked.discard(str(body["response"].get("request_id")))
            await session.send(body)
        self._input_ended = True
        for request_id in list(self._asked):
            await self._refuse(session, request_id)
        await self._stop_after_work(session)

    async def _stop_after_work(self, session: Session) -> None:
        """The last word of this run."""
        if self._looking_back is not None:
            await asyncio.wait({self._looking_back}, timeout=LAST_WORD)
        await session.stop(finish=True)

    async def _refuse(self, session: Session, request_id: str) -> None:
        self._asked.discard(request_id)
        await session.refuse(request_id, "AbortError: Tool permission stream closed before response received")

    async def _listen(self, session: Session) -> None:
        try:
            async with asyncio.timeout(None) as watchdog:
                async for item in session.events():
                    watchdog.reschedule(None)
                    if isinstance(item, LinkChange):
                        self._link_changed(item)
                    elif isinstance(item, Skipped):
                        await self._skipped(session, item)
                    elif item.kind == "progress" and item.body.get("type") != "result":
                        fresh = self._partial.fresh(item.body)
                        if fresh is not None:
                            await self._output.progress(fresh)
                    elif item.kind in ("message", "progress"):
                        await self._message(session, item.body)
                    elif item.kind == "prompt":
                        self._turns.started(item.body)
                    elif item.kind == "damaged":
                        _say_damage(item.body)
                    done = self._input_ended and self._last is not None and not self._turns.open
                    watchdog.reschedule(asyncio.get_running_loop().time() + LAST_WORD if done else None)
        except TimeoutError:
            log.warning("the host did not end the session within %g s after the last result", LAST_WORD)
            await session.stop()
        if self._turns.open:
            logs = host_command(self._arguments, "logs", self._session_id)
            gone = session.hello.storage == "memory"  # with its worker
            raise ConnectionLost(
                "the host ended the session before the answer was complete",
                evidence=self._goodbye,
                do="Start a new one: it was in memory only."
                if gone
                else f"`{logs}` says more. Go on with: {self._resume}",
            )

    def _link_changed(self, change: LinkChange) -> None:
        """Say on stderr when the connection goes and comes. Raises ConnectionLost when somebody else drives now."""
        log.info("link %s: %s", change.state.value, change.reason)
        match change.state:
            case LinkState.RECONNECTING if change.attempt == 1 and change.retry_at is not None:
                sys.stderr.write(f"ccb: {change.reason}; reconnecting\n")
            case LinkState.CONNECTED:
                sys.stderr.write("ccb: connected again\n")
            case LinkState.FENCED:
                raise ConnectionLost(change.reason, do=self._come_back())
            case LinkState.CLOSED:
                self._goodbye = change.reason
            case _:
                pass

    async def _skipped(self, session: Session, skipped: Skipped) -> None:
        """A run that resumes shows nothing of the past but the questions that are still open, and says what is damaged. Until that
        page comes, everything else has to be read, or the page would wait for it."""
        if self._looking_back is None:
            self._looking_back = asyncio.create_task(_look_back(session, skipped.seq + 1), name="earlier damage")
        asks = skipped.body.get("asks")
        for ask in asks if isinstance(asks, list) else []:
            if isinstance(ask, dict):
                await self._message(session, ask)

    def _come_back(self) -> str:
        return f"The session goes on. Come back with: {self._resume}" if self._resume else "Attach again."

    async def _message(self, session: Session, body: Json) -> None:
        kind, subtype = body.get("type"), body.get("subtype")
        if kind == "result":
            await self._result(body)
            if not self._streaming and not self._turns.open:
                await self._stop_after_work(session)
            return
        if kind == "system" and subtype == "permission_denied" and body.get("decision_behavior") == "ask":
            self._denied_unasked = True
        if kind == "system" and subtype == "api_retry" and body.get("attempt") == 1 and self._quiet:
            self._say_retry(body)
        elif kind == "assistant" and not body.get("error"):
            self._retried = False  # the model was reached after all
        await self._output.message(body)
        request = body.get("request")
        if kind == "control_request" and isinstance(request, dict) and request.get("subtype") == "can_use_tool":
            self._asked.add(str(body.get("request_id")))
            if self._input_ended:
                await self._refuse(session, str(body.get("request_id")))
        elif kind == "control_cancel_request":
            self._asked.discard(str(body.get("request_id")))

    def _say_retry(self, body: Json) -> None:
        from ..session.messages import SystemNote, parse_message
        from ..session.retry_text import retry_text

        note = parse_message(body)
        if isinstance(note, SystemNote):
            self._retried = True
            _say(f"{retry_text(note)}; trying again")

    async def _result(self, body: Json) -> None:
        if self._turns.answered() or self._streaming:
            await self._deliver(body)

    async def _deliver(self, body: Json) -> None:
        self._last = body
        if self._retried and self._quiet and body.get("is_error") and body.get("api_error_status") is None:
            _say(
                "the model was not reached; check the network, the proxy and ANTHROPIC_BASE_URL of this machine (`ccb doctor`)"
            )
        self._retried = False
        await self._output.result(body)
        self._result_came.set()

    def _code(self) -> ExitCode:
        if self._last is None:
            return ExitCode.OK
        return exit_code(self._last, denied_unasked=self._denied_unasked)


_LAST_PAGE = 64 * 1024  # bytes of events in which the start of a worker is looked for


async def _look_back(session: Session, before: int) -> None:
    """Say which damage the worker found in the journal when it started for this client: it told it before anybody was there."""
    with suppress(CcbError):
        told: list[Json] = []
        workers = 0
        for record in reversed(await session.earlier(before, _LAST_PAGE)):
            workers += record.kind == "worker"
            if workers > 1 or record.kind in ("input", "turn_start"):  # somebody was there before
                break
            if record.kind == "damaged":
                told.append(record.body)
        for body in reversed(told):
            _say_damage(body)


def _say_damage(body: Json) -> None:
    if body.get("what"):  # without: a record that cannot be read, which the worker that found it has told of
        _say(f"on the host: the session's journal is damaged: {one_line(str(body['what']))}")


def _add_unsent(error: CcbError, session: Session) -> None:
    """What was sent, and nobody knows whether it arrived, belongs to the error."""
    if session.unsent:
        said = f"{session.unsent} input(s) were not confirmed by the host and may be lost."
        error.evidence = f"{error.evidence}\n{said}" if error.evidence else said


def _say(text: str) -> None:
    sys.stderr.write(f"ccb: {text}\n")


async def _first_of(*futures: asyncio.Future[ExitCode] | asyncio.Future[None] | asyncio.Future[OSError]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def _cancelled(*tasks: asyncio.Task[ExitCode] | asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
