"""MCP servers of the person's own settings: they run on the laptop, and the agent on the host uses their tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.official_sdks import PLACE, require_sdks
from tests.e2e.headless.test_headless_local import STREAMS, user
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Laptop, tidy_laptop

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Iterator[Laptop]:
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        yield laptop


def notes(tmp_path: Path, **more: object) -> Json:
    """The description of the server in tests.support.mcp_server."""
    args = ["-m", "tests.support.mcp_server", str(tmp_path / "calls")]
    env = {"PYTHONPATH": str(ROOT), "NOTES_TOKEN": "${MY_TOKEN}"}
    return {"command": sys.executable, "args": args, "env": env, **more}


def settings(laptop: Laptop, servers: Json) -> None:
    path = laptop.home / ".config/ccb/settings.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))


async def test_the_agent_uses_a_server_of_the_laptop(laptop: Laptop, fake_model: FakeModel, tmp_path: Path) -> None:
    settings(laptop, {"notes": notes(tmp_path)})
    fake_model.add(uses("mcp__notes__add", a=19, b=23))
    fake_model.add(uses("mcp__notes__token"))
    fake_model.add({"text": "done"})
    argv = ["--model", "claude-x", "-p", "add", "--allowedTools", "mcp__notes__*"]
    done = await laptop.run([*argv, "--output-format", "stream-json", "--verbose"], MY_TOKEN="very-secret")
    assert done.code == 0, done.stderr
    results = [line for line in done.messages if line["type"] == "user"]
    assert [each["message"]["content"][0]["content"] for each in results] == ["42", "the token has 11 letters"]
    init = next(line for line in done.messages if line.get("subtype") == "init")
    assert init["mcp_servers"] == [{"name": "notes", "status": "connected"}]
    assert "mcp__notes__add" in init["tools"]
    (journal,) = laptop.home.glob(".local/state/ccb/sessions/*/journal.jsonl")
    assert "very-secret" not in journal.read_text() and "MY_TOKEN" not in journal.read_text()
    assert (tmp_path / "calls").read_text() == "add 19 23\ntoken\n"


async def test_a_server_that_ends_starts_again_and_its_new_tools_count_from_the_next_turn(
    laptop: Laptop, fake_model: FakeModel, tmp_path: Path
) -> None:
    settings(laptop, {"notes": notes(tmp_path, env={"PYTHONPATH": str(ROOT)}), "gone": {"command": "/nonexistent/mcp"}})
    for name, given in (("leave", {}), ("add", {"a": 1, "b": 2}), ("grow", {})):
        fake_model.add(uses(f"mcp__notes__{name}", **given))
    fake_model.add({"text": "one"}, {"text": "two"}, {"text": "three"})
    async with laptop.start(
        [*STREAMS, "--allowedTools", "mcp__notes__add,mcp__notes__leave,mcp__notes__grow"]
    ) as running:
        await running.send(user("first"))
        init = await running.until("system", "init")
        await running.until("result")
        await running.send(user("/mcp__notes__review 'my code'"))
        await running.until("result")
        await running.send(user("what is in @notes:notes://today?"))
        running.end_input()
        done = await running.done()
    assert done.code == 0, done.stderr
    second, third = (json.dumps(each.messages) for each in fake_model.requests[-2:])
    assert "Please review my code." in second and "buy milk" not in second
    assert "buy milk" in third
    assert {each["name"]: each["status"] for each in init["mcp_servers"]} == {"notes": "connected", "gone": "failed"}
    warned = [line["content"] for line in done.messages if line.get("subtype") == "informational"]
    warned = [each for each in warned if "waits for" not in each]  # on a slow machine
    assert len(warned) == 1 and warned[0].startswith("The MCP server gone on the laptop is not connected: "), warned
    blocks = [line["message"]["content"][0] for line in running.lines + done.messages if line["type"] == "user"]
    said = [each["content"] for each in blocks if each["type"] == "tool_result"]
    assert "the MCP server notes has ended before it answered. Whether this call had any effect is not known" in said[0]
    assert said[1:3] == ["3", "grown"]
    assert "mcp__notes__late" not in init["tools"]
    last = fake_model.requests[-1].body
    assert last is not None and "mcp__notes__late" in [each["name"] for each in last["tools"]]


async def test_a_call_that_only_the_host_allows_is_asked_on_the_laptop(
    laptop: Laptop, fake_model: FakeModel, tmp_path: Path
) -> None:
    """The worker does not ask here, because a rule of the trusted project allows the tool. A hostile one would not ask
    either."""
    settings(laptop, {"notes": notes(tmp_path, env={"PYTHONPATH": str(ROOT)})})
    project = tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude/settings.json").write_text(json.dumps({"permissions": {"allow": ["mcp__notes"]}}))
    for number in (1, 2):
        fake_model.add(uses("mcp__notes__add", a=number, b=1))
    fake_model.add({"text": "done"})
    argv = [*STREAMS, "--permission-prompt-tool", "stdio", "--trust", str(project)]
    async with laptop.start(argv) as running:
        await running.send(user("add"))
        for answer in ({"behavior": "deny", "message": "not that one"}, {"behavior": "allow", "updatedInput": None}):
            asked = await running.until("control_request")
            assert asked["request"]["tool_name"] == "mcp__notes__add"
            assert "did not ask you here" in asked["request"]["decision_reason"]
            response = {"subtype": "success", "request_id": asked["request_id"], "response": answer}
            await running.send({"type": "control_response", "response": response})
        running.end_input()
        done = await running.done()
    assert done.code == 0, done.stderr
    results = [line for line in done.messages if line["type"] == "user"]
    said = [each["message"]["content"][0]["content"] for each in results]
    assert said == ["mcp__notes__add failed: not that one", "3"]
    assert (tmp_path / "calls").read_text() == "add 2 1\n"
    (journal,) = laptop.home.glob(".local/state/ccb/sessions/*/journal.jsonl")
    assert "did not ask you here" not in journal.read_text()
    fake_model.add(uses("mcp__notes__add", a=3, b=1))
    fake_model.add({"text": "done"})
    await laptop.run([str(project), "-p", "add", "--trust"])
    last = json.dumps(fake_model.requests[-1].body)
    assert "The laptop has not allowed mcp__notes__add, and nobody can be asked there" in last
    assert (tmp_path / "calls").read_text() == "add 2 1\n"


async def test_a_server_of_another_maker_works_on_the_laptop_and_on_the_host_and_the_person_s_own_name_wins(
    laptop: Laptop, fake_model: FakeModel, tmp_path: Path
) -> None:
    require_sdks()  # the same script installs the server from npm
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "book").write_text("once upon a time")
    program = PLACE / "npm" / "node_modules" / ".bin" / "mcp-server-filesystem"
    shelf = {"command": str(program), "args": [str(tmp_path / "shelf")]}
    project = tmp_path / "project"
    project.mkdir()
    servers = {"shelf": shelf, "files": {"command": "touch", "args": ["started"]}}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    for name in ("files", "shelf"):
        fake_model.add(uses(f"mcp__{name}__read_text_file", path=str(tmp_path / "shelf" / "book")))
    fake_model.add({"text": "done"})
    config = json.dumps({"mcpServers": {"files": shelf}})
    argv = [str(project), "-p", "read", "--mcp-config", config, "--allowedTools", "mcp__files,mcp__shelf", "--trust"]
    done = await laptop.run(argv)
    assert (done.code, done.stdout) == (0, "done\n"), done.stderr
    assert json.dumps(fake_model.requests[-1].messages).count("once upon a time") == 2
    assert not (project / "started").exists()


async def test_a_call_of_a_server_inside_the_program_is_asked_there_if_only_the_host_allows_it(
    laptop: Laptop, fake_model: FakeModel, tmp_path: Path
) -> None:
    """As above: the worker does not ask, and no hostile one would."""
    project = tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude/settings.json").write_text(json.dumps({"permissions": {"allow": ["mcp__kit"]}}))
    fake_model.add(uses("mcp__kit__open", door=1), uses("mcp__kit__open", door=2), {"text": "done"})
    argv = [*STREAMS, "--permission-prompt-tool", "stdio", "--trust", str(project)]
    decisions = iter(({"behavior": "deny", "message": "not that one"}, {"behavior": "allow"}))
    opened: list[object] = []

    def reply(request: Json) -> Json:
        if request["subtype"] == "can_use_tool":
            assert (request["tool_name"], opened) == ("mcp__kit__open", [])
            return next(decisions)
        message = request["message"]
        result: Json = {"content": [{"type": "text", "text": "open"}]}
        if message["method"] == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {}}
        elif message["method"] == "tools/list":
            result = {"tools": [{"name": "open", "inputSchema": {"type": "object"}}]}
        elif message["method"] == "tools/call":
            opened.append(message["params"]["arguments"]["door"])
        return {"mcp_response": {"jsonrpc": "2.0", "id": message.get("id"), "result": result}}

    async with laptop.start(argv) as running:
        request = {"subtype": "initialize", "sdkMcpServers": ["kit"]}
        await running.send({"type": "control_request", "request_id": "first", "request": request})
        await running.send(user("open the doors"))
        for _ in ("initialize", "initialized", "tools/list", "ask", "ask", "tools/call"):
            line = await running.until("control_request", timeout=20)
            response = {"subtype": "success", "request_id": line["request_id"], "response": reply(line["request"])}
            await running.send({"type": "control_response", "response": response})
        await running.until("result")
        running.end_input()
        done = await running.done()
    assert done.code == 0, done.stderr
    assert opened == [2]
    assert "mcp__kit__open failed: not that one" in json.dumps(fake_model.requests[-1].messages)
