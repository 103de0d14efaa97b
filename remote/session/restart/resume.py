"""Resume a session from its journal: no tool runs again, and everything that an earlier worker left open is closed."""

from __future__ import annotations

from collections.abc import Collection

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.records import DamagedRecord, TurnEndRecord

from ...agent.agent import Agent
from ...agent.history.histories import AgentHistories
from ...journal.summary import KnownDirectory, WorkerMark
from ..broker import OpenRequests
from ..clients.launches import Launches
from ..inputs import Inputs
from ..log import SessionLog, Watchers
from ..notices import JournalledTasks
from ..session import Session, SessionParts
from .recovery import Recovered, UnfinishedPrompts

_MAX_REPORTS = 20  # of damaged lines
_CUT_OFF = "The worker was stopped in the middle of this turn. What its tools had done until then stays done."
_DOUBTFUL = (
    "This prompt may have been answered or not: the session's journal on the host is damaged. It was not run again."
)


@dataclass(frozen=True)
class Restored:
    """The state of a session, read from its journal. Next, the caller makes the agent, which closes the open tool
    calls, and calls `take_up`."""

    parts: SessionParts
    recovered: Recovered
    prompts: UnfinishedPrompts
    histories: AgentHistories
    tasks: JournalledTasks
    mark: str
    """The mark of the processes that the last worker may have left running."""
    reported: frozenset[str]
    """The input ids of the prompts whose loss is reported now."""
    directory: str
    """The directory of the session that the model knows, "" for none."""


def restore(log: SessionLog, watchers: Watchers, surviving: Collection[str] = ()) -> Restored:
    """Read the journal, report its damage, and withdraw the requests that no task waits for any more. `surviving` names
    the kinds of requests that stay open until they are asked again."""
    inputs, requests, histories = Inputs(), OpenRequests(surviving), AgentHistories(log.journal.rewound)
    recovered, prompts = Recovered(requests), UnfinishedPrompts(inputs)
    worker, tasks, known = WorkerMark(), JournalledTasks(), KnownDirectory()
    log.read(recovered, prompts, requests, histories, worker, tasks, known)
    launches = Launches(recovered.options)
    for options in recovered.launches:
        launches.keep(options)
    parts = SessionParts.make(log, watchers, launches, inputs, requests)
    reported = _report_damage(log, recovered, prompts)
    parts.broker.resume()
    return Restored(parts, recovered, prompts, histories, tasks, worker.mark, reported, known.path)


def take_up(restored: Restored, agent: Agent) -> Session:
    """Return the session that continues with `agent`. Write a result for an interrupted turn and for each prompt that
    may have been lost, and queue the prompts that no turn had taken."""
    session = Session(restored.parts, agent)
    log, recovered, prompts = session.log, restored.recovered, restored.prompts
    agent.config.permissions.apply(recovered.updates)
    agent.config.context.todos.restore(log.snapshot.todos)
    agent.config.permissions.mode_before_plan = recovered.mode_before_plan
    if agent.hooks is not None:
        agent.hooks.ran |= recovered.hooks_run
    if recovered.result_due:
        session.turns.fail([_CUT_OFF])
        prompts.answered()
    for _ in range(len(restored.reported & prompts.unanswered.keys())):  # the sender of each prompt waits for a result
        session.turns.fail([_DOUBTFUL])
    if recovered.turn_open:
        log.emit(TurnEndRecord())
    for input_id, line in prompts.waiting.items():
        session.turns.put(input_id, line, echo=session.options.replay_user_messages)
    for notice, agent_id in prompts.notices.values():
        session.turns.notify(notice, agent_id)
    session.watch_tasks(restored.tasks)
    log.journal.flush_soon()
    return session


def _report_damage(log: SessionLog, recovered: Recovered, prompts: UnfinishedPrompts) -> frozenset[str]:
    """Report the damage that no worker has reported before. Return the input ids of the doubtful prompts in the
    report."""
    reports = [damage for damage in log.journal.damaged if damage not in recovered.damage]
    if len(reports) > _MAX_REPORTS:
        reports[_MAX_REPORTS:] = [f"{len(reports) - _MAX_REPORTS} more damaged lines were passed over"]
    doubtful = set()
    for input_id, text in prompts.doubtful.items():
        report = f"a prompt may have been answered or not, and was not run again: {text}"
        if report not in recovered.damage:
            reports.append(report)
            doubtful.add(input_id)
    for report in reports:
        log.emit(DamagedRecord(report))
    return frozenset(doubtful)
