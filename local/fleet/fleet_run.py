"""Run the tasks of a fleet, on hosts or where the engine of a site starts them: each is a headless session, and many
run at once in this process. At a site, the credential stays here: a task is driven while its job runs."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from ccb.tunnel.errors import CcbError, ConnectionLost, ExitCode, NoSuchSession
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.transports.login_prompts import Prompts, tell_once
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.messages import CUT_OFF, AssistantMessage, ResultMessage

from ..api.events import Answer, ToolCall, answer_of, events_of
from ..api.session import Session
from ..api.session_reader import Line, Taken
from ..command_line.arguments import Arguments, FleetOptions
from ..command_line.exit_codes import evidence_lines
from ..command_line.parser import parse_arguments
from ..command_line.transport_choice import host_label
from ..config.policy import ledger_folder
from ..connect.host_connection import HostConnection
from ..connect.startup import loaded_once
from ..ledger.budgets import LedgerThread
from ..ledger.call_ledger import CallLedger
from ..session.session_client import LaptopNotice, LinkChange, LinkState, PromptDelivery
from .manifest import FleetFolder, FleetTask, Manifest, TaskResult, task_result
from .site_engine import SiteEngine, SiteState, SiteTask

log = logging.getLogger(__name__)
T = TypeVar("T")

_FILES_OF_A_TASK = 12
_MOST_CUTS = 6  # of the turns of one attempt
_MAX_TEXT = 1_000_000
_SOON_S, _LATE_S = 1.0, 10.0  # between two questions to the site: after news, and after a long time without any
_MOST_JOBS = 3  # for one task: afterwards it has failed
_MOST_TRIES = 5  # to reach a task in one run of its job
_MAX_SAID = 300  # characters
_FORGOTTEN = SiteTask(SiteState.ENDED, "it does not know the task any more")
_HERE = SiteTask(SiteState.RUNNING, "")
WAITS, WORKS = "waits", "works"
_GO_ON = (
    "The machine on which you worked was taken away in the middle of your turn, or you were stopped. You go on now, "
    "perhaps on another machine. Processes that you had started are gone, files are as they were. Look at what is done "
    "already, and complete the task."
)


def task_arguments(manifest: Manifest, task: FleetTask) -> Arguments:
    """Return the command line of a task. Its budgets are those of the fleet. Raises UsageError."""
    arguments = parse_arguments(["ssh", task.place, *manifest.options, *task.options, "--print"])
    session = replace(arguments.session, session_id=task.session, begun=True, in_job=bool(manifest.engine))
    shares = FleetOptions(account=manifest.id, total_usd=manifest.budget_usd, host_usd=manifest.host_usd)
    return replace(arguments, session=session, fleet=shares)


def allow_files(jobs: int) -> None:
    """Each session has its connection, its ledger and its socket open: raise the limit as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS has a limit of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(256 + jobs * _FILES_OF_A_TASK, hard)), hard))


@dataclass(eq=False)
class TaskRow:
    """A task, what it does now, and since when (monotonic seconds); at its end what came of it. `attempt` numbers its
    prompts. A site says what is `there`; in this run, the task has been `alive` there, it was `lost` with so many jobs,
    and was not reached in so many `tries`."""

    task: FleetTask
    result: TaskResult | None = None
    doing: str = WAITS
    since: float = field(default_factory=time.monotonic)
    attempt: int = 1
    driving: asyncio.Task[None] | None = None
    there: SiteTask = _HERE
    alive: bool = False
    lost: int = 0
    tries: int = 0

    @property
    def runs(self) -> bool:
        return self.result is None and not self.doing.startswith(WAITS)


def rows_of(folder: FleetFolder, manifest: Manifest, doing: str = WAITS) -> list[TaskRow]:
    """Raises ConfigError."""
    results = folder.results()
    return [TaskRow(each, results.get(each.index), doing) for each in manifest.tasks]


class FleetRun:
    """Runs tasks of one fleet, here or with `engine`. `ended` is called with each row that has ended. `usd` are the
    dollars that the fleet has spent. When this run ends, turns that it has begun here end, too; tasks of a site go on,
    and their model calls wait for the next run."""

    def __init__(
        self,
        folder: FleetFolder,
        manifest: Manifest,
        prompts: Prompts,
        environ: Mapping[str, str],
        ended: Callable[[TaskRow], None],
        engine: SiteEngine | None = None,
    ) -> None:
        self.manifest = manifest
        self.rows = rows_of(folder, manifest)
        self.usd = 0.0
        self.began = time.monotonic()
        self._folder, self._prompts, self._ended, self._engine = folder, prompts, ended, engine
        self._stopping: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._hosts: dict[object, tuple[HostConnection, list[object]]] = {}
        self._thread = LedgerThread(ledger_folder(environ))
        self._connect = partial(HostConnection, environ=environ, load=loaded_once(), ledger=self._thread, members={})
        self._handed_in: list[TaskRow] = []  # that the site has not taken yet

    @property
    def stopping(self) -> bool:
        return self._stopping.done()

    @property
    def used_up(self) -> bool:
        return self.manifest.budget_usd is not None and self.usd >= self.manifest.budget_usd

    def stop(self) -> None:
        """Begin no more tasks, and end those that run: their turns are interrupted, their sessions stay."""
        if not self.stopping:
            self._stopping.set_result(None)

    async def run(self, *, failed: bool) -> None:
        """Run what has not ended, and with `failed` also what has failed. Raises CcbError of the ledger."""
        chosen = [row for row in self.rows if row.result is None or (failed and not row.result.ok)]
        for row in chosen:
            before, row.result = row.result, None
            row.attempt = 1 if before is None else before.attempt + before.answered
        fleet, sessions = self.manifest.id, [row.task.session for row in self.rows]
        try:
            await self._ledger(lambda ledger: ledger.join(fleet, sessions))
            self.usd = (await self._ledger(lambda ledger: ledger.spent(fleet=fleet))).usd
            await self._run_all(chosen)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await self._thread.aclose()

    async def _ledger(self, do: Callable[[CallLedger], T]) -> T:
        return await asyncio.wrap_future(self._thread.submit(lambda: do(self._thread.reservations().ledger)))

    async def _run_all(self, rows: Sequence[TaskRow]) -> None:
        """Drive tasks that run, as many as may be at once. Without a site, all do."""
        self._folder.stop_mark.unlink(missing_ok=True)
        engine, left, pause_s = self._engine, rows, _SOON_S
        late_s = _SOON_S if engine is None else _LATE_S
        async with asyncio.TaskGroup() as group:
            while left and not self.stopping and (not self.used_up or any(row.driving for row in left)):
                before = [row.there for row in left]
                if (engine is None or await self._look(engine, left)) and not self.used_up:
                    left = [row for row in left if row.result is None]  # some have ended while the site was asked
                    await self._follow(group, left)
                news = {self._stopping, *(row.driving for row in left if row.driving is not None)}
                found, _ = await asyncio.wait(news, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                changed = found or before != [row.there for row in left]
                pause_s = _SOON_S if changed else min(pause_s * 1.5, late_s)
                if self._folder.stop_mark.exists():
                    self.stop()
                left = [row for row in left if row.result is None]
        lost = any(row.lost >= _MOST_JOBS for row in rows)
        if engine is not None and rows and not self.stopping and not lost:  # else what jobs have printed may say why
            await engine.cancel(len(self.manifest.submissions))

    async def _look(self, engine: SiteEngine, rows: Sequence[TaskRow]) -> bool:
        """Ask the site what its tasks do. Return whether it has answered."""
        try:
            found = await engine.tasks(self.manifest.places)
        except CcbError as error:
            tell_once(self._prompts, f"{error.what}; it is asked again")
            return False
        for row in rows:
            row.there = found.get(row.task.index, _FORGOTTEN)
        waiting = [row.there.said for row in rows if row.there.state is SiteState.WAITING and row.there.said]
        if waiting and not any(row.driving for row in rows):
            tell_once(self._prompts, f"Tasks wait at the site: {HostText(waiting[0][:_MAX_SAID])}")
        return True

    async def _follow(self, group: asyncio.TaskGroup, rows: Sequence[TaskRow]) -> None:
        """Begin to drive tasks that run. What the site has ended or forgotten is handed in again, twice; what somebody
        has cancelled meanwhile has failed."""
        idle, lost = [row for row in rows if row.driving is None], list[TaskRow]()
        room = self.manifest.jobs - (len(rows) - len(idle))
        for row in idle:
            state = row.there.state
            if state in (SiteState.WAITING, SiteState.RUNNING):
                row.alive = True
                if state is SiteState.RUNNING and room > 0:
                    row.driving, room = group.create_task(self._drive(row), name=f"drive {row.task.index}"), room - 1
            elif not self._handed_in:
                row.lost += 1
                was_cancelled = state is SiteState.CANCELLED and row.alive
                if row.lost < _MOST_JOBS and not was_cancelled:
                    lost.append(row)
                    continue
                why = "the job was cancelled" if was_cancelled else f"{_MOST_JOBS} jobs have ended without an answer"
                why = f"{why} at the site: {row.there.said}"
                await self._end(row, _unanswered(row, ExitCode.LINK_LOST, why))
        if lost:
            self.manifest = self._folder.hand_in(self.manifest, [row.task.index for row in lost])
            self._handed_in = lost
        if self._engine is not None and self._handed_in:
            try:
                await self._engine.submit(len(self.manifest.submissions), [row.task for row in self._handed_in])
                self._handed_in = []
            except CcbError as error:
                tell_once(self._prompts, f"{error.what}; {len(self._handed_in)} tasks are submitted later")

    async def _drive(self, row: TaskRow) -> None:
        """Make the next attempt of a task, at a site for as long as one run of its job lasts. When this run is stopped,
        a turn is interrupted, and its answer is left to the next run."""
        there, row.since, row.doing = row.there, time.monotonic(), "connects"
        work = asyncio.create_task(self._attempt(row), name=f"task {row.task.index}")
        try:
            await asyncio.wait({work, self._stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancelled(work)
        row.doing = WAITS
        self.usd = (await self._ledger(lambda ledger: ledger.spent(fleet=self.manifest.id))).usd
        result = _unanswered(row, ExitCode.INTERRUPTED) if work.cancelled() else work.result()
        is_same_run = not self.stopping and row.there == there
        row.tries += is_same_run
        if self._engine is None or result.answered or row.tries >= _MOST_TRIES:
            await self._end(row, result)
        elif is_same_run:  # its node or the way there may be back soon
            tell_once(self._prompts, f"task {row.task.index}: {''.join(result.errors[:1])}; it is tried again")
            await asyncio.wait({self._stopping}, timeout=_SOON_S * 2**row.tries)
        row.driving = None

    async def _end(self, row: TaskRow, result: TaskResult) -> None:
        """Keep a result. What was interrupted goes on as if it had not been asked, and so does what cannot be
        written."""
        usd = (await self._ledger(lambda ledger: ledger.spent(session=row.task.session))).usd
        took = round(time.monotonic() - row.since, 1)
        row.result = result = result.model_copy(update={"usd": usd, "duration_s": took})
        if result.exit_code != ExitCode.INTERRUPTED:
            try:
                self._folder.write_result(result)
            except CcbError as error:
                tell_once(self._prompts, f"{error}; results stay on their hosts: `ccb fleet collect` gets them")
        self._ended(row)

    async def _attempt(self, row: TaskRow) -> TaskResult:
        """A turn that was cut off, there or in an earlier run, is gone on with."""
        index, text = row.task.index, row.task.prompt
        try:
            for _ in range(_MOST_CUTS):
                answer = await self._session(row, text)
                if not _is_cut_off(answer):
                    break
                row.attempt, text = row.attempt + 1, _GO_ON
        except CcbError as error:
            log.info("task %d has failed", index, exc_info=error)
            return _unanswered(row, error.exit_code, error.what, *evidence_lines(error), error.do)
        except Exception as error:  # one task must not end the others
            log.exception("a bug in task %d", index)
            return _unanswered(row, ExitCode.INTERNAL, f"a bug in ccb: {type(error).__name__}")
        return result_of(answer, index=index, attempt=row.attempt)

    async def _session(self, row: TaskRow, text: str) -> Answer[Any]:
        """Return the answer of an attempt. The host takes its prompt once. Raises CcbError."""
        arguments, answer = task_arguments(self.manifest, row.task), None
        async with self._connected(row, arguments) as host:
            session = await Session(host, arguments, tail=0).open()
            row.doing = WORKS
            try:
                answer = await self._answer(row, session, text)
                return answer
            finally:
                try:
                    await session.leave(stay=self._engine is not None and (answer is None or _is_cut_off(answer)))
                finally:
                    await session.abandon()

    async def _answer(self, row: TaskRow, session: Session, text: str) -> Answer[Any]:
        answer, input_id, reader = None, row.task.input_id(row.attempt), session.reader
        session.pending.sent(input_id)
        await session.remote.prompt(text, uuid=input_id, how=PromptDelivery(waits=True))
        if session.remote.hello.storage == "disk" and self._engine is None:
            await session.remote.stop(finish=True)  # if this machine dies, the session ends with its turn
        async for found in session.found():
            match found:
                case LaptopNotice():
                    tell_once(self._prompts, found.text)
                case Taken() | LinkChange(state=LinkState.CONNECTED):
                    row.doing = WORKS
                case LinkChange(state=LinkState.RECONNECTING):
                    row.doing = "reconnects"
                case Line(public=AssistantMessage() as said):
                    for event in events_of(said):
                        row.doing = event.name if isinstance(event, ToolCall) else WORKS
                case Line(public=ResultMessage() as result, ours=True):
                    answer = answer_of(result, reader.turn_cost, denied_unasked=reader.denied_unasked)
            if answer is not None and not session.pending and not session.pending.more_to_come:
                break
        if answer is None:
            raise ConnectionLost("the host ended the session before the answer was complete")
        return answer

    @asynccontextmanager
    async def _connected(self, row: TaskRow, arguments: Arguments) -> AsyncIterator[HostConnection]:
        """Yield the connection to a host, which its tasks share for as long as one of them runs; of a task of a site,
        the one into the run of its job."""
        key: object = host_label(arguments.connection), replace(arguments.connection, target=None)
        reach = None
        if self._engine is not None:
            key, reach = row, partial(_reach, self._engine, row, row.there.run)
        if key not in self._hosts:
            connection = self._connect(arguments, self._prompts, reach=reach)
            self._hosts[key] = await connection.__aenter__(), []
        connection, users = self._hosts[key]
        users.append(row)
        try:
            yield connection
        finally:
            users.pop()
            if not users:
                del self._hosts[key]
                await connection.__aexit__()


async def _reach(engine: SiteEngine, row: TaskRow, run: str) -> Transport:
    if row.there.run != run:
        raise NoSuchSession("the site has ended this run of the task", do="It goes on in the next.")
    return await engine.reach(run)


def _unanswered(row: TaskRow, code: ExitCode, *errors: str) -> TaskResult:
    return task_result(index=row.task.index, attempt=row.attempt, exit_code=code, errors=errors)


def _is_cut_off(answer: Answer[Any]) -> bool:
    """Return whether a turn has ended with its worker, or was interrupted."""
    errors, reason = answer.raw.get("errors"), str(answer.raw.get("terminal_reason"))
    return not answer.ok and (reason.startswith("aborted") or (isinstance(errors, list) and CUT_OFF in errors))


def result_of(answer: Answer[Any], *, index: int, attempt: int) -> TaskResult:
    """Return what to keep of an answer, which may be of any form: a host that lies must not end the other tasks."""
    facts = {"index": index, "attempt": attempt, "answered": True, "turns": answer.turns}
    errors = answer.raw.get("errors")
    try:
        said = [*map(str, errors)] if isinstance(errors, list) and not answer.ok else []
        text = answer.text[:_MAX_TEXT]
        return task_result(**facts, exit_code=answer.exit_code, errors=said, text=text, data=answer.data)
    except (ValueError, RecursionError) as error:
        why = f"the answer of the host cannot be kept: {type(error).__name__}"
        return task_result(**facts, exit_code=ExitCode.AGENT_FAILED, errors=[why])
