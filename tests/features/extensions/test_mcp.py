"""MCP servers: the person's own run on the laptop, those of a trusted project on the host, beside the agent."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.conformance.official_sdks import PLACE, require_sdks
from tests.e2e.headless.test_headless_local import STREAMS, user
from tests.support import odd_mcp_server
from tests.support.mcp_http import HttpMcp
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.odd_mcp_server import LAUNCHER, MIXED, marked_processes
from tests.support.person.laptop import Laptop, tidy_laptop
from tests.support.person.terminal import terminal

from ccb.tunnel.wire.json_schema import tool_schema
from ccb.tunnel.wire.mcp_messages import tool_name

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


def bring(project: Path, **servers: Json) -> None:
    project.mkdir(exist_ok=True)
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))


def said(messages: list[Json]) -> list[str]:
    """The results of the calls."""
    blocks = [m["message"]["content"][0] for m in messages if m["type"] == "user"]
    return [each["content"] for each in blocks if each["type"] == "tool_result"]


async def test_the_agent_uses_the_servers_of_a_trusted_project(
    laptop: Laptop, fake_model: FakeModel, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    bring(project, notes=notes(tmp_path), web={"type": "sse", "url": "https://example.com/mcp"}, a__b={"command": "x"})
    (tmp_path / "go").touch()
    own = {"hookEventName": "PostToolUse", "updatedMCPToolOutput": "counted, says the hook"}
    command = f"echo '{json.dumps({'hookSpecificOutput': own})}'"
    entry = {"matcher": "mcp__notes__count", "hooks": [{"type": "command", "command": command}]}
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").write_text(json.dumps({"hooks": {"PostToolUse": [entry]}}))
    fake_model.add(uses("mcp__notes__token"), uses("mcp__notes__leave"), uses("mcp__notes__count", to=2))
    fake_model.add(uses(tool_name("notes", "list.all")), uses("mcp__notes__list_all"), {"text": "one"})
    fake_model.add({"text": "two"}, {"text": "three"})
    argv = [str(project), *STREAMS, "--trust", "--allowedTools", "mcp__notes"]
    async with laptop.start(argv, MY_TOKEN="secret") as running:
        await running.send(user("first"))
        init = await running.until("system", "init")
        await running.until("result")
        await running.send(user("/mcp__notes__review my code"))
        await running.until("result")
        await running.send(user("what is in @notes:notes://today?"))
        await running.until("result")
        running.end_input()
        done = await running.done()
    assert done.code == 0, done.stderr
    statuses = [(each["name"], each["status"]) for each in init["mcp_servers"]]
    assert sorted(statuses) == [("a__b", "failed"), ("notes", "connected"), ("web", "failed")]
    assert {"ListMcpResourcesTool", "ReadMcpResourceTool"} <= set(init["tools"])
    assert "mcp__notes__review" in init["slash_commands"]
    results = said(running.lines + done.messages)
    assert results[0] == "the token has 6 letters" and results[2] == "counted, says the hook"
    assert "it has ended with exit code 3" in results[1] and "had any effect is not known" in results[1]
    assert results[3:5] == ["by its name with a dot", "by its name without a dot"]
    assert (tmp_path / "calls").read_text() == "token\ncount 1\ncount 2\ncounted\n"
    warned = [m["content"] for m in running.lines if m.get("subtype") == "informational"]
    warned = [each for each in warned if "waits for" not in each]  # on a slow machine
    assert [("stdio and http" in each, "a name has" in each) for each in warned] == [
        (True, False),
        (False, True),
    ], warned
    assert "web of the project is not connected" in warned[0]
    progress = [m.get("output") for m in running.lines if m["type"] == "tool_progress"]
    assert "2/2 counted to 2" in str(progress)
    first = json.dumps(fake_model.requests[0].messages)
    assert "MCP server notes, in its own words" in first and "Notes of the laptop." in first
    second, third = (json.dumps(each.messages) for each in fake_model.requests[-2:])
    assert "Please review my code." in second
    assert "buy milk" in third and "buy milk" not in second


async def test_the_agent_uses_a_server_of_a_trusted_project_over_http(
    laptop: Laptop, fake_model: FakeModel, tmp_path: Path
) -> None:
    project, far = tmp_path / "project", HttpMcp()
    async with far.serving() as url:
        bring(project, far={"type": "http", "url": url, "headers": {"X-Token": "${HOST_TOKEN}"}})
        argv = [str(project), *STREAMS, "--allowedTools", "mcp__far"]
        fake_model.add({"text": "nothing"})
        before = await laptop.run([str(project), "-p", "first"])
        assert not far.headers, "nothing is sent before trust"
        assert url in before.stderr
        fake_model.add(uses("mcp__far__work"), {"text": "done"})
        async with laptop.start([*argv, "--trust"], HOST_TOKEN="secret") as running:
            await running.send(user("second"))
            init = await running.until("system", "init")
            await running.until("result")
            running.end_input()
            done = await running.done()
    assert done.code == 0, done.stderr
    assert init["mcp_servers"] == [{"name": "far", "status": "connected"}]
    assert said(running.lines) == ["worked"]
    assert far.headers["x-token"] == "secret"


async def test_a_form_of_a_server_of_the_project_is_a_card_that_names_the_host(
    laptop: Laptop, fake_model: FakeModel, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    bring(project, notes=notes(tmp_path, env={"PYTHONPATH": str(ROOT)}))
    fake_model.add(uses("mcp__notes__clear"), {"text": "All done."})
    argv = [sys.executable, "-m", "ccb", str(project), "--trust", "--allowedTools", "mcp__notes"]
    async with terminal(argv, laptop.env, str(laptop.home)) as running:
        await running.shows("The agent works on")
        running.type("go\r")
        await running.shows("The MCP server notes asks")
        await running.shows("Throw all notes away?")
        await running.shows("Tab to answer")
        await running.chord("\t")
        await running.shows("declines")
        for key in ("1", "\r"):
            await running.chord(key)
        await running.shows("All done.")
        running.type("/stop\r")
        await running.ended()
    assert "the answer is accept" in fake_model.requests[-1].tool_result_text


ODD, LONG = "gr\u00f6\u00dfe in $", "x" * 70


@pytest.mark.parametrize("place", ["host", "laptop"])
async def test_a_session_with_an_odd_server_works_and_leaves_nothing(
    tmp_path: Path, fake_model: FakeModel, place: str
) -> None:
    mark, project = uuid4().hex, tmp_path / "project"
    project.mkdir()
    args = ["-c", LAUNCHER, sys.executable, odd_mcp_server.__file__]
    described = json.dumps({"mcpServers": {"odd": {"command": "sh", "args": args, "env": {"MARK": mark}}}})
    spelled = {name: short for short, name in tool_schema(MIXED).spelled.items()}
    fake_model.add(uses("mcp__odd__mixed", **{spelled[ODD]: 5.0, spelled[LONG]: "x", "any": [1], "nothing": 2}))
    fake_model.add({"text": "done"})
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        file = project / ".mcp.json" if place == "host" else laptop.home / ".config/ccb/settings.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(described)
        argv = [str(project), "--trust", "-p", "go", "--allowedTools", "mcp__odd", "--output-format", "stream-json"]
        done = await laptop.run([*argv, "--verbose"])
        ended = time.monotonic()
        assert done.code == 0, done.stderr
        if place == "laptop":
            assert marked_processes(mark) == []
    while marked_processes(mark) and time.monotonic() < ended + 30:
        time.sleep(0.05)
    assert marked_processes(mark) == []
    first, second = fake_model.requests[-2:]
    assert first.body is not None
    (declared,) = [each for each in first.body["tools"] if each["name"].startswith("mcp__")]
    assert not {"anyOf", "required"} & declared["input_schema"].keys()
    assert all(re.fullmatch("[a-zA-Z0-9_.-]{1,64}", name) for name in declared["input_schema"]["properties"])
    assert '"anyOf":[{"required":["any"]}' in declared["description"]
    (result,) = second.messages[-1]["content"]
    text = result["content"][0]["text"] if isinstance(result["content"], list) else result["content"]
    given, _, rest = text.partition(" \ufffd ")
    assert json.loads(given) == {ODD: 5, LONG: "x", "any": [1], "nothing": 2} and rest in ("?", "\ufffd")
    warned = [line["content"] for line in done.messages if line.get("subtype") == "informational"]
    (told,) = [each for each in warned if "shapeless" in each]
    assert "left out, because they have no name or no schema: shapeless, 5" in told
    assert "described to the model in a form that its API takes: mixed" in told
