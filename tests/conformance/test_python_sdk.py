"""The official Python SDK, unmodified, drives ccb: on this machine, and over a real sshd with lost connections."""

from __future__ import annotations

import json
import signal

import pytest
from tests.conformance.official_sdks import (
    EVERYWHERE,
    Json,
    Program,
    asked,
    calls,
    cut_everywhere,
    over_ssh,
    python_sdk,
    text_of_deltas,
    work_to_cut,
)
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import name_of, with_home
from tests.support.network.relay import relay
from tests.support.person.laptop import Here

pytestmark = pytest.mark.visited

SCHEMA = {
    "type": "json_schema",
    "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
}


def touch(name: str) -> Json:
    return calls(("Bash", {"command": f"touch {name}"}))


def results(program: Program) -> list[Json]:
    return program.messages("ResultMessage")


def tool_results(program: Program) -> list[Json]:
    return [block for body in program.messages("UserMessage") for block in body["content"] if isinstance(block, dict)]


async def test_a_client_with_tools_hooks_and_permissions(here: Here) -> None:
    here.model.add(
        calls(("mcp__calc__add", {"a": 1, "b": 2})),
        calls(("mcp__calc__picture", {}), ("mcp__calc__fail", {})),
        {"text": "three"},
        touch("asked"),
        touch("forbidden"),
        touch("hooked"),
        calls(("Task", {"description": "look at it", "prompt": "look", "subagent_type": "reviewer"})),
        {"text": "WORDS OF THE REVIEWER"},
        {"text": "touched"},
        {"text": "a long answer that is broken off", "stall_after": 4},
    )
    async with python_sdk(here, "add", "touch", controls=True, long="talk") as program:
        await program.end()
    assert [each["given"] for each in program.of("tool")] == [{"a": 1, "b": 2}]
    first = here.model.requests[0]
    assert {"mcp__calc__add", "mcp__calc__picture", "mcp__calc__fail", "Bash"} <= set(first.tool_names)
    assert "APPENDED" in json.dumps((first.body or {})["system"])
    budget = (first.body or {})["output_config"]["task_budget"]
    assert budget == {"type": "tokens", "total": 50_000} and "thinking" not in (first.body or {})
    assert {"context-1m-2025-08-07", "task-budgets-2026-03-13"} <= set(first.headers["anthropic-beta"].split(","))
    assert here.model.requests[1].tool_result_text == "the sum is 3"
    seen, failed = here.model.requests[2].tool_results
    assert seen["content"][0]["type"] == "image" and failed["is_error"] and "on purpose" in str(failed["content"])
    assert sorted(path.name for path in here.project.iterdir()) == ["changed"]
    questions = program.of("asked")
    assert [each["input"]["command"] for each in questions] == ["touch asked", "touch forbidden"]
    assert all(each["suggestions"] and each["id"] for each in questions)
    assert [each["event"] for each in program.of("hook")].count("PreToolUse") == 3
    texts = [str(request.tool_result_text) for request in here.model.requests[4:7]]
    assert texts[1] == "not this one" and "the hook says no" in texts[2]
    done = results(program)
    assert [(each["subtype"], each["is_error"]) for each in done] == [
        ("success", False),
        ("success", False),
        ("error_during_execution", True),
    ]
    assert [each["tool_name"] for each in done[1]["permission_denials"]] == ["Bash", "Bash"]
    assert done[0]["usage"]["input_tokens"] > 0 and done[0]["total_cost_usd"] > 0 and done[0]["model_usage"]
    (info,) = program.of("info")
    assert "reviewer" in info["agents"]
    (status,) = program.of("mcp")[0]["status"]["mcpServers"]
    assert (status["status"], status["serverInfo"]["version"], len(status["tools"])) == ("connected", "1.2.3", 3)
    assert program.of("usage")[0]["usage"]["maxTokens"] > 0
    assert "must be one of" in program.of("refused")[0]["error"]
    inner = [each for each in program.messages("AssistantMessage") if each["parent_tool_use_id"]]
    assert not inner, "what a sub-agent says is shown to those who ask for it"
    (started,), (ended,) = (program.messages(f"Task{name}Message") for name in ("Started", "Notification"))
    assert (started["description"], started["task_type"], ended["status"]) == ("look at it", "local_agent", "completed")
    assert ended["summary"] == "WORDS OF THE REVIEWER" and ended["usage"]["total_tokens"] > 0
    kept = program.of("kept")[0]["messages"]
    assert kept[0]["content"] == "add" and json.dumps(kept).count('"tool_result"') == 7, "the session store has it all"
    init = [each for each in program.messages("SystemMessage") if each["subtype"] == "init"]
    assert len(init) == 3 and init[0]["data"]["mcp_servers"] == [{"name": "calc", "status": "connected"}]
    assert (init[2]["data"]["permissionMode"], "sonnet" in init[2]["data"]["model"]) == ("acceptEdits", True)
    assert "a-flag-of-the-future" in "".join(each["line"] for each in program.of("stderr"))
    states = [each["data"].get("state") for each in program.messages("SystemMessage")]
    assert not any(states), "states that only the SDK has asked for are not shown to its user"


async def test_over_ssh_with_a_lost_connection_in_everything_nothing_runs_twice(here: Here, host: Host) -> None:
    here.model.add(*work_to_cut({"text": "and the second turn"}))
    async with relay(host.server.port) as between:
        there = over_ssh(here.project.parent, host, between.port)
        async with python_sdk(here, "work", "more", **there, **EVERYWHERE) as program:
            await cut_everywhere(program, between, here.model)
        resumes = {"resume": results(program)[0]["session_id"], "output_format": SCHEMA}
        async with python_sdk(here, "count", options=resumes, **there) as again:
            await here.model.until(asked(8))
            between.cut()
            await again.end()
    assert len(program.of("tool")) == len(program.of("asked")) == 1
    assert [each["event"] for each in program.of("hook")] == ["PreToolUse", "Stop", "Stop"]
    assert (host.home / "made").exists() and not list(here.project.iterdir())
    assert here.model.requests[4].tool_result_text.startswith("WORDS OF THE REVIEWER")
    assert [each["result"] for each in results(program)[:2]] == ["all of it is done now", "and the second turn"]
    assert results(program)[2]["subtype"] == "error_during_execution" and len(results(program)) == 3
    said = text_of_deltas(program.messages("StreamEvent"))
    assert said.startswith("all of it is done nowand the second turna")  # and the rest was interrupted
    assert "reconnecting" in "".join(each["line"] for each in program.of("stderr"))
    assert results(again)[0]["structured_output"] == {"n": 7} and not again.of("error")
    assert "all of it is done now" in json.dumps(here.model.requests[7].messages) and len(here.model.requests) == 8


async def test_single_questions_with_a_schema_and_with_limits(here: Here) -> None:
    here.model.add(
        {"text": "seven", "when": {"user_contains": "count"}},
        {**calls(("StructuredOutput", {"n": 7})), "when": {"user_contains": "call StructuredOutput"}},
        {**calls(("Bash", {"command": "touch made"})), "when": {"user_contains": "touch"}},
        {"text": "not allowed, so I stop", "when": {"has_tool_result": True}},
        {"text": "expensive", "when": {"user_contains": "think"}},
    )

    async def ask(prompt: str, **options: object) -> Program:
        async with python_sdk(here, prompt, options=options) as program:
            await program.end()
        return program

    counted = await ask("count", output_format=SCHEMA, tools=["Read"])
    assert results(counted)[0]["structured_output"] == {"n": 7} and not counted.of("error")
    assert here.model.requests[0].tool_names == ["Read", "StructuredOutput"]
    assert "You are ccb" not in str((here.model.requests[0].body or {}).get("system"))
    denied = await ask("touch")
    assert (results(denied)[0]["is_error"], denied.of("error")) == (False, [])
    assert results(denied)[0]["permission_denials"] and not list(here.project.iterdir())
    spent = await ask("think", max_budget_usd=0.0001)
    assert results(spent)[0]["subtype"] == "error_max_budget_usd"
    assert [each["name"] for each in spent.of("error")] == ["ResultError"]


async def test_a_worker_that_is_killed_in_a_tool_of_the_client_is_followed_by_one(here: Here) -> None:
    here.model.add(
        calls(("mcp__calc__add", {"a": 1, "b": 2})), calls(("mcp__calc__add", {"a": 3, "b": 4})), {"text": "seven"}
    )
    async with python_sdk(here, "add", "again", cut_in=["tool"]) as program:
        await program.until("waits", where="tool")
        (daemon,) = [each for each in with_home(here.laptop.home) if name_of(each) == "ccb"]
        daemon.send_signal(signal.SIGKILL)
        await program.until("waits", where="tool")
        program.go_on()
        program.go_on()
        await program.end()
    assert [each["given"] for each in program.of("tool")] == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    first, second = results(program)
    assert (first["subtype"], first["is_error"], second["result"]) == ("error_during_execution", True, "seven")
    assert "interrupted" in here.model.requests[1].tool_result_text or "interrupted" in str(here.model.requests[1].body)
    assert {"mcp__calc__add", "Bash"} <= set(here.model.requests[1].tool_names)
