"""What a headless run does for SDK clients by itself: answers, the copy of the transcript, fields of the first
request."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ccb.local.command_line.parser import parse_arguments
from ccb.local.headless.headless_run import with_boot_fields
from ccb.local.headless.input_pump import AgentLines, OwnAnswers
from ccb.local.headless.output_formats import TranscriptMirror
from ccb.local.headless.stdin_input import EarlyInput
from ccb.tunnel.wire.messages import ControlRequest, parse_message

Json = dict[str, Any]


class Shown:
    """Stands for the output."""

    def __init__(self) -> None:
        self.bodies: list[Json] = []

    async def message(self, body: Json) -> None:
        self.bodies.append(body)

    async def progress(self, body: Json) -> None:
        raise AssertionError(body)

    async def result(self, body: Json) -> None:
        raise AssertionError(body)

    async def finish(self) -> None:
        raise AssertionError("nothing ends here")


def asked(subtype: str, **fields: object) -> ControlRequest:
    body = {"type": "control_request", "request_id": "r1", "request": {"subtype": subtype, **fields}}
    line = parse_message(body)
    assert isinstance(line, ControlRequest)
    return line


def test_what_a_run_knows_itself_is_answered_without_the_host() -> None:
    own = OwnAnswers()
    assert own.payload(asked("initialize", forwardSubagentText=True)) is None and own.forwards_text
    own.confirmed = {"mcp_servers_applied": True}
    answer = {"subtype": "success", "request_id": "r1", "response": {"models": [{"value": "opus"}], "pid": 1}}
    body = {"type": "control_response", "response": answer}
    shown = own.heard(parse_message(body), body)
    assert shown["response"]["response"] == {"models": [{"value": "opus"}], "pid": 1, "mcp_servers_applied": True}
    result = {"type": "result", "total_cost_usd": 0.5, "modelUsage": {"opus": {"costUSD": 0.5}}, "duration_api_ms": 7}
    for _ in range(2):
        assert own.heard(parse_message(result), result) == result
    assert own.payload(asked("list_models")) == {"models": [{"value": "opus"}]}
    version = own.payload(asked("get_binary_version"))
    assert version is not None and version["version"].startswith("2.")
    assert own.payload(asked("get_session_cost")) == {"text": "Total cost: $0.5000"}
    usage = own.payload(asked("get_usage"))
    assert usage is not None and (usage["session"]["total_cost_usd"], usage["session"]["total_api_duration_ms"]) == (
        0.5,
        14,
    )
    assert own.payload(asked("end_session")) == {} and own.payload(asked("interrupt")) is None


def test_the_usage_counts_the_lines_that_edits_have_added_and_removed() -> None:
    own = OwnAnswers()
    hunk = {"oldStart": 1, "newStart": 1, "lines": [" same", "-old", "+new", "+more"]}
    results: list[object] = [
        {"type": "create", "content": "one\ntwo\n", "structuredPatch": []},
        {"type": "update", "content": "new", "structuredPatch": [hunk]},
        {"structuredPatch": [hunk, "no hunk", {"lines": 7}]},
        {"stdout": "+no edit"},
        "text",
    ]
    for each in results:
        body: Json = {"type": "user", "message": {"role": "user", "content": []}, "tool_use_result": each}
        assert own.heard(parse_message(body), body) == body
    usage = own.payload(asked("get_usage"))
    assert usage is not None
    assert (usage["session"]["total_lines_added"], usage["session"]["total_lines_removed"]) == (6, 2)


async def test_a_transcript_is_copied_and_goes_on_behind_the_one_that_the_client_has(tmp_path: Path) -> None:
    shown = Shown()
    mirror = TranscriptMirror(shown, {"CLAUDE_CONFIG_DIR": str(tmp_path)}, Path("/srv/app.d"))
    file = tmp_path / "projects" / "-srv-app-d" / "s1.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text('{"uuid": "u0", "text": "a\u2028b\u0085c"}\n', encoding="utf-8")
    mirror.begin("s1")
    mirror.sent("i1", {"type": "user", "message": {"role": "user", "content": "hi"}})
    await mirror.taken("i1")
    await mirror.taken("i2")
    for body in (
        {"type": "assistant", "uuid": "u2", "message": {"content": []}, "timestamp": "2026-01-01T00:00:00.000Z"},
        {"type": "assistant", "uuid": "u3", "message": {"content": []}, "parent_tool_use_id": "t1"},
        {"type": "user", "uuid": "u4", "message": {"content": "hi"}, "isReplay": True},
        {"type": "system", "subtype": "init"},
    ):
        await mirror.message(parse_message(body), body)
    assert {each["filePath"] for each in shown.bodies} == {str(file)}
    entries = [entry for each in shown.bodies for entry in each["entries"]]
    assert [(each["type"], each["uuid"], each["parentUuid"]) for each in entries] == [
        ("user", "i1", "u0"),
        ("assistant", "u2", "i1"),
    ]
    assert all(each["sessionId"] == "s1" and each["timestamp"].endswith("Z") for each in entries)


def test_the_lines_of_a_sub_agent_name_it_and_its_task() -> None:
    lines = AgentLines()

    def named(body: Json) -> Json:
        return lines.named(parse_message(body), body)

    task = {"type": "system", "subtype": "task_started", "task_id": "t1", "tool_use_id": "t1"}
    named({**task, "subagent_type": "Explore", "description": "Find the parser"})
    line = named({"type": "assistant", "message": {"content": []}, "parent_tool_use_id": "t1"})
    assert (line["agent_id"], line["subagent_type"]) == ("t1", "Explore")
    assert line["task_description"] == "Find the parser"
    assert "agent_id" not in named({"type": "assistant", "message": {"content": []}, "parent_tool_use_id": None})


async def test_the_first_request_may_bring_what_others_write_into_the_command_line() -> None:
    streams = ["--input-format=stream-json", "--output-format=stream-json", "--verbose", "--await-initialize"]
    arguments = parse_arguments([*streams, "--disallowedTools=Bash"])
    request: Json = {"mcpServers": {"a": {"command": "x"}}, "settings": {"k": 1}, "disallowedTools": ["Read"]}
    request["plugins"] = [{"type": "local", "path": "/p"}]
    given, confirmed = with_boot_fields(arguments, request)
    assert json.loads(given.sdk.mcp_config[0]) == {"mcpServers": {"a": {"command": "x"}}}
    assert given.sdk.settings == '{"k": 1}' and given.agent.disallowed_tools == ("Bash", "Read")
    assert confirmed == {
        "mcp_servers_applied": True,
        "settings_applied": True,
        "disallowed_tools_applied": True,
        "plugins_applied": True,
    }
    assert given.sdk.plugin_dirs == ("/p",)
    assert with_boot_fields(arguments, {}) == (arguments, {})
    shown = Shown()
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "wb", buffering=0) as client:
        async with EarlyInput(reader, shown.message) as stdin:
            first = {"type": "control_request", "request_id": "r1", "request": {"subtype": "initialize"}}
            client.write(json.dumps(first).encode() + b"\n")
            assert await stdin.first_request() == {"subtype": "initialize"}
            client.close()
            assert [each async for each in stdin.messages()] == [first]
