"""What the answers of hooks change in a turn."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from tests.remote.agent_kit import calls, says
from tests.remote.subagents.delegation import MAIN, delegation

from ccb.tunnel.wire.session_options import SettingsOption

Json = dict[str, Any]


def hooks(**events: Json) -> Json:
    """Settings whose hooks answer each of these events with this `hookSpecificOutput`."""
    configured = {}
    for event, own in events.items():
        answer = json.dumps({"hookSpecificOutput": {"hookEventName": event, **own}})
        command = f"echo {shlex.quote(answer)}"
        configured[event] = [{"hooks": [{"type": "command", "command": command}]}]
    return SettingsOption(layers=[{"source": "user", "path": "s", "values": {"hooks": configured}}]).to_json()


async def test_a_hook_replaces_the_output_of_any_tool(tmp_path: Path) -> None:
    scripts = {MAIN: [calls(("b1", "Bash", {"command": "echo secret"})), says("done", "m2")]}
    settings = hooks(PostToolUse={"updatedToolOutput": "left out"})
    async with delegation(tmp_path, scripts, settings=settings, allowed_tools=["Bash"]) as d:
        result = await d.turn(MAIN + "go")
        assert d.result_text("b1") == "left out"
        assert "secret" not in json.dumps(d.model.requests[MAIN][1]["messages"][-1])
        assert result["ttft_ms"] >= 0


async def test_the_output_for_mcp_tools_leaves_that_of_other_tools(tmp_path: Path) -> None:
    scripts = {MAIN: [calls(("b1", "Bash", {"command": "echo fine"})), says("done", "m2")]}
    settings = hooks(PostToolUse={"updatedMCPToolOutput": "left out"})
    async with delegation(tmp_path, scripts, settings=settings, allowed_tools=["Bash"]) as d:
        await d.turn(MAIN + "go")
        assert d.result_text("b1") == "fine"


async def test_a_hook_names_the_session(tmp_path: Path) -> None:
    settings = hooks(UserPromptSubmit={"sessionTitle": "The  nightly\njob"})
    async with delegation(tmp_path, {MAIN: [says("done")]}, settings=settings) as d:
        await d.turn(MAIN + "go")
        (renamed,) = d.messages("system", "session_title_changed")
        assert renamed["title"] == "The nightly job"
