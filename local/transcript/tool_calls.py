"""Tool calls from name to result, and the sub-agents that some of them start."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.client_requests import SHELL_CALL
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import AgentResultRecord, Projection, Record, TodoRecord, ToolStartRecord, on
from ccb.tunnel.wire.todo_list import MAX_STATUS, PENDING, TodoList, public_todo
from ccb.tunnel.wire.tool_traits import BASH, DEFAULT_AGENT, TODO_WRITE, Effect, View, traits_of

from ..session.newest import MAX_ID, Newest
from . import blocks

_MAX_AGENTS = 256


class AgentRuns(Projection):
    """Applies the records of sub-agents to the calls that started them. Others are passed over."""

    def __init__(self, container: blocks.BlockContainer) -> None:
        self._container = container
        # By agent id, oldest first, as long as the container has room for them.
        self._blocks: WeakValueDictionary[str, blocks.ToolBlock] = WeakValueDictionary()
        # Rows as long as their run has room for them: the open ones by agent id and id of the call, and by the id of a
        # request.
        self._rows: WeakValueDictionary[tuple[str, str], blocks.AgentRow] = WeakValueDictionary()
        self._asked: WeakValueDictionary[str, blocks.AgentRow] = WeakValueDictionary()

    @property
    def calls(self) -> list[blocks.ToolBlock]:
        return list(dict.fromkeys(self._blocks.values()))

    def called(self, block: blocks.ToolBlock) -> None:
        block.agent = blocks.AgentRun(agent_id=block.tool_id)
        self._know(block.tool_id, block)

    def _know(self, agent_id: str, block: blocks.ToolBlock) -> None:
        if len(agent_id) <= MAX_ID:
            self._blocks[agent_id] = block
        while len(self._blocks) > _MAX_AGENTS:
            del self._blocks[next(self._blocks.keys())]

    def told(self, note: messages.TaskMessage) -> None:
        if note.subtype == "task_started" and note.tool_use_id in self._blocks:
            earlier = messages.as_text(note.body.get("agent_id"))  # it may go on
            for agent_id in filter(None, (note.task_id, earlier)):
                self._know(agent_id, self._blocks[note.tool_use_id])
            if (run := self._blocks[note.tool_use_id].agent) is not None:
                run.agent_id = earlier or note.task_id
        block = self._blocks.get(note.task_id)
        if block is None or block.agent is None:
            return
        name, usage = messages.as_text(note.body.get("subagent_type")), messages.as_dict(note.body.get("usage"))
        if name and "resume" in block.tool_input:  # the call does not name the agent that goes on
            block.tool_input = {**block.tool_input, "subagent_type": name}
        block.agent.tokens = int(messages.as_number(usage.get("total_tokens"))) or block.agent.tokens
        if seconds := messages.as_number(usage.get("duration_ms")) / 1000:
            block.agent.seconds, block.agent.since = seconds, time.monotonic() - seconds
        if note.subtype == "task_notification":
            self._end(note.task_id, block.agent)
        self._container.update_block(block)

    def result(self, block: blocks.ToolBlock, structured: object) -> None:
        told = messages.as_dict(structured)
        if block.agent is None:
            return
        if told.get("status") == "async_launched":
            block.agent.in_background = True
            return
        cost = told.get("totalCostUsd")
        block.agent.cost_usd = messages.as_number(cost) if isinstance(cost, int | float) else None
        block.agent.tokens = int(messages.as_number(told.get("totalTokens"))) or block.agent.tokens
        block.agent.tool_uses = int(messages.as_number(told.get("totalToolUseCount"))) or block.agent.tool_uses
        block.agent.seconds = messages.as_number(told.get("totalDurationMs")) / 1000 or block.agent.seconds
        block.agent.branch = one_line(str(told.get("worktreeBranch") or ""))
        block.agent.ended, block.agent.note = True, ""

    def adopt(self, earlier: AgentRuns) -> None:
        for agent_id, block in earlier._blocks.items():
            self._blocks.setdefault(agent_id, block)

    @on(messages.AssistantMessage)
    def _assistant(self, line: messages.AssistantMessage, record: Record) -> None:
        run = self._run(record)
        if run is None:
            return
        run.note = ""
        for block in line.blocks:
            if block.get("type") == "tool_use":
                row = blocks.AgentRow(str(block.get("name")), messages.as_dict(block.get("input")))
                run.rows.append(row)
                run.tool_uses += 1
                self._rows[record.agent_id, str(block.get("id"))] = row
        self._changed(record)

    @on(ToolStartRecord)
    def _started(self, content: ToolStartRecord, record: Record) -> None:
        self._set(record, content.tool_use_id, blocks.ToolState.RUNNING)

    @on(messages.UserMessage)
    def _user(self, line: messages.UserMessage, record: Record) -> None:
        for block in line.blocks:
            if block.get("type") == "tool_result":
                state = blocks.ToolState.FAILED if block.get("is_error") else blocks.ToolState.DONE
                self._set(record, str(block.get("tool_use_id")), state)
                self._rows.pop((record.agent_id, str(block.get("tool_use_id"))), None)

    @on(messages.ControlRequest)
    def _asks(self, line: messages.ControlRequest, record: Record) -> None:
        row = self._rows.get((record.agent_id, str(line.request.get("tool_use_id"))))
        if line.subtype == CAN_USE_TOOL.name and row is not None:
            row.state = blocks.ToolState.ASKS
            self._asked[line.request_id] = row
            self._changed(record)

    @on(messages.ControlCancel)
    def _withdrawn(self, line: messages.ControlCancel, record: Record) -> None:
        row = self._asked.pop(line.request_id, None)
        if row is not None and row.state is blocks.ToolState.ASKS:
            row.state = blocks.ToolState.WAITING
            self._changed(record)

    @on(messages.SystemMessage)
    def _system(self, line: messages.SystemMessage, record: Record) -> None:
        run = self._run(record)
        if run is not None and line.subtype == "api_retry":
            run.note = f"asks its model again, try {line.attempt}"
            self._changed(record)

    @on(AgentResultRecord)
    def _ended(self, _: AgentResultRecord, record: Record) -> None:
        run = self._run(record)
        if run is not None:
            run.last_seq = record.seq
            self._end(record.agent_id, run)
            self._changed(record)

    def _end(self, agent_id: str, run: blocks.AgentRun) -> None:
        run.ended, run.note = True, ""
        for key in [key for key in self._rows if key[0] == agent_id]:
            self._rows.pop(key, None)

    def _set(self, record: Record, tool_use_id: str, state: blocks.ToolState) -> None:
        row = self._rows.get((record.agent_id, tool_use_id))
        if row is not None:
            row.state = state
            self._changed(record)

    def _run(self, record: Record) -> blocks.AgentRun | None:
        return block.agent if (block := self._blocks.get(record.agent_id)) is not None else None

    def _changed(self, record: Record) -> None:
        if (block := self._blocks.get(record.agent_id)) is not None:
            self._container.update_block(block)


def agent_label(tool_input: Mapping[str, Any]) -> str:
    if "skill" in tool_input:
        return one_line(f"skill {tool_input['skill']}")
    name, task = tool_input.get("subagent_type") or DEFAULT_AGENT, tool_input.get("description") or ""
    return one_line(f"{name}: {task}" if task else str(name))


_GOES_ON = (
    r"with ID: (\S+)\. You are told when it ends\. [^.\n]* ends it\.(?: (?:Output is also|All its output is).*)?$"
)
_IN_WORDS = tuple(
    (re.compile(pattern, re.MULTILINE), said)
    for pattern, said in {
        r"\A\(Bash completed with no output\)(?=$)": "no output",
        rf"\ACommand running in background {_GOES_ON}": r"in the background: \1 (/tasks)",
        rf"\AIt(?: takes longer than .{{1,40}}, so it)? goes on in the background {_GOES_ON}": (
            r"in the background: \1 (/tasks)"
        ),
        r"^Still running after the command: (.*)\. Its task is (\S+); TaskStop ends it\.$": (
            r"still running: \1, in the background: \2 (/tasks)"
        ),
        r"\AThe agent works in the background\. .* task_id: (\S+)\. .*": r"in the background: \1 (/tasks)",
        r"\AThe user doesn't want to proceed with this tool use\. It was not run\. .*": "Interrupted; not run.",
        r"\AThe user doesn't want to proceed (?:(?! while it ran: ).)* while it ran: (what .*\.) Wait .*": (
            r"Interrupted; \1"
        ),
        r"\A\[Request interrupted by user(?: for tool use)?\]\Z": "Interrupted.",
        r"\AThe user denied this; it was not done\.": "Denied; not run.",
        r"\n(?:To ask the user to run it without|If it is needed, ask the user).*: true\.$": "",
        r"^(There is no terminal, and nobody can be asked here\.) Give .*": r"\1",
    }.items()
)
"""What the worker tells the model, and what people read in its place: they have no tools, but commands."""


def in_words(text: str) -> str:
    """Return what the worker says, as a person reads it."""
    for pattern, said in _IN_WORDS:
        text = pattern.sub(said, text)
    return text


_MAX_KEPT = 64
_MAX_LISTS = 200  # of todos, to which the person may go back
_MAX_CHARS = 100_000
_MAX_TODO_CHARS = 500


class EarlyData:
    """Results of calls, messages that were withdrawn, prompts that were taken: for events that are loaded later."""

    def __init__(self) -> None:
        self.results: Newest[str, tuple[Json, Any]] = Newest(_MAX_KEPT)
        self.withdrawn: Newest[str, None] = Newest(_MAX_KEPT)
        self.taken: Newest[str, None] = Newest(_MAX_KEPT)

    def note_result(self, result: Json, structured: Any) -> None:
        if len(blocks.result_text(result)) <= _MAX_CHARS and len(str(structured)) <= _MAX_CHARS:
            kept = {name: result.get(name) for name in ("tool_use_id", "content", "is_error")}
            self.results[messages.as_text(result.get("tool_use_id"))] = kept, structured


def _meant(called: str, tool_input: Json) -> tuple[str, Json]:
    """Return the tool and the input of a call, or of the call that it stands for."""
    name, params = tool_input.get("tool_name"), tool_input.get("params")
    if traits_of(called).view is View.OTHER_CALL and isinstance(name, str) and isinstance(params, dict):
        return name, params
    return called, tool_input


_TICK_S = 5.0  # the status line counts each second; a changed block draws all blocks in sight anew


class ToolCalls:
    """Tool calls without a result, by their id. Results that come before their call is loaded wait in `orphans`."""

    def __init__(self, container: blocks.BlockContainer, orphans: EarlyData) -> None:
        self._container = container
        self.orphans = orphans
        self.agents = AgentRuns(container)
        self._open: WeakValueDictionary[str, blocks.ToolBlock] = WeakValueDictionary()
        self._line_over = False
        self._pictures = blocks.KeptPictures(container)
        self.todos = TodoList()
        self._todo_lists: deque[tuple[int, TodoList]] = deque(maxlen=_MAX_LISTS)
        self._snapshot_todos: blocks.ToolBlock | None = None  # from a snapshot; the next list of todos replaces it

    def note_todos(self, seq: int) -> None:
        """Remember the list that holds after event `seq`, for the case that the person goes back."""
        if self.todos is not (self._todo_lists[-1][1] if self._todo_lists else None):
            self._todo_lists.append((seq, self.todos))

    def go_back(self, seq: int) -> None:
        while self._todo_lists and self._todo_lists[-1][0] >= seq:
            self._todo_lists.pop()
        self.todos = self._todo_lists[-1][1] if self._todo_lists else TodoList()

    @property
    def any_open(self) -> bool:
        return bool(self._open)

    def announce(self, tool_id: str, name: str) -> blocks.ToolBlock | None:
        if tool_id in self._open:
            return None
        self._open[tool_id] = block = blocks.ToolBlock(tool_id=tool_id, name=name)
        return block

    def retract(self, block: blocks.ToolBlock) -> None:
        self._open.pop(block.tool_id, None)

    def call(self, content: Json, announced: blocks.ToolBlock | None) -> blocks.ToolBlock:
        """Show a finished call. It replaces the `announced` one, to which the worker may have given another id."""
        tool_id, called = messages.as_text(content.get("id")), messages.as_text(content.get("name"))
        name, tool_input = _meant(called, messages.as_dict(content.get("input")))
        traits = traits_of(called)
        writes_todos = traits.view.shows_todos and not traits.todo_items
        if writes_todos:
            self.todos = TodoList.written(tool_input.get("todos"))
        elif traits.todo_items:
            tool_input = {**tool_input, "todos": [public_todo(each) for each in self._meant_todos(tool_input)]}
        tool = announced or blocks.ToolBlock()
        if announced is not None:
            self.retract(announced)
        tool.tool_id, tool.name, tool.tool_input = tool_id, name, tool_input
        show = self._container.add if announced is None else self._container.update_block
        show(tool)
        if writes_todos and self._snapshot_todos is not None:
            self._container.take_away(self._snapshot_todos)
            self._snapshot_todos = None
        if traits.view is View.AGENT and tool.agent is None:
            self.agents.called(tool)
        self._open[tool_id] = tool
        if (orphan := self.orphans.results.pop(tool_id, None)) is not None:
            self.result(*orphan)
        return tool

    def start(self, tool_id: str, *, now: bool, movable: bool) -> None:
        """Show that a call runs. `now`: it has begun just now, and not before this client came."""
        tool = self._open.get(tool_id)
        if tool is not None and tool.state is blocks.ToolState.WAITING:
            tool.movable = movable
            tool.state = blocks.ToolState.RUNNING
            tool.since = time.monotonic() if now else 0.0
            self._container.update_block(tool)

    def tick(self, now: float) -> None:
        """Count the seconds of what runs: a command that prints nothing is not heard of for long."""
        for tool in list(self._open.values()):
            runs = tool.state is blocks.ToolState.RUNNING and tool.since and tool.agent is None
            if runs and now - tool.since >= tool.elapsed_s + _TICK_S:
                tool.elapsed_s = float(int(now - tool.since))
                self._container.update_block(tool)

    def progress(self, message: messages.ToolProgressMessage, command_line: str) -> None:
        """Show what a running tool has printed so far. The person's `command_line` is shown while it runs."""
        tool = self._open.get(message.tool_use_id)
        if tool is None and message.tool_use_id.startswith(SHELL_CALL) and not self._line_over:
            tool_input = {"command": command_line.removeprefix("!").strip()}
            tool = blocks.ToolBlock(tool_id=message.tool_use_id, name=BASH.name, tool_input=tool_input)
            self._open[tool.tool_id] = tool
            self._container.add(tool)
        if tool is not None and tool.state not in (blocks.ToolState.DONE, blocks.ToolState.FAILED):
            tool.state = blocks.ToolState.RUNNING
            tool.elapsed_s = messages.as_number(message.body.get("elapsed_time_seconds"))
            tool.since = time.monotonic() - tool.elapsed_s
            if not message.body.get("heartbeat"):  # a sign of life says nothing about the output
                tool.output = messages.as_text(message.body.get("output"))[-blocks.MAX_BLOCK_CHARS :]
            self._container.update_block(tool)

    def line_begins(self) -> None:
        self._line_over = False

    def line_over(self) -> None:
        """A command line of the person has ended: what it printed is shown in place of its live output."""
        self._line_over = True
        for tool_id in [each for each in self._open if each.startswith(SHELL_CALL)]:
            self._container.take_away(self._open.pop(tool_id))

    def told(self, note: messages.TaskMessage) -> None:
        """Take what the worker says about a task. A skill may start an agent; other tools that do, run commands."""
        tool = self._open.get(note.tool_use_id)
        if tool is not None and traits_of(tool.name).effect is Effect.NONE and tool.agent is None:
            self.agents.called(tool)
        self.agents.told(note)

    def result(self, result: Json, structured: Any) -> None:
        """Show the result of a call. `structured` is the public `tool_use_result`, which holds the patch of an edit."""
        tool = self._open.pop(messages.as_text(result.get("tool_use_id")), None)
        if tool is None:
            self.orphans.note_result(result, structured)
            return
        tool.state = blocks.ToolState.FAILED if result.get("is_error") else blocks.ToolState.DONE
        tool.result = in_words(blocks.both_ends(blocks.result_text(result)))
        tool.output = ""
        self._pictures.keep(tool, blocks.pictures_of(messages.as_blocks(result.get("content"))))
        self.agents.result(tool, structured)
        if traits_of(tool.name).view is View.PLAN and isinstance(structured, dict):
            tool.tool_input = {"plan": blocks.both_ends(str(structured.get("plan") or ""))}
        patch = messages.as_dict(structured).get("structuredPatch")
        tool.patch = messages.as_blocks(patch) if isinstance(patch, list) else []
        self._container.update_block(tool)

    def close(self, state: blocks.ToolState, *, forget: bool = True) -> None:
        """Give all open calls this state. With `forget` results that come later are no longer expected."""
        for tool in self._open.values():
            tool.state = state
            if tool.tool_id.startswith(SHELL_CALL):  # nobody tells what it printed until it was ended
                tool.result, tool.output = blocks.both_ends(tool.output), ""
            self._container.update_block(tool)
        if forget:
            self._open.clear()

    def todo_changed(self, item: TodoRecord) -> None:
        """Take an item of the list as the worker has changed it, without what is shown nowhere."""
        subject, active = item.subject[:_MAX_TODO_CHARS], item.active_form[:_MAX_TODO_CHARS]
        self.todos = self.todos.changed(TodoRecord(item.id[:MAX_ID], subject, item.status[:MAX_STATUS], active))

    def _meant_todos(self, tool_input: Json) -> Sequence[TodoRecord]:
        """Return the items that a call of a Task tool is about, as they are when it succeeds."""
        task_id, subject, status = (messages.as_text(tool_input.get(name)) for name in ("taskId", "subject", "status"))
        if not task_id and not subject:
            return self.todos.items
        item = self.todos.named(task_id) or TodoRecord(task_id, f"task {task_id}", PENDING)
        return [replace(item, subject=subject or item.subject, status=status or item.status)]

    def show_todos(self, todos: Sequence[Any]) -> None:
        tool_input = {"todos": list(todos)}
        self.todos = TodoList.written(tool_input["todos"])
        done = blocks.ToolState.DONE
        self._snapshot_todos = blocks.ToolBlock(name=TODO_WRITE.name, tool_input=tool_input, state=done)
        self._container.add(self._snapshot_todos)

    def adopt(self, earlier: ToolCalls, *, running: bool) -> None:
        self.agents.adopt(earlier.agents)
        for tool_id, tool in earlier._open.items():
            if running:
                self._open.setdefault(tool_id, tool)
            else:
                tool.state = blocks.ToolState.UNKNOWN
