"""The official npm SDK, unmodified, drives ccb: on this machine, and over a real sshd with lost connections."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.conformance.official_sdks import asked, calls, npm_sdk, over_ssh, program_ccb, text_of_deltas
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import relay
from tests.support.person.laptop import Laptop

pytestmark = pytest.mark.visited


async def test_a_client_with_tools_hooks_and_permissions(laptop: Laptop, fake_model: FakeModel, project: Path) -> None:
    fake_model.add(
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
    settings = {
        "cli": program_ccb(project.parent),
        "cwd": str(project),
        "prompts": ["work", "more"],
        "controls": True,
        "more": more,
        "server": {"tools": [{"name": "add", "permission_policy": "always_ask"}], "timeout": 30_000},
    }
    async with npm_sdk(laptop, settings) as program:
        await program.end()
    assert [each["given"] for each in program.of("tool")] == [{"a": 1, "b": 2}]
    assert [each["name"] for each in program.of("asked")] == ["mcp__calc__add", "Bash"], "the server asks for its tool"
    assert [(each["event"], each["tool"]) for each in program.of("hook")] == [("PreToolUse", "Bash")]
    assert (project / "made").exists()
    system = json.dumps((fake_model.requests[0].body or {})["system"])
    assert "APPENDED" in system and "You review." in system and "You are ccb" not in system and "BELOW" not in system
    assert "the sum is 3" in fake_model.requests[1].tool_result_text
    results = program.messages("result")
    assert [(each["subtype"], each["result"]) for each in results] == [("success", "three"), ("success", "again")]
    assert [(each["result_index"], each["queued_turn_count"]) for each in results] == [(0, 0), (1, 0)]
    assert not program.of("error") and program.of("info")[0]["models"] > 1
    assert "Esperanto" in json.dumps((fake_model.requests[0].body or {})["system"])
    answers = program.of("asked_for")[0]
    assert answers["settings"]["effective"]["language"] == "Esperanto" and "session" in answers["usage"]
    assert "mcp__calc__add" in [each["rule"] for each in answers["rules"]["state"]["rules"]]
    assert [each["event"] for each in answers["hooks"]["hooks"]] == ["PreToolUse"]
    assert answers["skills"] == {"skills": []} and "reviewer" in [each["name"] for each in answers["plugins"]["agents"]]
    assert "start another session" in answers["moved"]
    titles = [each["title"] for each in program.messages("system") if each["subtype"] == "session_title_changed"]
    assert titles == ["a name", "another name"]
    assert not list(laptop.home.glob(".local/state/ccb/sessions/*/journal.jsonl")), "nothing of the session stays"
    (status,) = program.of("mcp")[0]["status"]
    assert (status["name"], status["status"]) == ("calc", "connected")
    init = [each for each in program.messages("system") if each["subtype"] == "init"]
    assert len(init) == 2 and "reviewer" in init[0]["agents"] and init[0]["claude_code_version"].startswith("2.")


async def test_the_form_of_a_server_is_filled_in_by_the_program(
    laptop: Laptop, fake_model: FakeModel, project: Path, tmp_path: Path
) -> None:
    fake_model.add(calls(("mcp__notes__clear", {})), {"text": "cleared"})
    root = str(Path(__file__).parents[2])
    args = ["-m", "tests.support.mcp_server", str(tmp_path / "calls")]
    notes = {"type": "stdio", "command": sys.executable, "args": args, "env": {"PYTHONPATH": root}}
    settings = {
        "cli": program_ccb(project.parent),
        "cwd": str(project),
        "prompts": ["clear"],
        "more": {"mcpServers": {"notes": notes}, "allowedTools": ["mcp__notes__clear"]},
    }
    async with npm_sdk(laptop, settings) as program:
        await program.end()
    assert [(each["server"], each["message"]) for each in program.of("form")] == [("notes", "Throw all notes away?")]
    assert "the answer is accept" in fake_model.requests[-1].tool_result_text


async def test_over_ssh_with_a_lost_connection_in_everything_nothing_runs_twice(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser, project: Path
) -> None:
    fake_model.add(
        calls(("mcp__calc__add", {"a": 1, "b": 2})),
        calls(("Bash", {"command": "touch made"})),
        calls(("Task", {"description": "look at it", "prompt": "look", "subagent_type": "reviewer"})),
        {"text": "WORDS OF THE REVIEWER", "first_delay": 0.5},
        {"text": "all of it is done now", "delay": 0.1},
        {"text": "a long answer that is broken off " * 20, "delay": 0.1},
        {**calls(("StructuredOutput", {"n": 7})), "first_delay": 0.5},
    )
    async with relay(sshd.port) as between:
        settings = {**over_ssh(project.parent, sshd, host_user, between.port), "cwd": str(project)}
        everywhere = {"prompts": ["work", "talk"], "long": "talk", "cut_in": ["tool", "hook", "question", "stream"]}
        async with npm_sdk(laptop, {**settings, **everywhere}) as program:
            for where in ("tool", "hook", "question"):
                await program.until("waits", where=where)
                between.cut()
                program.go_on()
            for requests in (4, 5):  # in the sub-agent, and in an answer of the main agent
                await fake_model.until(asked(requests))
                between.cut()
            await program.until("waits", where="stream")
            between.cut()
            program.go_on()  # it interrupts while there is no connection
            await program.end()
        first, second = program.messages("result")
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        more = {"resume": first["session_id"], "outputFormat": {"type": "json_schema", "schema": schema}}
        async with npm_sdk(laptop, {**settings, "prompts": ["count"], "more": more}) as again:
            await fake_model.until(asked(7))
            between.cut()
            await again.end()
    assert len(program.of("tool")) == len(program.of("asked")) == len(program.of("hook")) == 1
    assert (host_user.home / "made").exists() and not list(project.iterdir())
    assert fake_model.requests[4].tool_result_text.startswith("WORDS OF THE REVIEWER")
    assert (first["result"], second["subtype"]) == ("all of it is done now", "error_during_execution")
    said = text_of_deltas(program.messages("stream_event"))
    assert said.startswith("all of it is done nowa")  # and the rest was interrupted
    (counted,) = again.messages("result")
    assert counted["structured_output"] == {"n": 7} and not again.of("error")
    assert "all of it is done now" in json.dumps(fake_model.requests[6].messages) and len(fake_model.requests) == 7
