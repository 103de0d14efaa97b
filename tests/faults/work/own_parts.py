"""A piece of work with two agents of the project that bring their own MCP servers and their own hooks, work at the same
time, and are compacted in the middle of it."""

from __future__ import annotations

import json

from tests.faults.work.breadth import FULL
from tests.faults.work.piece import Answers, Json, Piece, say, tool
from tests.faults.work.servers import COMMAND, count

AGENTS = ("clerk", "scribe")
_HOOKED = {"PreToolUse": "before a call", "PostToolUse": "after a call", "PreCompact": "compacted", "Stop": "stopped"}
"""What the hooks of an agent note for each of these events."""


def system_of(agent: str) -> str:
    """Return the words in the system prompt of an agent that no other text has."""
    return f"You are the {agent} of this project."


def files() -> dict[str, str]:
    """Return the definitions of the agents, by the names of their files in the project."""
    return {f".claude/agents/{agent}.md": _definition(agent) for agent in AGENTS}


def _definition(agent: str) -> str:
    hooks = {event: [{"hooks": [{"type": "command", "command": _note(agent, event)}]}] for event in _HOOKED}
    parts = {"name": agent, "description": f"The {agent}.", "tools": "Read", "hooks": hooks}
    parts["mcpServers"] = {_server(agent): COMMAND}
    matter = "\n".join(f"{name}: {json.dumps(value)}" for name, value in parts.items())
    return f"---\n{matter}\n---\n{system_of(agent)}\n"


def _note(agent: str, event: str) -> str:
    """Return the command of a hook, which notes the word of a call, else only that it ran."""
    said = f"{agent} {_HOOKED[event]}"
    if event.endswith("ToolUse"):
        return f"""grep -o '"word": *"[^"]*' | sed 's/.*"/{said} /' >> ~/hooked; sleep 0.1"""
    return f"echo {said} >> ~/hooked; sleep 0.1"


def _server(agent: str) -> str:
    return f"books-{agent}"


def _counts(agent: str, until: str) -> Answers:
    first, second = (count(f"{agent}-{place}", server=_server(agent)) for place in ("one", "two"))
    first["input"]["until"] = until
    return lambda _: [
        {"blocks": [say("It fills up. " * 20), first], "usage": {"input_tokens": FULL}},
        {"blocks": [second]},
        {"text": f"The {agent} is done."},
    ]


def _tasks(_: str) -> list[Json]:
    return [
        {"blocks": [tool("Task", subagent_type=each, description=f"Do {each}", prompt="Count.") for each in AGENTS]},
        {"text": "Both have counted."},
    ]


ALLOWED = tuple(f"mcp__{_server(agent)}" for agent in AGENTS)

HOOKED = tuple(
    line
    for agent in AGENTS
    for line in (
        *(f"{agent} {when} a call {agent}-{place}" for when in ("before", "after") for place in ("one", "two")),
        *(f"{agent} {what}" for what in ("compacted", "stopped")),
    )
)  # fmt: skip
"""What the hooks of the agents have noted after an undisturbed session."""

OWN_PARTS = Piece(
    "let them count",
    _tasks,
    tuple(f"{agent}-{word}" for agent in AGENTS for word in ("one", "one-ended", "two", "two-ended")),
    systems={
        system_of("clerk"): _counts("clerk", "scribe-one-runs"),
        system_of("scribe"): _counts("scribe", "clerk-one-runs"),
    },
    moments=(*(f"{agent}-{place}-runs" for agent in AGENTS for place in ("one", "two")), "summary"),
)
