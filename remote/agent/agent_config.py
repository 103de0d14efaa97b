"""The settings of an agent, and what its session lends it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Callable

from ccb.tunnel.wire.control_protocol import Broker
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import Projection
from ccb.tunnel.wire.model_facts import ModelNames, ModelTable
from ccb.tunnel.wire.session_options import SessionOptions
from ccb.tunnel.wire.tool_traits import BUILT_IN, FINDERS

from ..context.instructions import NestedInstructions
from ..context.reminders import Reminders
from ..context.system_prompt import SessionPrompt, instruction_sources
from ..hooks.hook_runner import HookRunner
from ..model import model_request
from ..model.model_call import CallSettings, Clock
from ..model.model_request import LONG_CONTEXT_BETA, ModelTransport, WindowSettings
from ..model.retry import RetrySettings
from ..permissions.engine import PermissionEngine
from ..session_store.session_log import SessionLog
from ..settings.worker_settings import WorkerSettings
from ..slash_commands.command_registry import CommandRegistry
from ..tools.agent_definitions import AgentDefinition
from ..tools.tool_contract import Tool, ToolContext
from ..tools.toolset import Toolset
from .turn_state import AgentProgram, Budget, Prompt, StructuredOutput

Lists = Callable[[], Sequence[Json]]


@dataclass
class Announced:
    """What gives the lists that clients are told. Commands and agents have a `name` and a `description`."""

    commands: Lists = lambda: ()
    agents: Lists = lambda: ()
    skills: Lists = lambda: ()
    mcp_servers: Lists = lambda: ()
    plugins: Lists = lambda: ()

    def init_fields(self) -> Json:
        lists = {"slash_commands": self.commands(), "agents": self.agents(), "skills": self.skills()}
        names = {field: [str(each.get("name", "")) for each in listed] for field, listed in lists.items()}
        return {"mcp_servers": list(self.mcp_servers()), **names, "plugins": list(self.plugins())}


@dataclass(frozen=True)
class AgentConfig:
    """The settings of one agent. Of `options` it uses the models and how they answer, the limit of calls in one turn,
    and which tools are offered. `judge` is the tool that decides where nobody can be asked, `role` the agent as which
    this one works. `label` names a sub-agent and its task; each turn ends with the value of `structured`; `refusal`
    says why no turn may start."""

    prompts: SessionPrompt
    tools: Toolset
    permissions: PermissionEngine
    context: ToolContext
    options: SessionOptions = field(default_factory=SessionOptions)
    take_queued: Callable[[str], Sequence[Prompt]] = lambda agent_id: ()
    label: str = ""
    settings: WorkerSettings = field(default_factory=WorkerSettings)
    judge: Callable[[], Tool | None] = lambda: None
    role: AgentDefinition | None = None
    announced: Announced = field(default_factory=Announced)
    structured: StructuredOutput | None = None
    budget: Budget | None = None
    refusal: str = ""

    @property
    def agent_type(self) -> str:
        return self.label.partition(": ")[0]

    @property
    def window(self) -> WindowSettings:
        found = WindowSettings.from_env({**os.environ, **self.settings.env})
        if not found.window and LONG_CONTEXT_BETA in self.options.betas:
            found = WindowSettings(1_000_000, found.auto)
        auto = self.settings.value("autoCompactEnabled")
        return found if auto is None or auto.value is not False else WindowSettings(found.window, auto=False)

    @property
    def names(self) -> ModelNames:
        return ModelNames(self.options.model_aliases)

    def model_id(self, name: str | None) -> str:
        if self.options.foreign_agent:  # its name stands for its own choice
            return name or self.options.agent_name
        return model_request.resolve_model(name, self.names)

    def small_model(self, model: str) -> str:
        """Return the model for small questions beside `model`."""
        return model_request.small_model(model, self.options.small_model, self.names)

    def visible_tools(self, of: Iterable[Tool] | None = None) -> dict[str, Tool]:
        tools = self.tools if of is None else of
        return {tool.name: tool for tool in tools if self._offers(tool) and self.permissions.visible(tool.name)}

    def _offers(self, tool: Tool) -> bool:
        named = self.options.tools
        offered = self.role is None or tool.name in FINDERS or self.role.offers(tool.name)
        return offered and (named is None or tool.name in named or tool.name not in BUILT_IN)

    def callable_tools(self) -> dict[str, Tool]:
        tools = self.visible_tools()
        aliases = self.options.tool_aliases.items()
        return {**tools, **{alias: tools[str(name)] for alias, name in aliases if str(name) in tools}}

    def listed_tools(self, *, can_ask: bool) -> tuple[Tool, ...]:
        """Return the visible tools that every request declares, in order."""
        visible, deferred = self.visible_tools(), self.deferred_tools()
        named = self.options.tools or ()
        return tuple(
            tool
            for tool in visible.values()
            if (can_ask or not tool.traits.asks)
            and tool.name not in deferred
            and (tool.traits.beside not in visible or tool.name in named)
        )

    def deferred_tools(self) -> dict[str, Tool]:
        """Return the visible tools that no request declares, by name."""
        return self.visible_tools(self.tools.deferred)


@dataclass(frozen=True)
class AgentDeps:
    """What a session lends to each of its agents. `link_up_since`: the monotonic time since which the laptop is
    connected, None while it is not. `reminders` and `nested` are this agent's own; a sub-agent has no `commands`."""

    log: SessionLog
    transport: ModelTransport
    broker: Broker
    version: str
    hooks: HookRunner
    nested: NestedInstructions
    link_up_since: Callable[[], float | None] = lambda: 0.0
    heartbeat_s: float = 30.0
    limits: RetrySettings = field(default_factory=RetrySettings)
    clock: Clock = field(default_factory=Clock)
    reminders: Reminders = field(default_factory=Reminders)
    followers: Sequence[Projection] = ()
    commands: CommandRegistry = field(default_factory=CommandRegistry)
    models: ModelTable = field(default_factory=ModelTable)
    program: AgentProgram | None = None
    """The agent of others that works in place of ccb's own loop."""

    def of_child(self, config: AgentConfig, activity: Projection) -> AgentDeps:
        """Return what a sub-agent with `config` gets, whose records `activity` follows."""
        context = config.context
        nested = NestedInstructions(context.cwd, context.cages.home, instruction_sources(config.options))
        reminders, commands = Reminders(), CommandRegistry()
        return replace(self, nested=nested, reminders=reminders, commands=commands, followers=(activity,))

    def call_settings(
        self, body: list[bytes], *, withdraw_truncated: bool = False, betas: Sequence[str] = (), thinks: bool = False
    ) -> CallSettings:
        return CallSettings(
            transport=self.transport,
            clock=self.clock,
            silence=self.limits.thinking_silence if thinks else self.limits.silence,
            headers=model_request.headers(self.version, betas),
            body=body,
            withdraw_truncated=withdraw_truncated,
            link_up_since=self.link_up_since,
        )
