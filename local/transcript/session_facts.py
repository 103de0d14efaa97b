"""Facts about a session: the names of its modes, its tasks, what it has used, its turns."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import ResultMessage, TaskMessage, as_dict, as_number
from ccb.tunnel.wire.model_facts import ESTIMATED, context_tokens

from ..session.newest import Newest

CAGED = "caged"
"""The mode in which commands run in the workspace cage without a question: on the wire, "default" and that sandbox."""

MODES = {"default": "ask", "acceptEdits": "accept edits", "plan": "plan", CAGED: CAGED, "bypassPermissions": "BYPASS"}
"""The modes that a person can change to, by their names on the wire, each with the name that is shown."""


READING = "reading with docker, kubectl, systemctl and others"
"""What the rule READS_SERVICES allows, in words."""


def is_caged(sandbox: str) -> bool:
    return sandbox.startswith("workspace cage")


def mode_in_force(mode: str, sandbox: str) -> str:
    return CAGED if mode == "default" and is_caged(sandbox) else mode


def mode_name(mode: str, sandbox: str = "") -> str:
    """Return the name of a mode as every place shows it."""
    return MODES.get(mode_in_force(mode, sandbox)) or one_line(mode)


def mode_named(text: str) -> str:
    """Return the mode with this name, as it is shown or on the wire."""
    wanted = text.casefold()
    found = (mode for mode, name in MODES.items() if wanted in (mode.casefold(), name.casefold()))
    return next(found, text)


_MAX_TASKS = 1_000
_MAX_ENDED = 50  # tasks
_MAX_END = 200  # characters
_MAX_FILES = 10_000
_MAX_TEXT = 1_000  # characters


@dataclass(frozen=True)
class BackgroundTask:
    """A task in the background. Times are monotonic. `end` says how it has ended, in a few words; "" while it runs.
    `agent_id` is that of a sub-agent that goes on, if it is known."""

    id: str
    description: str
    since: float
    is_agent: bool = False
    output_file: str = ""
    end: str = ""
    failed: bool = False
    ended_at: float = 0.0
    agent_id: str = ""


class BackgroundTasks:
    def __init__(self) -> None:
        self._by_id: Newest[str, BackgroundTask] = Newest(_MAX_TASKS)
        self._ended: Newest[str, BackgroundTask] = Newest(_MAX_ENDED)

    @property
    def running(self) -> list[BackgroundTask]:
        return list(self._by_id.values())

    @property
    def ended(self) -> list[BackgroundTask]:
        return list(self._ended.values())

    def told(self, note: TaskMessage) -> bool:
        """Take what the worker says about a task. Return whether a task in the background has ended."""
        if note.subtype == "task_notification":
            task = self._by_id.pop(note.task_id, None)
            how = one_line(note.summary).rpartition('" ')[2][:_MAX_END] or one_line(note.status)[:_MAX_END]
            self._over(task, how or "ended", failed=note.status == "failed")
            return task is not None
        if note.in_background:
            is_agent, text = note.task_type == "local_agent", note.description[:_MAX_TEXT]
            task = BackgroundTask(note.task_id, text, time.monotonic(), is_agent, note.output_file[:_MAX_TEXT])
            self._by_id[note.task_id] = task
        return False

    def _over(self, task: BackgroundTask | None, how: str, *, failed: bool = False) -> None:
        if task is not None:
            self._ended[task.id] = replace(task, end=how, failed=failed, ended_at=time.monotonic())

    def snapshot(self, tasks: Iterable[tuple[str, str, str, str]]) -> None:
        """Take over the tasks that run now: id, description, type and agent."""
        known, now, self._by_id = self._by_id, time.monotonic(), Newest(_MAX_TASKS)
        for each, description, kind, agent in tasks:
            text, agent_id = description[:_MAX_TEXT], agent[:_MAX_TEXT]
            task = BackgroundTask(each, text, now, kind == "local_agent", agent_id=agent_id)
            self._by_id[each] = known.pop(each, task)
        for gone in known.values():
            self._over(gone, "has ended")


_MAX_NUMBER = 10**15  # a host could send a number that no float holds
_INPUT_FIELDS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


@dataclass
class UsageTotals:
    """Tokens and cost of the session so far. `window` is the room that `model` has, 0 until a result has told it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    context_tokens: int = 0
    model: str = ""
    window: int = 0
    estimated: bool = False
    context_estimated: bool = False

    def add(self, result: ResultMessage) -> None:
        """A turn has ended. `result` names what the session has used so far, or at least what the turn used."""
        self.cost_usd = float(min(result.total_cost_usd, _MAX_NUMBER))
        if result.model_usage:
            self._set(result.model_usage)
            return
        usage = as_dict(result.body.get("usage"))
        self.input_tokens += _sum(usage, _INPUT_FIELDS)
        self.output_tokens += _sum(usage, ("output_tokens",))

    def set_from_result(self, result: Json) -> None:
        used, cost = result.get("modelUsage"), result.get("total_cost_usd")
        self._set(used if isinstance(used, dict) else {})
        self.cost_usd = float(min(cost, _MAX_NUMBER)) if isinstance(cost, int | float) else self.cost_usd

    def set_context(self, usage: Json, *, whole: bool = False) -> None:
        """Take over the size of the context from a model message, or of a `whole` answer."""
        size = min(context_tokens(usage), _MAX_NUMBER) if whole else _sum(usage, _INPUT_FIELDS)
        if size:
            self.context_tokens, self.context_estimated = size, bool(usage.get(ESTIMATED))

    def compacted(self, tokens_left: int) -> None:
        """Take over the estimated size of the context behind a compaction."""
        if tokens_left:
            self.context_tokens, self.context_estimated = min(tokens_left, _MAX_NUMBER), True

    @property
    def context_text(self) -> str:
        """How full the model's window is: as a share if its size is known, else in tokens; "" before the first call."""
        if not self.context_tokens:
            return ""
        share = min(100, round(100 * self.context_tokens / self.window)) if self.window else 0
        size = f"{share}%" if self.window else tokens(self.context_tokens)
        return f"context {'~' if self.context_estimated else ''}{size}"

    def _set(self, by_model: Json) -> None:
        models = [each for each in by_model.values() if isinstance(each, dict)]
        fields = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        self.input_tokens = sum(_sum(model, fields) for model in models)
        self.output_tokens = sum(_sum(model, ("outputTokens",)) for model in models)
        self.estimated = any(model.get(ESTIMATED) for model in models)
        named = by_model.get(self.model)
        self.window = _sum(named if isinstance(named, dict) else {}, ("contextWindow",)) or self.window


def tokens(count: int) -> str:
    """Return a number of tokens in short: `950`, `12.3k`, `1.2M`."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def _sum(usage: Json, fields: tuple[str, ...]) -> int:
    return sum(max(0, min(value, _MAX_NUMBER)) for value in map(usage.get, fields) if isinstance(value, int))


def _used(totals: UsageTotals) -> list[str]:
    parts, about = [], "~" if totals.estimated else ""
    if totals.input_tokens or totals.output_tokens:
        parts.append(f"{about}{tokens(totals.input_tokens)} in, {about}{tokens(totals.output_tokens)} out")
    if totals.cost_usd:
        parts.append(f"{about}${totals.cost_usd:.2f}")
    return parts


def used_text(totals: UsageTotals) -> str:
    return ", ".join(_used(totals)).replace(" in,", " tokens in,", 1)


class FileChanges:
    """The files that edits have changed, and how many lines came and went in them."""

    def __init__(self) -> None:
        self.added = self.removed = 0
        self._paths: Newest[str, None] = Newest(_MAX_FILES)

    def note(self, structured: object) -> None:
        """Take the public `tool_use_result` of any call."""
        told = structured if isinstance(structured, dict) else {}
        patch, content = told.get("structuredPatch"), told.get("content")
        if not isinstance(patch, list):
            return
        self._paths[str(told.get("filePath"))] = None
        if told.get("type") == "create" and isinstance(content, str):  # a new file has no patch
            self.added += len(content.splitlines())
        for hunk in patch:
            lines = hunk.get("lines") if isinstance(hunk, dict) else None
            signs = Counter(str(line)[:1] for line in lines) if isinstance(lines, list) else Counter()
            self.added += signs["+"]
            self.removed += signs["-"]

    @property
    def text(self) -> str:
        count = len(self._paths)
        return f"{count} file{'s' if count != 1 else ''} +{self.added} −{self.removed}" if count else ""


class WaitedTime:
    """How many seconds of a turn the agent has waited for the person, by the clock of this machine."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._open: Newest[str, None] = Newest(_MAX_TASKS)
        self._since = 0.0

    def asked(self, request_id: str) -> None:
        self._since = self._since if self._open else time.monotonic()
        self._open[request_id] = None

    def settled(self, request_id: str) -> None:
        if request_id in self._open:
            del self._open[request_id]
            self.seconds += 0.0 if self._open else time.monotonic() - self._since


class TurnFacts:
    """What is told about a turn at its end. `changes` is None unless all of the turn was seen."""

    def __init__(self, changes: FileChanges | None = None) -> None:
        self.changes = changes
        self.waited = WaitedTime()

    def text(self, result: ResultMessage, cost: str, tasks: int, at: str) -> str:
        """Return the line about the turn; "" if the model had no part in it."""
        if not as_number(result.body.get("num_turns")):
            return ""
        seconds = round(max(0.0, as_number(result.body.get("duration_ms")) / 1000 - self.waited.seconds))
        minutes, hours = seconds // 60, seconds // 3600
        took = f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
        if hours:
            took = f"{hours} h {minutes % 60} min"
        changed = self.changes.text if self.changes is not None else ""
        runs = f"{tasks} task{'s' if tasks != 1 else ''} in the background: /tasks" if tasks else ""
        return " · ".join(filter(None, (took, changed, cost, at, runs)))
