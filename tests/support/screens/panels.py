"""Scenes of what a person opens above the input: lists, panels and pages."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

from tests.support.model.model_script import Json
from tests.support.repl.pilot import Desk
from tests.support.repl.scripted_session import ScriptedTask
from tests.support.screens.scenes import agents, answered, sessions

from ccb.local.ports.port_forwards import Forward, PortForwards, Reverse
from ccb.local.providers.known_models import ModelOffer
from ccb.local.session.session_client import SessionEvent
from ccb.local.slash_commands.this_laptop import RecentHost
from ccb.local.tui.panels.list_panel import HostPanel, ModelPanel
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.providers.model_traits import ModelTraits
from ccb.tunnel.wire.client_requests import LIST_RULES, REWIND_FILES, REWIND_POINTS

__all__ = [
    "agent",
    "changes",
    "conversation",
    "hosts",
    "models",
    "ports",
    "rules",
    "sessions",
    "settings",
    "tasks",
    "tools",
]

_LINES = [
    {
        "oldStart": 10,
        "oldLines": 3,
        "newStart": 10,
        "newLines": 3,
        "lines": ["     def total(self):", "-        return sum(self.prices)", "+        return sum(self.costs)", " "],
    }
]
_CHANGED = [
    {"path": "/srv/shop/cart.py", "insertions": 1, "deletions": 1, "does": "change"},
    {"path": "/srv/shop/tests/test_cart_with_several_items.py", "deletions": 41, "does": "remove"},
]
_RULES = [
    ("deny", "userSettings", "Read(**/.env)"),
    ("ask", "projectSettings", "Bash(git push:*)"),
    ("allow", "session", "Bash(python -m pytest:*)"),
    ("allow", "userSettings", "WebFetch(domain:docs.python.org)"),
]


async def changes(at: Desk) -> None:
    await answered(at)
    answers = at.session.control_answers
    answers[REWIND_POINTS.name] = {"points": [{"id": "p1", "text": "Repair it."}]}
    answers[REWIND_FILES.name] = {"files": [{**each, "patch": _LINES} for each in _CHANGED]}
    await at.give("/diff")
    await at.sees("cart.py", "self.costs")


async def rules(at: Desk) -> None:
    await answered(at)
    held = [{"behavior": behavior, "source": source, "rule": rule} for behavior, source, rule in _RULES]
    at.session.control_answers[LIST_RULES.name] = {"state": {"rules": held}}
    await at.give("/permissions")
    await at.sees("Permission rules", "Read(**/.env)")


async def conversation(at: Desk) -> None:
    await answered(at)
    at.session.past = [_said(seq) for seq in range(1, 30)]
    await at.give("/transcript")
    await at.sees("Conversation on devbox:/srv/shop", "29 of them")


def _said(seq: int) -> SessionEvent:
    text = f"I have looked at `cart.py`, and counted **{seq}** of them."
    message = {"id": f"m{seq}", "role": "assistant", "model": "m", "content": [{"type": "text", "text": text}]}
    return SessionEvent(
        "message", {"type": "assistant", "message": {**message, "usage": {}}, "uuid": f"u{seq}"}, seq, True
    )


async def tasks(at: Desk) -> None:
    """A server and an agent at work, and a command that has failed."""
    await agents(at)
    session, log = at.session, "".join(f"GET /api/items/{number} 200 {number % 9} ms\n" for number in range(120, 132))
    for task_id, does in (("bash_1", "Run the dev server"), ("bash_2", "Run all tests")):
        session.outputs[task_id] = ScriptedTask(log, seconds=130)
        started = {"task_id": task_id, "task_type": "local_bash", "description": does, "is_backgrounded": True}
        session.say({"type": "system", "subtype": "task_started", **started})
    ended = {"task_id": "bash_2", "status": "failed", "summary": f'Background command "{does}" failed with exit code 2'}
    session.say({"type": "system", "subtype": "task_notification", **ended})
    used = {"total_tokens": 8_100, "tool_uses": 2, "duration_ms": 130_000}
    call_id = at.view.reducer.agent_calls[-1].tool_id
    session.progress({"type": "system", "subtype": "task_progress", "task_id": call_id, "usage": used})
    await at.sees("8.1k tokens")
    await at.give("/tasks")
    await at.sees("Tasks: 2 running", "│ GET /api/items/131")


async def agent(at: Desk) -> None:
    """The conversation of a sub-agent."""
    await agents(at)
    call = at.view.reducer.agent_calls[-1]
    block = {"type": "text", "text": "Read the tests.\nSay what they leave out."}
    records: list[tuple[str, Json]] = [
        ("prompt", {"context": [], "items": [{"content": [block]}]}),
        ("message", {"type": "assistant", "message": {"content": [{"type": "text", "text": "I look for **gaps**."}]}}),
    ]
    at.session.past = [
        SessionEvent(kind, {**body, "agent_id": call.tool_id, "parent_tool_use_id": call.tool_id}, number, True)
        for number, (kind, body) in enumerate(records, 1)
    ]
    await at.press("down", "enter")
    await at.sees("I look for gaps.")


async def tools(at: Desk) -> None:
    await answered(at)
    await at.give("/tools")
    await at.sees("Tools of the agent on devbox")


async def hosts(at: Desk) -> None:
    await answered(at)
    places = [
        RecentHost("devbox", "/srv/shop", state="connected", here=True),
        RecentHost("alice@gpu-7.example.com", "/data/training/experiments", 7_200.0, "connection kept"),
        RecentHost("this machine", "/home/alice/notes", 260_000.0),
    ]
    at.view.reading.open(HostPanel(places, lambda host: None))
    await at.sees("gpu-7")


async def models(at: Desk) -> None:
    await answered(at)
    anthropic = ModelTraits(documents=True, thinking=True)
    fast = ModelTraits(262_144, thinking=True, efforts=("low", "high"))
    offers = [
        ModelOffer("sonnet", "anthropic", "", anthropic, 200_000, 3.0, 15.0, means="claude-sonnet-4-5"),
        ModelOffer("opus", "anthropic", "", anthropic, 200_000, 5.0, 25.0, means="claude-opus-4-5"),
        ModelOffer("fast", "lab", "", fast, 262_144, 0.0, 0.0, means="lab/qwen3-coder"),
        ModelOffer("anthropic.claude-opus-4-5-20251101-v1:0", "bedrock", "", anthropic, 200_000, 5.0, 25.0),
    ]
    at.view.reading.open(ModelPanel(offers, at.view.reducer.facts.model, "high", lambda name, level: None))
    await at.press("down", sees="high")


async def ports(at: Desk) -> None:
    """A port in each state, and one that the host reaches."""
    await answered(at)
    listening = {8000: "uvicorn", 9229: "node", 5173: "vite"}
    held = PortForwards(cast(Any, at.session), {"8000": "the api of the shop"})
    held.listening = {port: HostText(name) for port, name in listening.items()}
    connection = asyncio.get_running_loop().create_task(asyncio.sleep(0))
    for remote, local, pinned in ((5173, 40123, False), (5432, 5432, True)):
        held.forwards[remote] = Forward(remote, local, pinned, cast(Any, None), {connection} if not pinned else set())
    held.reverses = {3000: Reverse(3000, state=""), 3001: Reverse(3001, state="the host has ended it")}
    at.view.api.laptop = replace(at.view.api.laptop, ports=held)
    await at.give("/ports", sees="Ports of the host")
    await at.press("down", sees="› 5432")


async def settings(at: Desk) -> None:
    await answered(at)
    path = "user: /home/alice/.config/ccb/settings.json, line"
    rows = [("model", f'"opus"\n{path} 2'), ("keys", f'{{"details": "Ctrl+Y"}}\n{path} 3')]
    more = [("/config edit", "opens the file in your editor; it counts from the next run on")]
    at.view.reading.open_panel("Settings of this laptop", [("Set", rows), ("Change", more)])
    await at.sees("Settings of this laptop", '"opus"')
