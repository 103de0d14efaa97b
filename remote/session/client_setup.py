"""What a client's command line and initialize change."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Callable

from ccb.tunnel.wire.control_protocol import AnsweredBy, Broker, Request, RequestFailed, RequestRefused
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.mcp_messages import LAPTOP_MCP_MESSAGE, MCP_MESSAGE, McpMessage, tool_name
from ccb.tunnel.wire.model_facts import ModelTable
from ccb.tunnel.wire.outside_messages import PUSHED
from ccb.tunnel.wire.policy_patterns import NOT_ALLOWED, is_allowed
from ccb.tunnel.wire.session_options import SessionOptions

from ..agent.agent import Agent
from ..agent.agent_config import AgentConfig
from ..agent.turn_state import AgentProgram, Budget, StructuredOutput
from ..context.system_prompt import style_names
from ..mcp.host_servers import Wanted, channels_to, project_servers
from ..mcp.mcp_client import ELSEWHERE_S, RefusedChannel, RequestChannel, answer_form
from ..mcp.mcp_servers import IN_CLIENT, OF_AGENT, ON_HOST, ON_LAPTOP, McpServers
from ..permissions.modes import Sandbox, SandboxError
from ..session_store.journal import NotKept
from ..session_store.refusal import HostRefusal
from ..settings.worker_settings import WorkerSettings
from ..slash_commands.mcp_prompts import prompt_commands
from ..subagents.agent_catalogue import own_servers
from ..system.deadline import in_thread, within
from ..system.process import without_ccb
from ..tools.agent_definitions import AgentDefinition

_FIELDS: dict[str, tuple[str, type]] = {
    "systemPrompt": ("system_prompt", list),
    "appendSystemPrompt": ("append_system_prompt", str),
    "planModeInstructions": ("plan_instructions", str),
    "title": ("title", str),
    "agents": ("agents", dict),
    "jsonSchema": ("json_schema", dict),
    "hooks": ("client_hooks", dict),
    "toolAliases": ("tool_aliases", dict),
    "appendSubagentSystemPrompt": ("append_agent_prompt", str),
    "sdkMcpServers": ("client_mcp", list),
    "skills": ("skills", list),
    "excludeDynamicSections": ("static_prompt", bool),
}
_KINDS: dict[type, str] = {list: "a list of texts", str: "text", dict: "an object", bool: "true or false"}


@dataclass(frozen=True)
class Initialize:
    """The fields of an `initialize` request, as options. `replaces`: earlier MCP servers go."""

    options: Json = field(default_factory=dict)
    hooks: bool = False
    title: str = ""
    replaces: bool = False

    @staticmethod
    def read(fields: Json) -> Initialize:
        options: Json = {}
        for name, (option, kind) in _FIELDS.items():
            value = fields.get(name)
            if name == "systemPrompt" and isinstance(value, str):
                value = [value]
            if value is None:
                continue
            texts = value if kind is list else []
            if not isinstance(value, kind) or not all(isinstance(each, str) for each in texts):
                raise RequestRefused(f"{name} must be {_KINDS[kind]}")
            options[option] = "\n\n".join(texts) if option == "system_prompt" else value
        given = fields.get("sdkMcpServerConfigs")
        if isinstance(given, dict):
            options["client_mcp_configs"] = {str(name): each for name, each in given.items() if isinstance(each, dict)}
        title = options.pop("title", "")
        return Initialize(options, "client_hooks" in options, title)


_WHOSE = {"project": "of the project", "agent": "of the agent", "user": "on the laptop"}
_PATIENCE_S = 8.0  # a turn waits for MCP servers without a word


class ClientSetup:
    """The MCP servers of a session. `say` tells the person."""

    def __init__(self, agent: Agent, broker: Broker, say: Callable[[str], None]) -> None:
        self._agent, self._broker, self._say = agent, broker, say
        self.servers = servers = McpServers(agent.config.tools, push=self._push)
        agent.commands.provide(lambda: prompt_commands(servers))
        agent.reminders.follow(servers.due)
        agent.config.announced.mcp_servers = servers.summary
        self._described: object = None  # what the servers of files were last made of
        self._told: dict[str, str] = {}  # why servers of the project are not connected
        self._noted: dict[str, set[str]] = {}

    def use(self, options: SessionOptions) -> None:
        broker, limits = self._broker, call_seconds(options.client_mcp_configs)
        patterns = self._agent.config.settings.bound("mcpServers")
        inside = {
            name: RequestChannel(broker, MCP_MESSAGE, name, limits.get(name, ELSEWHERE_S))
            if is_allowed(f"sdk {name}", patterns)
            else RefusedChannel(NOT_ALLOWED.format(name))
            for name in options.client_mcp
        }
        self.servers.use(IN_CLIENT, inside)
        beside = {name: RequestChannel(broker, LAPTOP_MCP_MESSAGE, name) for name in options.laptop_mcp}
        self.servers.use(ON_LAPTOP, beside)
        self._agent.config.permissions.use_client(*tool_rules(options))

    def use_files(self, role: AgentDefinition | None, settings: WorkerSettings, options: SessionOptions) -> None:
        """Start the servers that the trusted project and the role bring. Names of other servers are theirs."""
        own = (*options.client_mcp, *options.laptop_mcp)
        project = settings if options.project_mcp else WorkerSettings()
        now = role, settings, own, options.project_mcp
        if now == self._described:
            return
        self._described = now
        context, servers = self._agent.config.context, self.servers
        forms = partial(answer_form, self._broker, self._agent.hooks)
        wanted = project_servers(project, context.cwd, without_ccb(os.environ))
        for name in [each for each in wanted if each in own]:
            del wanted[name]
            self._say(f"Your own MCP server {name} is used, and not the one that the project calls so.")
        servers.use(ON_HOST, channels_to(wanted, servers, context.host, forms))
        brought: dict[str, Wanted] = {}
        if role is not None:
            taken = {*own, *project.mcp_servers}
            brought, told = own_servers(role, taken, settings, context.cwd, strict=not options.project_mcp)
            for text in told:
                self._say(text)
        servers.use(OF_AGENT, channels_to(brought, servers, context.host, forms))

    async def settle(self, options: SessionOptions, patience_s: float | None = None) -> None:
        """Return when the servers are connected or have failed. The client's own are tried again."""
        self.use(options)
        for each in self.servers.status():
            if each["status"] == "failed" and each["name"] in options.client_mcp:
                self.servers.reconnect(each["name"])
        await self.servers.ready(_PATIENCE_S if patience_s is None else patience_s)
        waiting = [each["name"] for each in self.servers.summary() if each["status"] == "pending"]
        if waiting and patience_s is None:
            self._say(f"The agent waits for MCP servers to start: {', '.join(waiting)}.")
            await self.servers.ready()
        self._tell_failures()
        for name in {*options.channels} - {each["name"] for each in self.servers.summary()} - self._told.keys():
            self._told[name] = "not there"
            self._say(f"Nothing comes from the channel {name[:100]}: there is no MCP server of this name.")

    async def _push(self, name: str, text: str) -> None:
        """Leave what a server of the host pushes to the laptop: it asks the person, and puts it into the session."""
        if name in self._agent.config.options.channels:
            message = McpMessage(name, {"method": PUSHED, "params": {"content": text}})
            with suppress(RequestFailed, NotKept):
                await self._broker.request(Request(LAPTOP_MCP_MESSAGE, message, f"the channel {name}"))

    def _tell_failures(self) -> None:
        """Tell once why a server is not connected, when it is, and what is odd about its tools."""
        for each in self.servers.status():
            name, error, whose = each["name"], each.get("error", ""), _WHOSE.get(each["scope"])
            if whose and each["status"] != "pending" and error != self._told.get(name, ""):
                self._told[name] = error
                state = f"not connected: {error[:1000]}" if error else "connected now"
                self._say(f"The MCP server {name[:100]} {whose} is {state}.")
            note = str(each.get("note", ""))
            if note and note not in self._noted.setdefault(name, set()):
                self._noted[name].add(note)
                self._say(f"The MCP server {name[:100]}: {note}.")


def merged_configs(before: Json, given: Json) -> Json:
    found = dict(before)
    for name, config in given.items():
        old, new = found.get(name) or {}, config.get("tools")
        tools = [*(old.get("tools") or []), *(new if isinstance(new, list) else [])]
        found[name] = {**config, **old, "tools": [each for n, each in enumerate(tools) if each not in tools[:n]]}
    return found


def tool_rules(options: SessionOptions) -> tuple[list[str], list[str]]:
    ask: list[str] = []
    deny: list[str] = []
    for server in options.client_mcp:
        tools = (options.client_mcp_configs.get(server) or {}).get("tools")
        for each in tools if isinstance(tools, list) else ():
            name, policy = (each.get("name"), each.get("permission_policy")) if isinstance(each, dict) else ("", None)
            if isinstance(name, str) and name and policy not in (None, "always_allow"):
                (deny if policy == "always_deny" else ask).append(tool_name(server, name))
    return ask, deny


def call_seconds(configs: Json) -> dict[str, float]:
    given = {name: each.get("timeout") for name, each in configs.items() if isinstance(each, dict)}
    return {name: ms / 1000 for name, ms in given.items() if isinstance(ms, (int, float)) and ms >= 1000}


def demanded(config: AgentConfig, options: SessionOptions, cost: float) -> AgentConfig:
    """Return the configuration with a client's schema and budget; an empty schema is none. Raise ValueError."""
    structured, schema = config.structured, options.json_schema
    if not schema:
        if structured is not None:
            config.tools.remove([structured.name])
        structured = None
    else:
        if schema.get("type", "object") != "object":
            raise ValueError("the JSON schema must be one of an object")
        schema = {"type": "object", **schema}
        if structured is None or structured.checked_schema != schema:
            structured = StructuredOutput(schema)
            config.tools.add([structured])
    limit = options.max_budget_usd
    budget = Budget(limit, cost + limit) if limit is not None else None
    if structured is config.structured and budget == config.budget:
        return config
    return replace(config, structured=structured, budget=budget)


_PROGRAM_S = 5.0
_MAX_OFFERED = 50


async def offered_models(program: AgentProgram) -> list[tuple[str, str]]:
    """Return value and name of each model of an agent of others, which knows them once it has started: wait a while."""
    with suppress(asyncio.TimeoutError):
        await within(_PROGRAM_S, program.settle())
    return list(program.facts.models.values.items())[:_MAX_OFFERED]


async def output_styles(agent: Agent) -> list[str]:
    return await in_thread(style_names, agent.config.settings, agent.config.context.cages.home)


_MAX_LAUNCHES = 32
_IF_GIVEN = ("system_prompt", "append_system_prompt", "sandbox")  # else they stay as they are
_IF_SET = ("model", "allow_bypass", "effort", "small_model", "compact_model")
_ADDED = ("model_facts", "thinking_models", "model_aliases")
_OF_THE_SESSION = {"permission_mode", "allow_net", "max_thinking_tokens", "model", "effort", "add_dirs", *_IF_GIVEN}


class ClientLaunches:
    """A client process's own `options` come from the driver; the session's stay until one sets them."""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options
        self.models = ModelTable()
        self.models.learn_all(options.model_facts, options.thinking_models)
        self._by_client: OrderedDict[str, Json] = OrderedDict()

    def can_ask(self, answered_by: AnsweredBy) -> bool:
        return answered_by is not AnsweredBy.PERSON or self.options.permission_prompts == "stdio"

    def merge(self, given: Json, sent: SessionOptions, mode: str) -> SessionOptions:
        """Return the options in force after a process that `given` names explicitly starts to drive."""
        old = self.options
        kept: Json = {name: getattr(old, name) for name in _IF_GIVEN if name not in given}
        kept.update({name: getattr(sent, name) or getattr(old, name) for name in _IF_SET})
        kept.update({name: {**getattr(old, name), **getattr(sent, name)} for name in _ADDED})
        kept["add_dirs"] = list(dict.fromkeys([*old.add_dirs, *sent.add_dirs]))
        if "permission_mode" not in given:
            kept["permission_mode"] = mode
        if sent.foreign_agent not in ("", old.foreign_agent):
            raise ValueError(f"the agent of this session is {old.foreign_agent or 'that of ccb'}: begin a new one")
        kept["foreign_agent"] = old.foreign_agent
        if sent.max_thinking_tokens is None:
            kept["max_thinking_tokens"] = old.max_thinking_tokens
        if not {"sandbox", "allow_net"} & given.keys():
            kept["allow_net"] = old.allow_net
        return replace(sent, **kept)

    def use(self, options: SessionOptions) -> None:
        self.options = options
        self.models.learn_all(options.model_facts, options.thinking_models)
        self.keep(options)

    def keep(self, options: SessionOptions) -> None:
        self._by_client.pop(options.client, None)
        self._by_client[options.client] = options.to_json()
        while len(self._by_client) > _MAX_LAUNCHES:
            self._by_client.popitem(last=False)

    def of_client(self, client: str) -> Json | None:
        """The options of a client's process, if another one's are in force: it takes the session back as before."""
        if client == self.options.client or client not in self._by_client:
            return None
        return {name: value for name, value in self._by_client[client].items() if name not in _OF_THE_SESSION}


def check_sandbox(sandbox: Sandbox, directories: Sequence[str]) -> None:
    try:
        sandbox.check(directories)
    except SandboxError as error:
        raise HostRefusal("no_sandbox", str(error), {"why": error.why, "place": error.about_place}) from None


def added_directories(cwd: str, options: SessionOptions) -> list[str]:
    return [os.path.normpath(os.path.join(cwd, os.path.expanduser(each))) for each in options.add_dirs]


def no_directory(path: str) -> str:
    return f"there is no directory {path} on the host. Create it: mkdir -p {shlex.quote(path)}"
