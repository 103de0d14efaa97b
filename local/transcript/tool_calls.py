"""From name to result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from ccb.tunnel.wire.client_requests import SHELL_CALL
from ccb.tunnel.wire.messages import TaskMessage, ToolProgressMessage, as_blocks, as_dict, as_number, as_text
from ccb.tunnel.wire.tool_traits import BASH, TODO_WRITE, Effect, View, traits_of

from ..session.newest import Newest
from .agent_runs import AgentRuns
from .blocks import (
    MAX_BLOCK_CHARS,
    BlockContainer,
    KeptPictures,
    ToolBlock,
    ToolState,
    both_ends,
    pictures_of,
    result_text,
)
from .session_facts import Todos

Json = dict[str, Any]

_MAX_KEPT = 64
_MAX_CHARS = 100_000


class EarlyData:
    """Results of calls, messages that were withdrawn, prompts that were taken: for events that are loaded later."""

    def __init__(self) -> None:
        self.results: Newest[str, tuple[Json, Any]] = Newest(_MAX_KEPT)
        self.withdrawn: Newest[str, None] = Newest(_MAX_KEPT)
        self.taken: Newest[str, None] = Newest(_MAX_KEPT)

    def note_result(self, result: Json, structured: Any) -> None:
        if len(result_text(result)) <= _MAX_CHARS and len(str(structured)) <= _MAX_CHARS:
            kept = {name: result.get(name) for name in ("tool_use_id", "content", "is_error")}
            self.results[as_text(result.get("tool_use_id"))] = kept, structured


def _meant(called: str, tool_input: Json) -> tuple[str, Json]:
    """Return the tool and the input of a call, or of the call that it stands for."""
    name, params = tool_input.get("tool_name"), tool_input.get("params")
    if traits_of(called).view is View.OTHER_CALL and isinstance(name, str) and isinstance(params, dict):
        return name, params
    return called, tool_input


class ToolCalls:
    """Tool calls without a result, by their id. Results that come before their call is loaded wait in `orphans`."""

    def __init__(self, container: BlockContainer, orphans: EarlyData) -> None:
        self._container = container
        self._orphans = orphans
        self.agents = AgentRuns(container)
        self._open: WeakValueDictionary[str, ToolBlock] = WeakValueDictionary()
        self.command_line = ""
        """The newest command line of the person that the host runs."""
        self._line_over = False
        self._pictures = KeptPictures(container)
        self.todos = Todos()
        self._snapshot_todos: ToolBlock | None = None  # from a snapshot; the next list of todos replaces it

    @property
    def any_open(self) -> bool:
        return bool(self._open)

    def announce(self, tool_id: str, name: str) -> ToolBlock | None:
        """Return a new block for a call that the model is still writing; None if the call is known already."""
        if tool_id in self._open:
            return None
        block = ToolBlock(tool_id=tool_id, name=name)
        self._open[tool_id] = block
        return block

    def retract(self, block: ToolBlock) -> None:
        self._open.pop(block.tool_id, None)

    def call(self, content: Json, announced: ToolBlock | None) -> ToolBlock:
        """Show a finished call. It replaces the `announced` one, to which the worker may have given another id."""
        tool_id, called = as_text(content.get("id")), as_text(content.get("name"))
        name, tool_input = _meant(called, as_dict(content.get("input")))
        if announced is not None:
            self.retract(announced)
            tool = announced
            tool.tool_id, tool.name, tool.tool_input = tool_id, name, tool_input
            self._container.update_block(tool)
        else:
            tool = ToolBlock(tool_id=tool_id, name=name, tool_input=tool_input)
            self._container.add(tool)
        if traits_of(called).view is View.CHECKLIST:
            self.todos = Todos.read(tool_input.get("todos"))
            if self._snapshot_todos is not None:
                self._container.take_away(self._snapshot_todos)
                self._snapshot_todos = None
        if traits_of(called).view is View.AGENT and tool.agent is None:
            self.agents.called(tool)
        self._open[tool_id] = tool
        orphan = self._orphans.results.pop(tool_id, None)
        if orphan is not None:
            self.result(*orphan)
        return tool

    def start(self, tool_id: str) -> None:
        tool = self._open.get(tool_id)
        if tool is not None and tool.state is ToolState.WAITING:
            tool.state = ToolState.RUNNING
            self._container.update_block(tool)

    def progress(self, message: ToolProgressMessage) -> None:
        """Show what a running tool has printed so far. A command line of the person is shown while it runs."""
        tool = self._open.get(message.tool_use_id)
        if tool is None and message.tool_use_id.startswith(SHELL_CALL) and not self._line_over:
            tool_input = {"command": self.command_line.removeprefix("!").strip()}
            tool = ToolBlock(tool_id=message.tool_use_id, name=BASH.name, tool_input=tool_input)
            self._open[tool.tool_id] = tool
            self._container.add(tool)
        if tool is not None and tool.state not in (ToolState.DONE, ToolState.FAILED):
            tool.state = ToolState.RUNNING
            tool.elapsed_s = as_number(message.body.get("elapsed_time_seconds"))
            if not message.body.get("heartbeat"):  # a sign of life says nothing about the output
                tool.output = as_text(message.body.get("output"))[-MAX_BLOCK_CHARS:]
            self._container.update_block(tool)

    def line_begins(self) -> None:
        self._line_over = False

    def line_over(self) -> None:
        """A command line of the person has ended: what it printed is shown in place of its live output."""
        self._line_over = True
        for tool_id in [each for each in self._open if each.startswith(SHELL_CALL)]:
            self._container.take_away(self._open.pop(tool_id))

    def told(self, note: TaskMessage) -> None:
        """Take what the worker says about a task. A skill may start an agent; other tools that do, run commands."""
        tool = self._open.get(note.tool_use_id)
        if tool is not None and traits_of(tool.name).effect is Effect.NONE and tool.agent is None:
            self.agents.called(tool)
        self.agents.told(note)

    def result(self, result: Json, structured: Any) -> None:
        """Show the result of a call. `structured` is the public `tool_use_result`, which holds the patch of an edit."""
        tool = self._open.pop(as_text(result.get("tool_use_id")), None)
        if tool is None:
            self._orphans.note_result(result, structured)
            return
        tool.state = ToolState.FAILED if result.get("is_error") else ToolState.DONE
        tool.result = both_ends(result_text(result))
        tool.output = ""
        self._pictures.keep(tool, pictures_of(as_blocks(result.get("content"))))
        self.agents.result(tool, structured)
        if traits_of(tool.name).view is View.PLAN and isinstance(structured, dict):
            tool.tool_input = {"plan": both_ends(str(structured.get("plan") or ""))}
        patch = as_dict(structured).get("structuredPatch")
        tool.patch = as_blocks(patch) if isinstance(patch, list) else []
        self._container.update_block(tool)

    def close(self, state: ToolState, *, forget: bool = True) -> None:
        """Give all open calls this state. With `forget` results that come later are no longer expected."""
        for tool in self._open.values():
            tool.state = state
            if tool.tool_id.startswith(SHELL_CALL):  # nobody tells what it printed until it was ended
                tool.result, tool.output = both_ends(tool.output), ""
            self._container.update_block(tool)
        if forget:
            self._open.clear()

    def show_todos(self, todos: Sequence[Any]) -> None:
        """Show the list of todos of a snapshot, until the agent writes the next one."""
        self.todos = Todos.read(todos)
        tool_input = {"todos": list(todos)}
        self._snapshot_todos = ToolBlock(name=TODO_WRITE.name, tool_input=tool_input, state=ToolState.DONE)
        self._container.add(self._snapshot_todos)

    def adopt(self, earlier: ToolCalls, *, running: bool) -> None:
        self.agents.adopt(earlier.agents)
        for tool_id, tool in earlier._open.items():
            if running:
                self._open.setdefault(tool_id, tool)
            else:
                tool.state = ToolState.UNKNOWN
