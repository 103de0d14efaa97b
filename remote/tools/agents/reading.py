"""Read definitions of agents: Markdown files with front matter, and JSON objects of clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ccb.tunnel.wire.kinds.reasoning import EFFORTS
from ccb.tunnel.wire.models import CCB_NAMES, ModelNames

from ...hooks.table import Hook, HookSource, read_hooks
from ...settings.front_matter import NESTED, read_markdown
from ...settings.worker_settings import LOCAL, PROJECT, USER
from .definition import INHERIT, WORKTREE, AgentDefinition

Json = dict[str, Any]

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
    fields: Json = {**file.fields, "prompt": file.body}
    if any(name in file.lines for name in NESTED):
        from ...settings.nested_yaml import read_nested

        fields.update({key: read_nested(file.lines[key]) for key in NESTED if key in file.lines})
    return from_fields(name, fields, source, names)


def from_fields(
    name: str, fields: Mapping[str, Any], source: str, names: ModelNames = CCB_NAMES
) -> tuple[AgentDefinition, list[str]]:
    """Return the agent with these fields, which have the names of the public protocol, and what is not used. Raise
    ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for an agent")
    description, prompt = fields.get("description"), fields.get("prompt")
    if not isinstance(description, str) or not description.strip():
        raise ValueError(f"the agent {name} has no `description`")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"the agent {name} has no prompt")
    mode = str(fields.get("permissionMode") or "")
    if mode not in ("", INHERIT, *_MODES):
        raise ValueError(f"the agent {name} has an unknown permissionMode {mode!r}")
    model = str(fields.get("model") or "")
    if model not in ("", INHERIT) and not names.may_be(model):
        raise ValueError(f"the agent {name} has a model that is none: {model[:100]!r}")
    isolation = str(fields.get("isolation") or "")
    if isolation not in ("", WORKTREE):  # without it the agent would work where it must not
        raise ValueError(f"the agent {name} asks for an isolation that ccb does not have: {isolation!r}")
    memory = str(fields.get("memory") or "")
    if memory not in ("", *_MEMORIES):
        raise ValueError(f"the agent {name} has an unknown memory {memory!r}: it is one of {', '.join(_MEMORIES)}")
    problems: list[str] = []
    if memory == USER and source == PROJECT:  # its notes would be read by the person's own agent of that name
        problems.append(f"the agent {name}: an agent of a project keeps its memory in the project")
        memory = ""
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
        isolation=isolation,
        source=source,
        effort=_effort(name, fields.get("effort")),
        skills=_listed(fields.get("skills")),
        hooks=_hooks(name, fields.get("hooks"), source, problems, names),
        servers=_servers(name, fields.get("mcpServers")),
        memory=memory,
        initial_prompt=str(fields.get("initialPrompt") or ""),
        required=_listed(fields.get("requiredMcpServers")),
    )
    return definition, problems


def _hooks(name: str, value: object, source: str, problems: list[str], names: ModelNames) -> tuple[Hook, ...]:
    if not value:
        return ()
    return read_hooks([HookSource(value, source, f"the agent {name}")], problems.append, names)


def _servers(name: str, value: object) -> tuple[tuple[str, Json | None], ...]:
    """Return the MCP servers of an agent: a list of names and of objects with descriptions by name, or one object."""
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
    names = _listed(value)
    wrong = next((each for each in names if not (each == "*" or _TOOL.fullmatch(each))), None)
    if wrong is not None:
        raise ValueError(f"the agent {name} names a tool {wrong!r}; only the names of tools are possible")
    return names


def _listed(value: object) -> tuple[str, ...]:
    """Return the names in a list, or in a text with commas between them."""
    listed = str(value or "").split(",") if not isinstance(value, list) else value
    return tuple(text for each in listed if (text := str(each).strip()))


def _effort(name: str, value: object) -> str:
    level = str(value or "")
    if level not in ("", *EFFORTS):
        raise ValueError(f"the agent {name} has an unknown effort {level!r}: it is one of {', '.join(EFFORTS)}")
    return level


def _turns(name: str, value: object) -> int | None:
    if value is None:
        return None
    text = str(value)
    if not text.isdigit() or not 0 < int(text) <= 10_000:
        raise ValueError(f"the agent {name}: maxTurns must be a number from 1 on")
    return int(text)
