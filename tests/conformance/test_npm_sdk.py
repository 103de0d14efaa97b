"""The official npm SDK, unmodified, drives ccb: on this machine, and over a real sshd with lost connections."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.conformance.official_sdks import (
    EVERYWHERE,
    asked,
    calls,
    cut_everywhere,
    npm_sdk,
    over_ssh,
    text_of_deltas,
    work_to_cut,
)
from tests.support.hosts.reached_host import Host
from tests.support.network.relay import relay
from tests.support.person.laptop import Here

pytestmark = pytest.mark.visited


async def test_a_client_with_tools_hooks_and_permissions(here: Here) -> None:
    here.model.add(
        calls(("mcp__calc__add", {"a": 1, "b": 2}), ("Shell", {"command": "touch made"})),
        {"text": "three"},
        {"text": "again"},
    )
    more = {
        "settings": {"language": "Esperanto"},
        "settingsDelivery": "initialize",
        "title": "a name",
        "thinking": {"type": "disabled"},
        "persistSession": False,
        "toolAliases": {"Shell": "Bash"},
        "agent": "reviewer",
        "agents": {"reviewer": {"description": "Reviews code", "prompt": "You review."}},
        "appendSubagentSystemPrompt": "BELOW",
    }
    server = {"tools": [{"name": "add", "permission_policy": "always_ask"}], "timeout": 30_000}
    async with npm_sdk(here, "work", "more", controls=True, more=more, server=server) as program:
        await program.end()
    assert [each["given"] for each in program.of("tool")] == [{"a": 1, "b": 2}]
    assert [each["name"] for each in program.of("asked")] == ["mcp__calc__add", "Bash"], "the server asks for its tool"
    assert [(each["event"], each["tool"]) for each in program.of("hook")] == [("PreToolUse", "Bash")]
    assert (here.project / "made").exists()
    system = json.dumps((here.model.requests[0].body or {})["system"])
    assert "APPENDED" in system and "You review." in system and "You are ccb" not in system and "BELOW" not in system
    assert "the sum is 3" in here.model.requests[1].tool_result_text
    results = program.messages("result")
    assert [(each["subtype"], each["result"]) for each in results] == [("success", "three"), ("success", "again")]
    assert [(each["result_index"], each["queued_turn_count"]) for each in results] == [(0, 0), (1, 0)]
    assert not program.of("error") and program.of("info")[0]["models"] > 1
    assert "Esperanto" in json.dumps((here.model.requests[0].body or {})["system"])
    answers = program.of("asked_for")[0]
    assert answers["settings"]["effective"]["language"] == "Esperanto" and "session" in answers["usage"]
    assert "mcp__calc__add" in [each["rule"] for each in answers["rules"]["state"]["rules"]]
    assert [each["event"] for each in answers["hooks"]["hooks"]] == ["PreToolUse"]
    assert answers["skills"] == {"skills": []} and "reviewer" in [each["name"] for each in answers["plugins"]["agents"]]
    assert "start another session" in answers["moved"]
    titles = [each["title"] for each in program.messages("system") if each["subtype"] == "session_title_changed"]
    assert titles == ["a name", "another name"]
    assert not list(here.laptop.home.glob(".local/state/ccb/sessions/*/journal.jsonl")), "nothing of the session stays"
    (status,) = program.of("mcp")[0]["status"]
    assert (status["name"], status["status"]) == ("calc", "connected")
    init = [each for each in program.messages("system") if each["subtype"] == "init"]
    assert len(init) == 2 and "reviewer" in init[0]["agents"] and init[0]["claude_code_version"].startswith("2.")


async def test_the_form_of_a_server_is_filled_in_by_the_program(here: Here, tmp_path: Path) -> None:
    here.model.add(calls(("mcp__notes__clear", {})), {"text": "cleared"})
    root = str(Path(__file__).parents[2])
    args = ["-m", "tests.support.mcp_server", str(tmp_path / "calls")]
    notes = {"type": "stdio", "command": sys.executable, "args": args, "env": {"PYTHONPATH": root}}
    more = {"mcpServers": {"notes": notes}, "allowedTools": ["mcp__notes__clear"]}
    async with npm_sdk(here, "clear", more=more) as program:
        await program.end()
    assert [(each["server"], each["message"]) for each in program.of("form")] == [("notes", "Throw all notes away?")]
    assert "the answer is accept" in here.model.requests[-1].tool_result_text


async def test_over_ssh_with_a_lost_connection_in_everything_nothing_runs_twice(here: Here, host: Host) -> None:
    here.model.add(*work_to_cut())
    async with relay(host.server.port) as between:
        there = over_ssh(here.project.parent, host, between.port)
        async with npm_sdk(here, "work", "talk", **there, **EVERYWHERE) as program:
            await cut_everywhere(program, between, here.model)
        first, second = program.messages("result")
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        more = {"resume": first["session_id"], "outputFormat": {"type": "json_schema", "schema": schema}}
        async with npm_sdk(here, "count", more=more, **there) as again:
            await here.model.until(asked(7))
            between.cut()
            await again.end()
    assert len(program.of("tool")) == len(program.of("asked")) == len(program.of("hook")) == 1
    assert (host.home / "made").exists() and not list(here.project.iterdir())
    assert here.model.requests[4].tool_result_text.startswith("WORDS OF THE REVIEWER")
    assert (first["result"], second["subtype"]) == ("all of it is done now", "error_during_execution")
    said = text_of_deltas(program.messages("stream_event"))
    assert said.startswith("all of it is done nowa")  # and the rest was interrupted
    (counted,) = again.messages("result")
    assert counted["structured_output"] == {"n": 7} and not again.of("error")
    assert "all of it is done now" in json.dumps(here.model.requests[6].messages) and len(here.model.requests) == 7
