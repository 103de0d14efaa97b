"""The sub-agents of a session, and the tool calls under which they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL
from ccb.tunnel.wire.journal_records import AgentResultRecord, Record, ToolStartRecord
from ccb.tunnel.wire.projection import Projection, on
from ccb.tunnel.wire.tool_traits import DEFAULT_AGENT

from ..session.newest import MAX_ID
from .blocks import AgentRow, AgentRun, BlockContainer, RowState, ToolBlock

Json = dict[str, Any]

_MAX_AGENTS = 256


class AgentRuns(Projection):
    """Applies the records of sub-agents to the calls that started them. Others are passed over."""

    def __init__(self, container: BlockContainer) -> None:
        self._container = container
        # By agent id, oldest first, as long as the container has room for them.
        self._blocks: WeakValueDictionary[str, ToolBlock] = WeakValueDictionary()
        # Rows as long as their run has room for them: the open ones by agent id and id of the call, and by the id of a
        # request.
        self._rows: WeakValueDictionary[tuple[str, str], AgentRow] = WeakValueDictionary()
        self._asked: WeakValueDictionary[str, AgentRow] = WeakValueDictionary()

    @property
    def blocks(self) -> list[ToolBlock]:
        return list(dict.fromkeys(self._blocks.values()))

    def called(self, block: ToolBlock) -> None:
        block.agent = AgentRun()
        self._know(block.tool_id, block)

    def _know(self, agent_id: str, block: ToolBlock) -> None:
        if len(agent_id) <= MAX_ID:
            self._blocks[agent_id] = block
        while len(self._blocks) > _MAX_AGENTS:
            del self._blocks[next(self._blocks.keys())]

    def told(self, note: messages.TaskMessage) -> None:
        if note.subtype == "task_started" and note.tool_use_id in self._blocks:
            earlier = messages.as_text(note.body.get("agent_id"))  # it may go on
            for agent_id in filter(None, (note.task_id, earlier)):
                self._know(agent_id, self._blocks[note.tool_use_id])
        block = self._blocks.get(note.task_id)
        if block is None or block.agent is None:
            return
        name, usage = messages.as_text(note.body.get("subagent_type")), messages.as_dict(note.body.get("usage"))
        if name and "resume" in block.tool_input:  # the call does not name the agent that goes on
            block.tool_input = {**block.tool_input, "subagent_type": name}
        block.agent.tokens = int(messages.as_number(usage.get("total_tokens"))) or block.agent.tokens
        block.agent.seconds = messages.as_number(usage.get("duration_ms")) / 1000 or block.agent.seconds
        if note.subtype == "task_notification":
            self._end(note.task_id, block.agent)
        self._container.update_block(block)

    def result(self, block: ToolBlock, structured: object) -> None:
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
                row = AgentRow(str(block.get("name")), messages.as_dict(block.get("input")))
                run.rows.append(row)
                run.tool_uses += 1
                self._rows[record.agent_id, str(block.get("id"))] = row
        self._changed(record)

    @on(ToolStartRecord)
    def _started(self, content: ToolStartRecord, record: Record) -> None:
        self._set(record, content.tool_use_id, RowState.RUNNING)

    @on(messages.UserMessage)
    def _user(self, line: messages.UserMessage, record: Record) -> None:
        for block in line.blocks:
            if block.get("type") == "tool_result":
                state = RowState.FAILED if block.get("is_error") else RowState.DONE
                self._set(record, str(block.get("tool_use_id")), state)
                self._rows.pop((record.agent_id, str(block.get("tool_use_id"))), None)

    @on(messages.ControlRequest)
    def _asks(self, line: messages.ControlRequest, record: Record) -> None:
        row = self._rows.get((record.agent_id, str(line.request.get("tool_use_id"))))
        if line.subtype == CAN_USE_TOOL.name and row is not None:
            row.state = RowState.ASKS
            self._asked[line.request_id] = row
            self._changed(record)

    @on(messages.ControlCancel)
    def _withdrawn(self, line: messages.ControlCancel, record: Record) -> None:
        row = self._asked.pop(line.request_id, None)
        if row is not None and row.state is RowState.ASKS:
            row.state = RowState.WAITING
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
            self._end(record.agent_id, run)
            self._changed(record)

    def _end(self, agent_id: str, run: AgentRun) -> None:
        run.ended, run.note = True, ""
        for key in [key for key in self._rows if key[0] == agent_id]:
            self._rows.pop(key, None)

    def _set(self, record: Record, tool_use_id: str, state: RowState) -> None:
        row = self._rows.get((record.agent_id, tool_use_id))
        if row is not None:
            row.state = state
            self._changed(record)

    def _run(self, record: Record) -> AgentRun | None:
        block = self._blocks.get(record.agent_id)
        return block.agent if block is not None else None

    def _changed(self, record: Record) -> None:
        if (block := self._blocks.get(record.agent_id)) is not None:
            self._container.update_block(block)


def agent_label(tool_input: Mapping[str, Any]) -> str:
    """Return the agent and the task of a call in one line: `Explore: Find the parser`."""
    if "skill" in tool_input:
        return one_line(f"skill {tool_input['skill']}")
    name, task = tool_input.get("subagent_type") or DEFAULT_AGENT, tool_input.get("description") or ""
    return one_line(f"{name}: {task}" if task else str(name))
