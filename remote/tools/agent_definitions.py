"""The kinds of sub-agents, from Markdown files, from clients and built in, and the tool Task that starts them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.mcp_messages import rule_tool, server_name, unmarked
from ccb.tunnel.wire.model_facts import CCB_NAMES, EFFORTS, ModelNames
from ccb.tunnel.wire.tool_traits import DEFAULT_AGENT, EDIT, READ, TASK, WRITE, own_name

from ..hooks.hook_table import Hook, read_hooks
from ..model.model_request import SMALL
from ..settings.front_matter import NESTED, names_in, read_markdown, read_nested
from ..settings.worker_settings import LOCAL, PROJECT, USER, Layer, Sourced
from .input_schema import choice, flag, object_of, text
from .tool_contract import Json, Tool, ToolContext, ToolDeclaration, ToolResult

INHERIT = "inherit"
BUILT_IN_SOURCE = "built-in"
WORKTREE = "worktree"
_FOR_MEMORY = (READ.name, WRITE.name, EDIT.name)


@dataclass(frozen=True)
class AgentDefinition:
    """One kind of sub-agent. `tools` None: all that the main agent has. `model`, `permission_mode` and `effort` are
    those of the main agent if they are "". `read_only`: none of its calls may change anything. `skills` are known from
    the start. `servers` are MCP servers with their descriptions, None for one that the session has. `required` names
    MCP servers without which it cannot start. `path` is its file, on the laptop for an agent of the person."""

    name: str
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] = ()
    model: str = ""
    permission_mode: str = ""
    max_turns: int | None = None
    read_only: bool = False
    background: bool = False
    isolation: str = ""
    source: str = BUILT_IN_SOURCE
    effort: str = ""
    skills: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = ()
    servers: tuple[tuple[str, Json | None], ...] = ()
    memory: str = ""
    initial_prompt: str = ""
    required: tuple[str, ...] = ()
    path: str = ""

    def unmet(self, connected: Iterable[str]) -> str:
        """Return why the agent cannot start, "" if it can: a required MCP server is not among those `connected` and not
        one of its own. A part of a name is enough, and letter case does not count."""
        known = [name.casefold() for name in (*connected, *(name for name, given in self.servers if given is not None))]
        for each in self.required:
            if not any(each.casefold() in name for name in known):
                return f"The agent {self.name} needs the MCP server {each}, which is not connected in this session."
        return ""

    def offers(self, tool_name: str) -> bool:
        listed = (*(self.tools or ()), *(f"mcp__{server_name(name)}" for name, _ in self.servers))
        allowed = self.tools is None or any(_names(entry, tool_name) for entry in listed)
        allowed = allowed or bool(self.memory and tool_name in _FOR_MEMORY)
        names = (tool_name, unmarked(tool_name))
        return allowed and not any(_names(entry, name) for entry in self.disallowed_tools for name in names)


def _names(entry: str, tool_name: str) -> bool:
    if entry.startswith("mcp__"):
        entry = rule_tool(entry)
        server = entry[: -len("__*")] if entry.endswith("__*") else entry
        return tool_name == entry or (server.count("__") == 1 and tool_name.startswith(server + "__"))
    return entry == "*" or own_name(entry) == tool_name


BUILT_IN_AGENTS = (
    AgentDefinition(
        DEFAULT_AGENT,
        "For questions that take many searches, and for tasks of several steps that can be done on the side.",
        "You work through the task that you are given with the tools that you have, from start to end, and do no more "
        "than it asks. Search broadly when you do not know where something is, then read closely. Change files only if "
        "the task says so; edit what exists rather than making new files.",
    ),
    AgentDefinition(
        "Explore",
        "Fast, only reads. For finding files, code or answers about a code base. Say how thorough it should be.",
        "You find things in code: files, definitions, uses, the place where something happens. You only read; calls "
        "that would change anything are refused. Start wide with Glob and Grep, look into what you find, and send "
        "searches that do not depend on each other in one message. Stop when the question is answered.",
        model=SMALL,
        read_only=True,
    ),
    AgentDefinition(
        "Plan",
        "Only reads. For working out how to implement something, before it is done.",
        "You design how a change can be made. You only read; calls that would change anything are refused. Learn how "
        "the code does such things today, then describe the way: the steps in order, the files of each, what could "
        "break, how it is tested. Name the three to five files that matter most.",
        read_only=True,
    ),
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:.-]{0,63}")
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.*-]*")
_MODES = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions")
_MEMORIES = (USER, PROJECT, LOCAL)
_MAX_DESCRIPTION = 2_000  # characters


def from_markdown(text: str, source: str, names: ModelNames = CCB_NAMES) -> tuple[AgentDefinition | None, list[str]]:
    """Return the agent that a file defines, and what of it is not used. The agent is None for a file without front
    matter. `names` are the short names of models. Raise ValueError if the file is broken."""
    file = read_markdown(text)
    if file.fields is None:
        return None, []
    name = file.fields.get("name")
    if not isinstance(name, str):
        raise ValueError("it has no `name`")
    nested = {key: read_nested(file.lines[key]) for key in NESTED if key in file.lines}
    return from_fields(name, {**file.fields, "prompt": file.body, **nested}, source, names)


def from_fields(
    name: str, fields: Mapping[str, Any], source: str, names: ModelNames = CCB_NAMES
) -> tuple[AgentDefinition, list[str]]:
    """Return the agent with these fields of the public protocol, and what is not used. Raise ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for an agent")
    description, prompt = _text(name, "`description`", fields), _text(name, "prompt", fields)
    mode = _one_of(name, "permissionMode", fields, (INHERIT, *_MODES))
    model = str(fields.get("model") or "")
    if model not in ("", INHERIT) and not names.may_be(model):
        raise ValueError(f"the agent {name} has a model that is none: {model[:100]!r}")
    memory = _one_of(name, "memory", fields, _MEMORIES)
    problems: list[str] = []
    if memory == USER and source == PROJECT:  # its notes would be read by the person's own agent of that name
        problems.append(f"the agent {name}: an agent of a project keeps its memory in the project")
        memory = ""
    hooks = [Sourced(fields["hooks"], Layer(source, f"the agent {name}", {}))] if fields.get("hooks") else []
    definition = AgentDefinition(
        name,
        " ".join(description.split())[:_MAX_DESCRIPTION],
        prompt,
        tools=_tools(name, fields.get("tools")),
        disallowed_tools=_tools(name, fields.get("disallowedTools")) or (),
        model=model,
        permission_mode="" if mode == INHERIT else mode,
        max_turns=_turns(name, fields.get("maxTurns")),
        background=str(fields.get("background")).lower() == "true",
        isolation=_one_of(name, "isolation", fields, (WORKTREE,)),
        source=source,
        effort=_one_of(name, "effort", fields, EFFORTS),
        skills=names_in(fields.get("skills")),
        hooks=read_hooks(hooks, problems.append, names),
        servers=_servers(name, fields.get("mcpServers")),
        memory=memory,
        initial_prompt=str(fields.get("initialPrompt") or ""),
        required=names_in(fields.get("requiredMcpServers")),
    )
    return definition, problems


def _text(name: str, what: str, fields: Mapping[str, Any]) -> str:
    value = fields.get(what.strip("`"))
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"the agent {name} has no {what}")
    return value


def _servers(name: str, value: object) -> tuple[tuple[str, Json | None], ...]:
    found: dict[str, Json | None] = {}
    value = value or []
    for each in value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]:
        named = {each.strip(): None} if isinstance(each, str) else each
        if not isinstance(named, dict) or not all(isinstance(one, (dict, type(None))) for one in named.values()):
            raise ValueError(f"the agent {name}: mcpServers is a list of names, or of servers by name")
        found.update(named)
    return tuple(found.items())


def _tools(name: str, value: object) -> tuple[str, ...] | None:
    if value is None or value == "":
        return None
    names = names_in(value)
    wrong = next((each for each in names if not (each == "*" or _TOOL.fullmatch(each))), None)
    if wrong is not None:
        raise ValueError(f"the agent {name} names a tool {wrong!r}; only the names of tools are possible")
    return names


def _one_of(name: str, key: str, fields: Mapping[str, Any], allowed: Sequence[str]) -> str:
    value = str(fields.get(key) or "")
    if value not in ("", *allowed):
        raise ValueError(f"the agent {name} has an unknown {key} {value!r}: it is one of {', '.join(allowed)}")
    return value


def _turns(name: str, value: object) -> int | None:
    if value is not None and (not str(value).isdigit() or not 0 < int(str(value)) <= 10_000):
        raise ValueError(f"the agent {name}: maxTurns must be a number from 1 on")
    return None if value is None else int(str(value))


_TASK_SCHEMA = object_of(
    {
        "description": text("The task in three to five words, for the user", 1, 200),
        "prompt": text("The whole task for the agent", 1),
        "subagent_type": text(f"The agent; {DEFAULT_AGENT} if left out"),
        "model": text("sonnet, opus, haiku or the id of a model; usually left out"),
        "run_in_background": flag("Return at once; you are told when the agent ends"),
        "isolation": choice("Work in a git worktree of its own, on a new branch from the last commit", WORKTREE),
        "resume": text("The agentId of an agent that has ended: it goes on with all that it knows"),
    },
    "description",
    "prompt",
)

_TASK_DESCRIPTION = """\
Starts an agent that works on a task by itself and returns its answer. It has a context of its own: it sees nothing of \
this conversation, and only its answer comes back to you.
Agents:
{agents}
- Use one for a search that may take many steps, and for parts of the work that do not need each other. To read a \
known file or find one name, use the tools yourself.
- Several calls in one message run at the same time.
- Write into the prompt everything that the agent must know, whether it may change files, and what it should answer.
- The user does not see the answer: say what matters of it. Check what an agent says it has changed."""


class TaskTool(Tool):
    """Starts one of `agents`."""

    def __init__(self, agents: Iterable[AgentDefinition] = BUILT_IN_AGENTS) -> None:
        listed = "\n".join(f"- {agent.name}: {agent.description}" for agent in agents)
        self.declaration = ToolDeclaration(TASK, _TASK_DESCRIPTION.format(agents=listed), _TASK_SCHEMA)

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        if context.sub_agents is None:
            return "No agent can be started here."
        return context.sub_agents.refusal(tool_input)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        assert context.sub_agents is not None
        return await context.sub_agents.run(tool_input, context)
