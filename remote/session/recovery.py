"""Go on after a restart."""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import replace
from typing import Callable

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire.client_requests import CHANGE_RULES
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, RequestRefused, answer_in
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import MAIN_AGENT, PRIORITY, Record
from ccb.tunnel.wire.messages import ControlRequest, ControlResponse, ResultMessage, SystemMessage, UserMessage
from ccb.tunnel.wire.projection import Projection, on
from ccb.tunnel.wire.session_options import SessionOptions

from ..agent.agent import Agent
from ..agent.agent_histories import AgentHistories
from ..permissions.modes import PLAN
from ..permissions.rules import COMMAND_LINE
from ..session_store.journal_summary import LastWorker, prompt_start
from ..session_store.session_log import SessionLog
from .client_setup import ClientLaunches, ClientSetup
from .request_broker import OpenRequests
from .session import Session, SessionParts
from .turns import InputQueue, JournalledTasks


class Recovered(Projection):
    """The state in which the last worker left the session. No turn has taken `waiting` and `notices`. A damaged record
    may have been the one that took them: prompts before it become `doubtful`, those without a known result
    `unanswered`. It must take each record before `requests`, which tells which answer is the first one."""

    def __init__(self, inputs: InputQueue, requests: OpenRequests) -> None:
        self.options = SessionOptions()
        self.mode_before_plan = "default"
        self.launches: deque[SessionOptions] = deque(maxlen=100)
        self.turn_open = self.result_due = False
        self.updates: list[Json] = []
        self.damage: set[str] = set()
        self.hooks_run: set[str] = set()  # keys of the hooks that run only once
        self.waiting: OrderedDict[str, UserMessage] = OrderedDict()
        self.doubtful: OrderedDict[str, str] = OrderedDict()
        self.unanswered: OrderedDict[str, None] = OrderedDict()
        self.notices: OrderedDict[str, tuple[records.QueuedRecord, str]] = OrderedDict()
        self._inputs = inputs
        self._requests = requests
        self._taken = False  # the next result answers a prompt that is known to have been taken

    def answered(self) -> None:
        """Assign a result to the prompt known to have been taken, or else to the first doubtful one."""
        if not self._taken and self.unanswered:
            self.unanswered.popitem(last=False)
        self._taken = False

    @on(records.OptionsRecord)
    def _options(self, content: records.OptionsRecord, _: Record) -> None:
        rules = [each for each in self.updates if str(each.get("type")).endswith("Rules")]
        self.updates = [each for each in rules if each.get("destination") != COMMAND_LINE]
        if content.options is not None:
            options = SessionOptions.from_json(content.options)
            self._mode(options.permission_mode)
            self.options = options
            self.launches.append(self.options)

    @on(records.InputRecord)
    def _input(self, content: records.InputRecord, _: Record) -> None:
        line = content.public
        repeated = self._inputs.knows_message(line)
        self._inputs.remember(content.id, line)
        if isinstance(line, UserMessage):
            self._inputs.any_prompt = True
            if not repeated:
                self.waiting[content.id] = line
        elif isinstance(line, ControlRequest) and line.subtype == CHANGE_RULES.name:
            with suppress(RequestRefused):
                self.updates += CHANGE_RULES.read(line.request)
        elif isinstance(line, ControlResponse) and self._requests.kind_of(line.request_id) == CAN_USE_TOOL.name:
            granted = CAN_USE_TOOL.read_answer(answer_in(line)).updates
            self.updates += [each for each in granted if each.get("type") != "setMode"]

    @on(records.QueuedRecord)
    def _queued(self, content: records.QueuedRecord, record: Record) -> None:
        self.notices[content.id] = content, record.agent_id

    @on(records.UnqueuedRecord)
    def _unqueued(self, content: records.UnqueuedRecord, _: Record) -> None:
        self.waiting.pop(content.id, None)

    @on(records.MovedRecord)
    def _moved(self, content: records.MovedRecord, _: Record) -> None:
        line = self.waiting.pop(content.id, None)
        if line is None:
            return
        others = list(self.waiting.items())
        self.waiting[content.id] = replace(line, body={**line.body, PRIORITY: ""}) if content.steers else line
        place = next((at for at, (each, _line) in enumerate(others) if each == content.before), len(others))
        for each, _line in others[place:]:
            self.waiting.move_to_end(each)

    @on(records.AgentResultRecord)
    def _agent_result(self, _: records.AgentResultRecord, record: Record) -> None:
        kept = {key: (each, to) for key, (each, to) in self.notices.items() if to != record.agent_id}
        self.notices = OrderedDict(kept)

    @on(records.PromptRecord, records.TakenRecord)
    def _take(self, content: records.PromptRecord | records.TakenRecord, record: Record) -> None:
        taken = [content.input_id] if isinstance(content, records.TakenRecord) else content.input_ids
        of_main = record.agent_id == MAIN_AGENT
        if isinstance(content, records.PromptRecord):
            for input_id in taken:
                self.notices.pop(input_id, None)
            self._taken = self._taken or (of_main and bool(content.items))
        else:
            self._taken = self._taken or of_main
        for prompts in (self.waiting, self.doubtful, self.unanswered) if of_main else ():
            for input_id in taken:
                prompts.pop(input_id, None)

    @on(records.TurnStartRecord, main_only=True)
    def _turn_start(self, _: records.TurnStartRecord, __: Record) -> None:
        self._taken = False
        self.turn_open = self.result_due = True

    @on(records.TurnEndRecord, main_only=True)
    def _turn_end(self, _: records.TurnEndRecord, __: Record) -> None:
        self.turn_open = self.result_due = False

    @on(ResultMessage, main_only=True)
    def _result(self, _: ResultMessage, __: Record) -> None:
        self.answered()
        self.result_due = False

    @on(records.DamagedRecord)
    def _damaged(self, damage: records.DamagedRecord, _: Record) -> None:
        if damage.what:
            self.damage.add(damage.what)
        else:
            self.doubtful.update((input_id, prompt_start(line)) for input_id, line in self.waiting.items())
            self.unanswered.update(dict.fromkeys(self.waiting))
            self.waiting.clear()

    @on(records.ForkedRecord)
    def _forked(self, _: records.ForkedRecord, __: Record) -> None:
        """Drop the prompts of the original: the copy does not answer them. Notices wait for the copy's next turn."""
        for state in (self.waiting, self.doubtful, self.unanswered, self.updates):
            state.clear()
        self.notices = OrderedDict((key, (replace(each, wakes=False), to)) for key, (each, to) in self.notices.items())
        self._taken = self.result_due = False

    @on(records.HookRecord)
    def _hook(self, content: records.HookRecord, _: Record) -> None:
        self.hooks_run.update(content.once.split())

    @on(SystemMessage, main_only=True)
    def _system(self, line: SystemMessage, _: Record) -> None:
        if line.permission_mode and line.permission_mode != self.options.permission_mode:
            self._mode(line.permission_mode)
            self.options = replace(self.options, permission_mode=line.permission_mode)

    def _mode(self, mode: str) -> None:
        if mode == PLAN and self.options.permission_mode != PLAN:
            self.mode_before_plan = self.options.permission_mode

    @on(records.ReasoningRecord)
    def _reasoning(self, content: records.ReasoningRecord, _: Record) -> None:
        tokens = None if content.thinking_tokens < 0 else content.thinking_tokens
        self.options = replace(self.options, effort=content.effort or None, max_thinking_tokens=tokens)


_MAX_REPORTS = 20  # of damaged lines
_CUT_OFF = "The worker was stopped in the middle of this turn. What its tools had done until then stays done."
_DOUBTFUL = (
    "This prompt may have been answered or not: the session's journal on the host is damaged. It was not run again."
)


@dataclass(frozen=True)
class Restored:
    parts: SessionParts
    recovered: Recovered
    histories: AgentHistories
    tasks: JournalledTasks
    worker: LastWorker
    reported: frozenset[str]  # input ids of the prompts whose loss is reported now


def restore(log: SessionLog) -> Restored:
    """Read the journal, report its damage, and withdraw requests that no task waits for any more."""
    inputs, requests, histories = InputQueue(), OpenRequests(), AgentHistories(log.journal.rewound)
    recovered, worker, tasks = Recovered(inputs, requests), LastWorker(), JournalledTasks()
    log.read(recovered, requests, histories, worker, tasks)
    launches = ClientLaunches(recovered.options)
    for options in recovered.launches:
        launches.keep(options)
    parts = SessionParts(log, launches, inputs, requests)
    reported = _report_damage(log, recovered)
    parts.broker.withdraw_abandoned()
    return Restored(parts, recovered, histories, tasks, worker, reported)


def take_up(restored: Restored, agent: Agent, clients: ClientSetup, rare: Callable[[Session], None]) -> Session:
    """Return the session. Write a result for an interrupted turn and for each prompt that may be lost."""
    session = Session(restored.parts, agent, clients, rare)
    log, recovered, inputs = session.log, restored.recovered, session.inputs
    agent.config.permissions.apply(recovered.updates)
    agent.config.context.todos.restore(log.snapshot.todos)
    agent.config.permissions.mode_before_plan = recovered.mode_before_plan
    if recovered.result_due:
        session.turns.fail([_CUT_OFF])
        recovered.answered()
    for _ in range(len(restored.reported & recovered.unanswered.keys())):  # the sender of each waits for a result
        session.turns.fail([_DOUBTFUL])
    if recovered.turn_open:
        log.emit(records.TurnEndRecord())
    for input_id, line in recovered.waiting.items():
        inputs.put(input_id, line, echo=session.options.replay_user_messages)
    for notice, agent_id in recovered.notices.values():
        inputs.notify(notice, agent_id)
    session.notices.begin(restored.tasks)
    log.journal.flush_soon()
    return session


def _report_damage(log: SessionLog, recovered: Recovered) -> frozenset[str]:
    """Report new damage. Return the input ids of the doubtful prompts in it."""
    reports = [damage for damage in log.journal.damaged if damage not in recovered.damage]
    if len(reports) > _MAX_REPORTS:
        reports[_MAX_REPORTS:] = [f"{len(reports) - _MAX_REPORTS} more damaged lines were passed over"]
    doubtful = set()
    for input_id, text in recovered.doubtful.items():
        report = f"a prompt may have been answered or not, and was not run again: {text}"
        if report not in recovered.damage:
            reports.append(report)
            doubtful.add(input_id)
    for report in reports:
        log.emit(records.DamagedRecord(report))
    return frozenset(doubtful)
