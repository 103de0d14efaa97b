"""Read definitions of agents: Markdown files with front matter, and JSON objects of clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ccb.tunnel.wire.kinds.reasoning import EFFORTS

from ...settings.front_matter import read_markdown
from .definition import INHERIT, WORKTREE, AgentDefinition

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:.-]{0,63}")
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.*-]*")
_MODES = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions")
_NOT_USED = ("hooks", "mcpServers", "memory", "initialPrompt")
_MAX_DESCRIPTION = 2_000  # characters


def from_markdown(text: str, source: str) -> tuple[AgentDefinition | None, list[str]]:
    """Return the agent that a file defines, and what of it is not used. The agent is None for a file without front
    matter. Raise ValueError if the file is broken."""
    file = read_markdown(text)
    if file.fields is None:
        return None, []
    name = file.fields.get("name")
    if not isinstance(name, str):
        raise ValueError("it has no `name`")
    return from_fields(name, {**file.fields, "prompt": file.body}, source)


def from_fields(name: str, fields: Mapping[str, Any], source: str) -> tuple[AgentDefinition, list[str]]:
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
    isolation = str(fields.get("isolation") or "")
    if isolation not in ("", WORKTREE):  # without it the agent would work where it must not
        raise ValueError(f"the agent {name} asks for an isolation that ccb does not have: {isolation!r}")
    definition = AgentDefinition(
        name,
        " ".join(description.split())[:_MAX_DESCRIPTION],
        prompt,
        tools=_tools(name, fields.get("tools")),
        disallowed_tools=_tools(name, fields.get("disallowedTools")) or (),
        model=str(fields.get("model") or ""),
        permission_mode="" if mode == INHERIT else mode,
        max_turns=_turns(name, fields.get("maxTurns")),
        background=str(fields.get("background")).lower() == "true",
        isolation=isolation,
        source=source,
        effort=_effort(name, fields.get("effort")),
        skills=_listed(fields.get("skills")),
    )
    return definition, [f"the agent {name}: {key} is not used" for key in _NOT_USED if fields.get(key)]


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
