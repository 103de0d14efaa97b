"""What the result of a turn means, and to which prompts it belongs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ccb.tunnel.errors import ExitCode
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import BLOCKED_PROMPT, TaskMessage

from .newest import Newest

if TYPE_CHECKING:
    from ccb.tunnel.wire.journal_records import Record

_LIMITS = ("error_max_turns", "error_max_budget_usd")
_MAX_INPUTS = 10_000
_MAX_TASKS = 1_000
_MAX_TEXT = 1_000  # characters of the description of a task


def exit_code(result: Json, *, denied_unasked: bool = False, wants_answer: bool = False) -> ExitCode:
    """Return the exit code of a run that ended with `result`. `wants_answer`: a turn without an answer has failed."""
    subtype = result.get("subtype")
    if subtype in _LIMITS:
        return ExitCode.LIMIT_REACHED
    if result.get("terminal_reason") == "storage_full":
        return ExitCode.NO_STORAGE
    if result.get("terminal_reason") == "turn_setup_failed":
        return ExitCode.USAGE
    if subtype != "success" or result.get("is_error"):
        return ExitCode.AUTH_FAILED if result.get("api_error_status") in (401, 403) else ExitCode.AGENT_FAILED
    if denied_unasked:
        return ExitCode.PERMISSION_DENIED
    return ExitCode.AGENT_FAILED if wants_answer and not has_answer(result) else ExitCode.OK


def has_answer(result: Json) -> bool:
    """Return whether a turn has succeeded with an answer, or needed none, as that of a command that prints nothing."""
    if result.get("subtype") != "success" or result.get("is_error"):
        return False
    said, turns = result.get("result"), result.get("num_turns")
    if not turns:
        return not str(said).startswith(BLOCKED_PROMPT)
    return bool(isinstance(said, str) and said.strip()) or "structured_output" in result


class PendingPrompts:
    """The prompts that wait for their result. Several prompts may share a turn.

    A session may also run turns that this run did not start: the rest of an earlier run that was killed, or its prompts
    that the host takes only now. A result belongs to this run if its turn has taken a prompt of this run. A result
    without such a turn tells that a prompt could not be taken: it belongs to the prompt that waits longest. The end of
    a task that was started during this run may start one more turn of this run."""

    def __init__(self) -> None:
        self.foreign_turn = False  # whether a turn is running that began before this client could see its prompts
        self.tasks: Newest[str, TaskMessage] = Newest(_MAX_TASKS)
        """The tasks that were started during this run and run in the background, by their id."""
        self._started: Newest[str, TaskMessage] = Newest(_MAX_TASKS)
        self._task_turn = False  # a turn runs that the end of a task has started
        self._waiting: dict[str, None] = {}
        self._seen: Newest[str, None] = Newest(_MAX_INPUTS)  # inputs that were sent or answered
        self._in_turn: Newest[str, None] = Newest(_MAX_INPUTS)  # inputs that the running turn has taken
        self._turn_has_prompts = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def more_to_come(self) -> bool:
        return bool(self.tasks) or self._task_turn

    def task_news(self, line: TaskMessage) -> None:
        if line.subtype == "task_notification":
            self.tasks.pop(line.task_id, None)
            self._started.pop(line.task_id, None)
        else:
            kept = replace(line, body={}, description=line.description[:_MAX_TEXT])
            started = self._started.setdefault(line.task_id, kept)
            if line.in_background:
                self.tasks[line.task_id] = started

    def taken_back(self, input_id: str) -> None:
        self._waiting.pop(input_id, None)

    def sent(self, input_id: str) -> None:
        if input_id not in self._seen:
            self._seen[input_id] = None
            self._waiting[input_id] = None

    def runs_already(self, input_ids: Iterable[str]) -> None:
        self._take(input_ids)
        self.foreign_turn = bool(self._in_turn)

    def answered_before(self, input_id: str) -> bool:
        """Note that a prompt was answered before this run. Return whether it waits for its result."""
        return self._waiting.pop(input_id, self) is None

    def record(self, record: Record) -> Sequence[str]:
        """Follow the journal. Return the prompts that a turn takes with this record. Results are for `result_came`."""
        from ccb.tunnel.wire import journal_records as records

        match record.content:
            case _ if record.agent_id:
                return ()
            case records.PromptRecord(input_ids=input_ids):
                self.taken(input_ids)
                return input_ids
            case records.TakenRecord(input_id=input_id):
                self.taken([input_id])
                return (input_id,)
            case records.UnqueuedRecord(id=input_id):
                self.taken_back(input_id)
            case records.TurnStartRecord() | records.TurnEndRecord():
                self.turn_began_or_ended()
        return ()

    def turn_began_or_ended(self) -> None:
        """Note that no turn is running, or that a turn begins whose prompts are still to come."""
        self.foreign_turn = False
        self._forget_turn()

    def taken(self, input_ids: Sequence[str]) -> None:
        from ccb.tunnel.wire.journal_records import TASK_PREFIX

        self._turn_has_prompts = True
        self._task_turn = self._task_turn or any(each.startswith(TASK_PREFIX) for each in input_ids)
        self._take(input_ids)

    def _take(self, input_ids: Iterable[str]) -> None:
        for each in input_ids:
            self._in_turn[each] = None

    def answered(self) -> list[str]:
        """Return the prompts that wait for the result that comes now."""
        if self._turn_has_prompts or self.foreign_turn:
            return [input_id for input_id in self._waiting if input_id in self._in_turn]
        return list(self._waiting)[:1]

    def result_came(self) -> bool:
        """Note that a turn has ended. Return whether this run started it."""
        answered = self.answered()
        for input_id in answered:
            del self._waiting[input_id]
        for input_id in self._in_turn:
            self._seen[input_id] = None
        ours = bool(answered) or (self._task_turn and not self.foreign_turn)
        self.foreign_turn = False
        self._forget_turn()
        return ours

    def given_up(self) -> None:
        for input_id in list(self._waiting)[:1]:
            del self._waiting[input_id]
        self._forget_turn()

    def _forget_turn(self) -> None:
        self._in_turn.clear()
        self._task_turn = False
        self._turn_has_prompts = False
