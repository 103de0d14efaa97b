"""The settings of an agent, and what its session lends it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Callable

from ccb.tunnel.wire.control_protocol import Broker
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.model_facts import CCB_NAMES, ModelNames, ModelTable
from ccb.tunnel.wire.projection import Projection
from ccb.tunnel.wire.session_options import SessionOptions
from ccb.tunnel.wire.tool_traits import BUILT_IN, FINDERS

from ..context.instructions import NestedInstructions
from ..context.reminders import Reminders
from ..context.system_prompt import SessionPrompt
from ..hooks.hook_runner import HookRunner
from ..model import model_request
from ..model.model_call import CallSettings, Clock
from ..model.model_request import LONG_CONTEXT_BETA, ModelTransport, Reasoning, WindowSettings
from ..model.retry import RetrySettings
from ..permissions.engine import PermissionEngine
from ..session_store.session_log import SessionLog
from ..settings.worker_settings import WorkerSettings
from ..slash_commands.command_registry import CommandRegistry
from ..tools.agent_definitions import AgentDefinition
from ..tools.tool_contract import Tool, ToolContext
from ..tools.toolset import Toolset
from .turn_state import Budget, Prompt, StructuredOutput

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
class OfferedTools:
    """`names`: the built-in tools, None for all; `aliases`: other names of tools; `judge`: the tool that decides where
    nobody can be asked; `role`: the agent as which this one works."""

    names: Sequence[str] | None = None
    aliases: Json = field(default_factory=dict)
    judge: Callable[[], Tool | None] = lambda: None
    role: AgentDefinition | None = None

    def has(self, tool: Tool) -> bool:
        offered = self.role is None or tool.name in FINDERS or self.role.offers(tool.name)
        return offered and (self.names is None or tool.name in self.names or tool.name not in BUILT_IN)


@dataclass(frozen=True)
class ModelChoice:
    """Aliases or ids. `fallback` takes over under overload, `small` answers small questions, `compact` writes summaries
    ("" for the agent's own); `names` are the short names; `key_source` says where the credential comes from."""

    model: str | None = None
    fallback: str | None = None
    small: str = ""
    compact: str = ""
    names: ModelNames = CCB_NAMES
    reasoning: Reasoning = Reasoning()
    key_source: str = "none"

    @staticmethod
    def of(options: SessionOptions) -> ModelChoice:
        choice = ModelChoice(options.model, options.fallback_model, options.small_model, options.compact_model)
        names, reasoning = ModelNames(options.model_aliases), Reasoning.of(options)
        return replace(choice, names=names, reasoning=reasoning, key_source=options.api_key_source)


@dataclass(frozen=True)
class AgentConfig:
    """The settings of one agent. `label` names a sub-agent and its task; `max_turns` limits model calls in one turn;
    each turn ends with the value of `structured`; `refusal` says why no turn may start."""

    prompts: SessionPrompt
    tools: Toolset
    permissions: PermissionEngine
    context: ToolContext
    models: ModelChoice = ModelChoice()
    max_turns: int | None = None
    take_queued: Callable[[str], Sequence[Prompt]] = lambda agent_id: ()
    label: str = ""
    settings: WorkerSettings = field(default_factory=WorkerSettings)
    offer: OfferedTools = field(default_factory=OfferedTools)
    announced: Announced = field(default_factory=Announced)
    partial_messages: bool = False  # clients want the raw events of the model's stream
    structured: StructuredOutput | None = None
    budget: Budget | None = None
    refusal: str = ""

    @property
    def agent_type(self) -> str:
        return self.label.partition(": ")[0]

    @property
    def window(self) -> WindowSettings:
        found = WindowSettings.from_env({**os.environ, **self.settings.env})
        if not found.window and LONG_CONTEXT_BETA in self.models.reasoning.betas:
            found = WindowSettings(1_000_000, found.auto)
        auto = self.settings.value("autoCompactEnabled")
        return found if auto is None or auto.value is not False else WindowSettings(found.window, auto=False)

    def with_options(self, options: SessionOptions) -> AgentConfig:
        return replace(self, models=ModelChoice.of(options), max_turns=options.max_turns)

    def visible_tools(self, of: Iterable[Tool] | None = None) -> dict[str, Tool]:
        tools = self.tools if of is None else of
        return {tool.name: tool for tool in tools if self.offer.has(tool) and self.permissions.visible(tool.name)}

    def callable_tools(self) -> dict[str, Tool]:
        tools = self.visible_tools()
        aliases = {alias: tools[str(name)] for alias, name in self.offer.aliases.items() if str(name) in tools}
        return {**tools, **aliases}

    def listed_tools(self, *, can_ask: bool) -> tuple[Tool, ...]:
        """Return the visible tools that every request declares, in order."""
        visible, deferred = self.visible_tools(), self.deferred_tools()
        named = self.offer.names or ()
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
    home: str = ""
    commands: CommandRegistry = field(default_factory=CommandRegistry)
    models: ModelTable = field(default_factory=ModelTable)

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
