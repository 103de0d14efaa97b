"""Run the tasks of a fleet, on hosts or where the engine of a site starts them: each is a headless session, and many
run at once in this process. At a site, the credential stays here: a task is driven while its job runs."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import Counter
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
from ccb.tunnel.wire.control_protocol import RequestFailed
from ccb.tunnel.wire.messages import CUT_OFF, AssistantMessage, ResultMessage

from ..api.events import Answer, ToolCall, answer_of, events_of
from ..api.session import Session
from ..api.session_reader import Found, Line, Taken
from ..command_line.arguments import Arguments, FleetOptions
from ..command_line.exit_codes import evidence_lines
from ..command_line.parser import parse_arguments
from ..config.policy import ledger_folder
from ..connect.host_connection import HostConnection
from ..connect.startup import loaded_once
from ..ledger.budgets import LedgerThread
from ..ledger.call_ledger import CallLedger
from ..session.remote_session import RemoteSession
from ..session.session_client import LaptopNotice, LinkChange, LinkState, PromptDelivery
from .manifest import FleetFolder, FleetTask, Manifest, TaskResult, task_result
from .site_engine import SiteEngine, SiteState, SiteTask

log = logging.getLogger(__name__)
T = TypeVar("T")

_GOODBYE_S = 5.0  # seconds for the host to end a turn that is interrupted
_FILES_OF_A_TASK = 12
_MOST_CUTS = 6  # of the turns of one attempt
_MAX_TEXT = 1_000_000
_SOON_S, _LATE_S = 1.0, 10.0  # between two questions to the site: after news, and after a long time without any
_MOST_JOBS = 3  # for one task: afterwards it has failed
_MOST_TRIES = 5  # to reach a task in one run of its job
_MAX_SAID = 300  # characters
_FORGOTTEN = SiteTask(SiteState.ENDED, "it does not know the task any more")
WAITS, CONNECTS, WORKS, RECONNECTS = "waits", "connects", "works", "reconnects"
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
    wanted = 256 + jobs * _FILES_OF_A_TASK
    if 0 <= soft < wanted:
        with suppress(OSError, ValueError):  # macOS has a limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard >= 0 else wanted, hard))


@dataclass(eq=False)
class TaskRow:
    """A task, what it does now, and since when (monotonic seconds); at its end what came of it."""

    task: FleetTask
    result: TaskResult | None = None
    doing: str = WAITS
    since: float = field(default_factory=time.monotonic)
    session: RemoteSession | None = None

    @property
    def runs(self) -> bool:
        return self.result is None and not self.doing.startswith(WAITS)

    def note(self, found: Found) -> None:
        """Note what the task does by what its session has told."""
        match found:
            case Taken() | LinkChange(state=LinkState.CONNECTED):
                self.doing = WORKS
            case LinkChange(state=LinkState.RECONNECTING):
                self.doing = RECONNECTS
            case Line(public=AssistantMessage() as said):
                for event in events_of(said):
                    self.doing = event.name if isinstance(event, ToolCall) else WORKS


def rows_of(folder: FleetFolder, manifest: Manifest, doing: str = WAITS) -> list[TaskRow]:
    """Raises ConfigError."""
    results = folder.results()
    return [TaskRow(each, results.get(each.index), doing) for each in manifest.tasks]


class FleetRun:
    """Runs tasks of one fleet, here or with `engine`. `ended` is called with each row that has ended. `over` says why
    no more tasks begin, `usd` are the dollars that the fleet has spent. When this run ends, turns that it has begun
    here end, too; tasks of a site go on, and their model calls wait for the next run."""

    def __init__(
        self,
        folder: FleetFolder,
        manifest: Manifest,
        prompts: Prompts,
        environ: Mapping[str, str],
        ended: Callable[[TaskRow], None] = lambda _: None,
        engine: SiteEngine | None = None,
    ) -> None:
        self.manifest = manifest
        self.rows = rows_of(folder, manifest)
        self.over, self.usd = "", 0.0
        self.began = time.monotonic()
        self._folder, self._prompts, self._environ = folder, prompts, environ
        self._ended, self._engine = ended, engine
        self._stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hosts: dict[object, tuple[HostConnection, list[object]]] = {}
        self._thread = LedgerThread(ledger_folder(environ))
        self._connect = partial(HostConnection, environ=environ, load=loaded_once(), ledger=self._thread, members={})
        self._hurries = False
        self._attempts: dict[int, int] = {}  # the number of the next one of each task; all these are by its index
        self._site: Mapping[int, SiteTask] = {}
        self._driven: dict[int, asyncio.Task[None]] = {}
        self._was_alive: set[int] = set()  # in this run
        self._lost, self._tries = Counter[int](), Counter[int]()
        self._handed_in: list[TaskRow] = []  # that the site has not taken yet

    @property
    def stopping(self) -> bool:
        return self._stopping.done()

    def stop(self, *, hurry: bool = False) -> None:
        """Begin no more tasks, and end those that run: their turns are interrupted, their sessions stay. With `hurry`
        the hosts are not waited for."""
        self._hurries = hurry
        if not self.stopping:
            self._stopping.set_result(None)

    async def run(self, *, failed: bool) -> None:
        """Run what has not ended, and with `failed` also what has failed. Raises CcbError of the ledger."""
        chosen = [row for row in self.rows if row.result is None or (failed and not row.result.ok)]
        for row in chosen:
            before, row.result, row.doing = row.result, None, WAITS
            self._attempts[row.task.index] = 1 if before is None else before.attempt + before.answered
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
        left, pause_s, engine = list(rows), _SOON_S, self._engine
        late_s = _SOON_S if engine is None else _LATE_S
        if engine is None:
            self._site = {row.task.index: SiteTask(SiteState.RUNNING, "") for row in rows}
        async with asyncio.TaskGroup() as group:
            try:
                while left and not self.stopping and not self._is_used_up():
                    before = self._site
                    if engine is None or await self._look(engine):
                        await self._follow(engine, group, left)
                    news = {self._stopping, *self._driven.values()}
                    found, _ = await asyncio.wait(news, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                    pause_s = _SOON_S if found or self._site != before else min(pause_s * 1.5, late_s)
                    self._driven = {index: work for index, work in self._driven.items() if not work.done()}
                    if self._folder.stop_mark.exists():
                        self.stop()
                    left = [row for row in left if row.result is None]
            finally:
                if engine is not None:
                    await cancelled(*self._driven.values())
        lost = any(times >= _MOST_JOBS for times in self._lost.values())
        if engine is not None and rows and not self.stopping and not lost:  # else what jobs have printed may say why
            await engine.cancel(len(self.manifest.submissions))

    async def _look(self, engine: SiteEngine) -> bool:
        """Ask the site what its tasks do. Return whether it has answered."""
        try:
            self._site = await engine.tasks(self.manifest.places)
        except CcbError as error:
            tell_once(self._prompts, f"{error.what}; it is asked again")
            return False
        waiting = [each.said for each in self._site.values() if each.state is SiteState.WAITING and each.said]
        if waiting and not self._driven:
            tell_once(self._prompts, f"Tasks wait at the site: {HostText(waiting[0][:_MAX_SAID])}")
        return True

    async def _follow(self, engine: SiteEngine | None, group: asyncio.TaskGroup, rows: Sequence[TaskRow]) -> None:
        """Begin to drive tasks that run. What the site has ended or forgotten is handed in again, twice; what somebody
        has cancelled meanwhile has failed."""
        lost: list[TaskRow] = []
        for row in rows:
            index = row.task.index
            task = self._site.get(index, _FORGOTTEN)
            if row.result is not None or index in self._driven:
                continue
            if task.state in (SiteState.WAITING, SiteState.RUNNING):
                self._was_alive.add(index)
                if task.state is SiteState.RUNNING and len(self._driven) < self.manifest.jobs:
                    self._driven[index] = group.create_task(self._drive(row, task), name=f"task {index} of a site")
            elif not self._handed_in:
                self._lost[index] += 1
                was_cancelled = task.state is SiteState.CANCELLED and index in self._was_alive
                if self._lost[index] < _MOST_JOBS and not was_cancelled:
                    lost.append(row)
                    continue
                why = "the job was cancelled" if was_cancelled else f"{_MOST_JOBS} jobs have ended without an answer"
                await self._end(row, self._unanswered(row, ExitCode.LINK_LOST, f"{why} at the site: {task.said}"))
        if lost:
            self.manifest = self._folder.hand_in(self.manifest, [row.task.index for row in lost])
            self._handed_in = lost
        if engine is None or not self._handed_in:
            return
        try:
            await engine.submit(len(self.manifest.submissions), [row.task for row in self._handed_in])
            self._handed_in = []
        except CcbError as error:
            tell_once(self._prompts, f"{error.what}; {len(self._handed_in)} tasks are submitted later")

    async def _drive(self, row: TaskRow, task: SiteTask) -> None:
        """Drive a task to its end, at a site for as long as one run of its job lasts."""
        index = row.task.index
        result = await self._result(row)
        row.doing = WAITS
        is_same_run = not self.stopping and self._site.get(index) == task
        self._tries[index] += is_same_run
        if self._engine is None or result.answered or (is_same_run and self._tries[index] >= _MOST_TRIES):
            await self._end(row, result)
        elif is_same_run:  # its node or the way there may be back soon
            tell_once(self._prompts, f"task {index}: {''.join(result.errors[:1])}; it is tried again")
            await asyncio.wait({self._stopping}, timeout=_SOON_S * 2 ** self._tries[index])

    def _is_used_up(self) -> bool:
        if self.manifest.budget_usd is not None and self.usd >= self.manifest.budget_usd:
            self.over = "the budget of the fleet is used up"
        return bool(self.over)

    async def _result(self, row: TaskRow) -> TaskResult:
        """Make the next attempt of a task. When the run is stopped, what is not connected yet ends at once, and a turn
        is interrupted."""
        task = row.task
        row.since, row.doing = time.monotonic(), CONNECTS
        work = asyncio.create_task(self._attempt(row), name=f"task {task.index}")
        try:
            ends: tuple[asyncio.Future[Any], ...] = work, self._stopping
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and row.session is not None and self._engine is None:
                with suppress(TimeoutError, CcbError, RequestFailed):
                    async with asyncio.timeout(_GOODBYE_S):
                        await row.session.interrupt()
                        await asyncio.wait({work})
        finally:
            await cancelled(work)
        self.usd = (await self._ledger(lambda ledger: ledger.spent(fleet=self.manifest.id))).usd
        return self._unanswered(row, ExitCode.INTERRUPTED) if work.cancelled() else work.result()

    def _unanswered(self, row: TaskRow, code: ExitCode, *errors: str) -> TaskResult:
        index = row.task.index
        return task_result(index=index, attempt=self._attempts[index], exit_code=code, errors=errors)

    async def _end(self, row: TaskRow, result: TaskResult) -> None:
        """Keep a result. What was interrupted without an answer of the host goes on as if it had not been asked, and
        so does what cannot be written."""
        usd = (await self._ledger(lambda ledger: ledger.spent(session=row.task.session))).usd
        took = round(time.monotonic() - row.since, 1)
        row.result = result = result.model_copy(update={"usd": usd, "duration_s": took})
        if result.answered or result.exit_code != ExitCode.INTERRUPTED:
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
                if self.stopping or not _is_cut_off(answer):
                    break
                self._attempts[index], text = self._attempts[index] + 1, _GO_ON
        except CcbError as error:
            log.info("task %d has failed", index, exc_info=error)
            return self._unanswered(row, error.exit_code, error.what, *evidence_lines(error), error.do)
        except Exception as error:  # one task must not end the others
            log.exception("a bug in task %d", index)
            return self._unanswered(row, ExitCode.INTERNAL, f"a bug in ccb: {type(error).__name__}")
        code = ExitCode.INTERRUPTED if self.stopping and not answer.ok else answer.exit_code
        return result_of(answer, code, index=index, attempt=self._attempts[index])

    async def _session(self, row: TaskRow, text: str) -> Answer[Any]:
        """Return the answer of an attempt. The host takes its prompt once. Raises CcbError."""
        arguments, answer = task_arguments(self.manifest, row.task), None
        async with self._connected(row, arguments) as host:
            session = await Session(host, arguments, tail=0).open()
            row.session, row.doing = session.remote, WORKS
            try:
                answer = await self._answer(row, session, text)
                return answer
            finally:
                row.session = None
                try:
                    if not self._hurries:
                        await session.leave(stay=self._engine is not None and (answer is None or _is_cut_off(answer)))
                finally:
                    await session.abandon()

    async def _answer(self, row: TaskRow, session: Session, text: str) -> Answer[Any]:
        answer, input_id = None, row.task.input_id(self._attempts[row.task.index])
        session.pending.sent(input_id)
        await session.remote.prompt(text, uuid=input_id, how=PromptDelivery(waits=True))
        if session.remote.hello.storage == "disk" and self._engine is None:
            await session.remote.stop(finish=True)  # if this machine dies, the session ends with its turn
        async for found in session.found():
            row.note(found)
            if isinstance(found, LaptopNotice):
                tell_once(self._prompts, found.text)
            if isinstance(found, Line) and found.ours and isinstance(found.public, ResultMessage):
                reader = session.reader
                answer = answer_of(found.public, reader.turn_cost, denied_unasked=reader.denied_unasked)
            if answer is not None and not session.pending and not session.pending.more_to_come:
                break
        if answer is None:
            raise ConnectionLost("the host ended the session before the answer was complete")
        return answer

    @asynccontextmanager
    async def _connected(self, row: TaskRow, arguments: Arguments) -> AsyncIterator[HostConnection]:
        """Yield the connection to a host, which its tasks share for as long as one of them runs; of a task of a site,
        the one into the run of its job."""
        target, reach, key = arguments.connection.target, None, object()
        if self._engine is not None:
            reach = partial(self._reach, self._engine, row.task, self._site[row.task.index].run)
        else:
            key = replace(arguments.connection, target=replace(target, path=None) if target is not None else None)
        if key not in self._hosts:
            connection = self._connect(arguments, self._prompts, reach=reach)
            self._hosts[key] = await connection.__aenter__(), []
        connection, users = self._hosts[key]
        users.append(arguments)
        try:
            yield connection
        finally:
            users.pop()
            if not users:
                del self._hosts[key]
                await connection.__aexit__()

    async def _reach(self, engine: SiteEngine, task: FleetTask, run: str) -> Transport:
        if (now := self._site.get(task.index)) is None or now.run != run:
            raise NoSuchSession("the site has ended this run of the task", do="It goes on in the next.")
        return await engine.reach(task, run)


def _is_cut_off(answer: Answer[Any]) -> bool:
    """Return whether a turn has ended with its worker, or was interrupted."""
    errors, reason = answer.raw.get("errors"), str(answer.raw.get("terminal_reason"))
    return not answer.ok and (reason.startswith("aborted") or (isinstance(errors, list) and CUT_OFF in errors))


def result_of(answer: Answer[Any], code: ExitCode, *, index: int, attempt: int) -> TaskResult:
    """Return what to keep of an answer, which may be of any form: a host that lies must not end the other tasks."""
    facts = {"index": index, "attempt": attempt, "answered": True, "exit_code": code, "turns": answer.turns}
    errors = answer.raw.get("errors")
    try:
        said = [*map(str, errors)] if isinstance(errors, list) and not answer.ok else []
        return task_result(**facts, errors=said, text=answer.text[:_MAX_TEXT], data=answer.data)
    except (ValueError, RecursionError) as error:
        why = f"the answer of the host cannot be kept: {type(error).__name__}"
        return task_result(**{**facts, "exit_code": ExitCode.AGENT_FAILED}, errors=[why])
