"""The sub-agents of one session: which there are, and how one is started."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Callable

from ccb.tunnel.wire import SessionOptions
from ccb.tunnel.wire.model_names import may_be_model
from ccb.tunnel.wire.records import MAIN_AGENT, MessageRecord
from ccb.tunnel.wire.tool_traits import DEFAULT_AGENT

from ..agent.agent import Agent
from ..agent.deps import AgentConfig
from ..agent.histories import AgentHistory
from ..agent.messages import status
from ..journal.journal import Journal
from ..permissions.child import ChildPermissions
from ..ports import Emitter
from ..settings.worker_settings import WorkerSettings
from ..tools.agents.built_in import BUILT_IN_AGENTS
from ..tools.agents.definition import INHERIT, AgentDefinition
from ..tools.agents.task import Task
from ..tools.contract import ToolContext, ToolResult
from ..tools.files.file_state import FileState
from ..tools.registry import ToolRegistry
from ..tools.shell.shells import Shells
from ..tools.todo import TodoList
from .child import Child
from .prompt import ChildPrompt
from .recovery import earlier_run
from .task_messages import TaskFacts

Json = dict[str, Any]

MAX_AT_ONCE = 8
"""Sub-agents of a session that work at the same time. More wait for their turn."""

PROJECT_AGENTS = ".claude/agents"
"""Where a directory of a project defines agents."""

MakeAgent = Callable[[AgentConfig, AgentHistory, Emitter], Agent]


class SubAgents:
    """Starts sub-agents of `main`. `make` makes an agent of the session, `emitter(agent_id)` its emitter; `journal` has
    the histories of those that have ended."""

    def __init__(self, main: Agent, make: MakeAgent, emitter: Callable[[str], Emitter], journal: Journal) -> None:
        self._main = main
        self._make = make
        self._emitter = emitter
        self._journal = journal
        self._running: set[str] = set()
        self._definitions = {each.name: each for each in BUILT_IN_AGENTS}
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    @property
    def definitions(self) -> tuple[AgentDefinition, ...]:
        """The agents that can be started, the built-in ones first."""
        return tuple(self._definitions.values())

    def define(self, definitions: Iterable[AgentDefinition]) -> None:
        """Offer these agents besides the built-in ones from the next turn on, in place of those of the last call. A
        definition with the name of a built-in agent replaces it."""
        known = {each.name: each for each in (*BUILT_IN_AGENTS, *definitions)}
        if known != self._definitions:
            self._definitions = known
            self._main.config.tools.redeclare(Task(known.values()))

    def listed(self) -> list[Json]:
        """Return what clients are told about each agent."""
        return [
            {"name": each.name, "description": each.description, "model": each.model or INHERIT, "source": each.source}
            for each in self._definitions.values()
        ]

    def refusal(self, tool_input: Json) -> str | None:
        """See `SubAgentRunner`."""
        name, model = tool_input.get("subagent_type") or DEFAULT_AGENT, tool_input.get("model")
        if name not in self._definitions:
            return f"There is no agent {name!r}. The agents are: {', '.join(self._definitions)}."
        if model and model != INHERIT and not may_be_model(model):
            return f"{model!r} is not a model: leave it out, or use sonnet, opus, haiku or the full id of a model."
        return None

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        """See `SubAgentRunner`."""
        agent_id, name, history = self._whose(tool_input, context.tool_use_id)
        if agent_id in self._running:
            return ToolResult(f"The agent {agent_id!r} is still running.", is_error=True)
        definition = self._definitions.get(name)
        if definition is None:
            return ToolResult(f"There is no agent {agent_id!r} that could go on.", is_error=True)
        facts = TaskFacts(
            agent_id, definition.name, tool_input["description"], tool_input["prompt"], context.tool_use_id
        )
        self._running.add(agent_id)
        try:
            async with self._slots:
                child = Child(facts, self._emitter(MAIN_AGENT), self._emitter(agent_id), context)
                result = await self._run(child, definition, history, str(tool_input.get("model") or ""))
        finally:
            self._running.discard(agent_id)
        if child.refused:  # what the agent's turn was a part of ends with it
            self._main.interrupt()
        return result

    async def _run(self, child: Child, definition: AgentDefinition, history: AgentHistory, model: str) -> ToolResult:
        shells = Shells(child.context.cwd, child.context.tasks)
        own = replace(child.context, files=FileState(), shells=shells, todos=TodoList(), sub_agents=None)
        history.ledger.parent = self._main.ledger
        try:
            config = replace(self._config(definition, model, own), label=child.facts.label)
            agent = self._make(config, history, child.emitter)
            return await child.run(agent, history.ledger, self._main)
        finally:
            await shells.close()
            self._main.config.take_queued(history.conversation.agent_id)  # nobody reads what still waits for it

    def _whose(self, tool_input: Json, tool_use_id: str) -> tuple[str, str, AgentHistory]:
        """Return the id, the name and the history of the agent that a call is about."""
        resumed = tool_input.get("resume")
        if not resumed:
            return tool_use_id, tool_input.get("subagent_type") or DEFAULT_AGENT, AgentHistory(tool_use_id)
        name, history = earlier_run(self._journal.read(0, self._journal.seq), resumed)
        return resumed, name, history

    def _config(self, definition: AgentDefinition, model: str, context: ToolContext) -> AgentConfig:
        main = self._main.config
        permissions = ChildPermissions(
            main.permissions,
            definition.permission_mode,
            read_only=definition.read_only,
            mode_changed=self._tell_mode,
        )
        offered = (
            tool for tool in main.visible_tools().values() if not tool.traits.main_only and definition.offers(tool.name)
        )
        chosen = model or definition.model
        return AgentConfig(
            prompts=ChildPrompt(definition.prompt, main.prompts),
            tools=ToolRegistry(offered, main.deferred_tools()),
            permissions=permissions,
            context=context,
            model=self._main.model if chosen in ("", INHERIT) else chosen,
            max_turns=definition.max_turns,
            api_key_source=main.api_key_source,
            take_queued=main.take_queued,
            reasoning=main.reasoning,
            fallback_model=main.fallback_model,
        )

    def _tell_mode(self) -> None:
        permissions = self._main.config.permissions
        self._emitter(MAIN_AGENT).emit(MessageRecord(status(None, permissions.mode, permissions.cage_in_force)))


def defines_agents(options: SessionOptions, settings: WorkerSettings) -> bool:
    """Return whether there may be definitions besides the built-in ones, so that the catalogue must be read."""
    directories = (os.path.join(each, PROJECT_AGENTS) for each in settings.trusted_directories)
    return bool(options.agents or options.own_agents) or any(map(os.path.isdir, directories))
