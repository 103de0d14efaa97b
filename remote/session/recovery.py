"""Go on after a restart."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire.client_requests import CHANGE_RULES
from ccb.tunnel.wire.control_protocol import AGENT_OPTION, CAN_USE_TOOL, SET_SANDBOX, RequestRefused, answer_in
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import Projection, Record, on
from ccb.tunnel.wire.messages import CUT_OFF, ControlRequest, ControlResponse, ResultMessage, SystemMessage
from ccb.tunnel.wire.session_options import SessionOptions

from ..agent.agent_histories import AgentHistories
from ..permissions.modes import PLAN
from ..permissions.rules import COMMAND_LINE
from ..session_store.journal_summary import LastWorker, prompt_start
from ..session_store.session_log import SessionLog
from .client_setup import ClientLaunches
from .request_broker import OpenRequests
from .session import Session
from .turns import InputQueue, JournalledTasks


class Recovered(Projection):
    """The state in which the last worker left the session: its own, and that of other projections, which follow it in
    the order of `parts`. A damaged record may have been the one that took a prompt: prompts before it become
    `doubtful`, those without a known result `unanswered`."""

    def __init__(self, rewound: Sequence[tuple[int, int]] = ()) -> None:
        self.inputs, self.requests = InputQueue(), OpenRequests()
        self.histories, self.tasks, self.worker = AgentHistories(rewound), JournalledTasks(), LastWorker()
        self.launches = ClientLaunches(SessionOptions())
        self.mode_before_plan = "default"
        self.turn_open = self.result_due = False
        self.updates: list[Json] = []
        self.damage: set[str] = set()
        self.hooks_run: set[str] = set()  # keys of the hooks that run only once
        self.doubtful: OrderedDict[str, str] = OrderedDict()
        self.unanswered: OrderedDict[str, None] = OrderedDict()
        self._taken = False  # the next result answers a prompt that is known to have been taken

    @property
    def parts(self) -> tuple[Projection, ...]:
        return self, self.requests, self.inputs, self.histories, self.tasks, self.worker

    def answered(self) -> None:
        """Assign a result to the prompt known to have been taken, or else to the first doubtful one."""
        if not self._taken and self.unanswered:
            self.unanswered.popitem(last=False)
        self._taken = False

    @on(records.OptionsRecord)
    def _options(self, content: records.OptionsRecord, _: Record) -> None:
        """The options have the cage; a command line replaces the rules of the one before, and adds its directories."""
        kept = [each for each in self.updates if each.get("type") != SET_SANDBOX]
        self.updates = [each for each in kept if each.get("destination") != COMMAND_LINE]
        if content.options is not None:
            options = SessionOptions.from_json(content.options)
            self._mode(options.permission_mode)
            self.launches.use(options)

    @on(records.InputRecord)
    def _input(self, content: records.InputRecord, _: Record) -> None:
        line = content.public
        if isinstance(line, ControlRequest) and line.subtype == CHANGE_RULES.name:
            with suppress(RequestRefused):
                self.updates += CHANGE_RULES.read(line.request)
        elif isinstance(line, ControlResponse) and self.requests.kind_of(line.request_id) == CAN_USE_TOOL.name:
            granted = CAN_USE_TOOL.read_answer(answer_in(line)).updates
            self.updates += [each for each in granted if each.get("type") not in ("setMode", AGENT_OPTION)]

    @on(records.PromptRecord, records.TakenRecord, main_only=True)
    def _take(self, content: records.PromptRecord | records.TakenRecord, _: Record) -> None:
        taken = [content.input_id] if isinstance(content, records.TakenRecord) else content.input_ids
        self._taken = self._taken or isinstance(content, records.TakenRecord) or bool(content.items)
        for input_id in taken:
            self.doubtful.pop(input_id, None)
            self.unanswered.pop(input_id, None)

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
            waiting = self.inputs.waiting
            self.doubtful.update((input_id, prompt_start(line)) for input_id, line in waiting.items())
            self.unanswered.update(dict.fromkeys(waiting))
            self.inputs.drop_prompts()

    @on(records.ForkedRecord)
    def _forked(self, content: records.ForkedRecord, _: Record) -> None:
        for state in (self.doubtful, self.unanswered, self.updates):
            state.clear()
        self._taken = self.result_due = False
        if content.root:  # what was allowed on another machine is not allowed here
            old = self.launches.options
            kept = SessionOptions(model=old.model, effort=old.effort, foreign_agent=old.foreign_agent)
            self.launches = ClientLaunches(kept)
            self.mode_before_plan = "default"

    @on(records.HookRecord)
    def _hook(self, content: records.HookRecord, _: Record) -> None:
        self.hooks_run.update(content.once.split())

    @on(SystemMessage, main_only=True)
    def _system(self, line: SystemMessage, _: Record) -> None:
        options = self.launches.options
        if line.permission_mode and line.permission_mode != options.permission_mode:
            self._mode(line.permission_mode)
            self.launches.options = replace(options, permission_mode=line.permission_mode)

    def _mode(self, mode: str) -> None:
        before = self.launches.options.permission_mode
        if mode == PLAN and before != PLAN:
            self.mode_before_plan = before

    @on(records.ReasoningRecord)
    def _reasoning(self, content: records.ReasoningRecord, _: Record) -> None:
        tokens = None if content.thinking_tokens < 0 else content.thinking_tokens
        options = replace(self.launches.options, effort=content.effort or None, max_thinking_tokens=tokens)
        self.launches.options = options


_MAX_REPORTS = 20  # of damaged lines
_DOUBTFUL = (
    "This prompt may have been answered or not: the session's journal on the host is damaged. It was not run again."
)


def take_up(recovered: Recovered, session: Session) -> None:
    """Report the damage of the journal, and write a result for an interrupted turn and for each prompt that may be
    lost."""
    log, agent = session.log, session.agent
    reported = _report_damage(log, recovered)
    agent.config.permissions.apply(recovered.updates)
    agent.config.context.todos.use(log.snapshot.todos)
    agent.config.permissions.mode_before_plan = recovered.mode_before_plan
    if recovered.result_due:
        session.turns.fail([CUT_OFF])
        recovered.answered()
    for _ in range(len(reported & recovered.unanswered.keys())):  # the sender of each waits for a result
        session.turns.fail([_DOUBTFUL])
    if recovered.turn_open:
        log.emit(records.TurnEndRecord())
    session.notices.begin(recovered.tasks)
    log.journal.flush_soon()


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
