"""MCP servers: the person's own run on the laptop, those of a trusted project on the host, beside the agent."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest
from tests.conformance.official_sdks import PLACE, require_sdks
from tests.features.steering.test_sdk_control import served
from tests.support import odd_mcp_server
from tests.support.mcp_http import HttpMcp
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import Json, uses
from tests.support.odd_mcp_server import LAUNCHER, MIXED, marked_processes
from tests.support.person.laptop import STDIO, STREAM, STREAMS, Here, tidy_laptop, user_message

from ccb.tunnel.wire.json_schema import tool_schema
from ccb.tunnel.wire.mcp_messages import tool_name

ROOT = Path(__file__).parents[3]


def notes(tmp_path: Path, **more: object) -> Json:
    """The description of the server in tests.support.mcp_server."""
    args = ["-m", "tests.support.mcp_server", str(tmp_path / "calls")]
    return {"command": sys.executable, "args": args, "env": {"PYTHONPATH": str(ROOT), **more}}


def bring(project: Path, **servers: Json) -> None:
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))


def allow(project: Path, rule: str) -> None:
    """The worker will not ask about these tools. A hostile one would not ask either."""
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").write_text(json.dumps({"permissions": {"allow": [rule]}}))


def said(messages: list[Json]) -> list[str]:
    blocks = [m["message"]["content"][0] for m in messages if m["type"] == "user"]
    return [each["content"] for each in blocks if each["type"] == "tool_result"]


def warned(messages: list[Json]) -> list[str]:
    told = [m["content"] for m in messages if m.get("subtype") == "informational"]
    return [each for each in told if "waits for" not in each]  # on a slow machine


def journal_of(here: Here) -> str:
    (journal,) = here.laptop.home.glob(".local/state/ccb/sessions/*/journal.jsonl")
    return journal.read_text()


async def test_the_agent_uses_a_server_of_the_laptop(here: Here, tmp_path: Path) -> None:
    here.laptop.settings(mcpServers={"notes": notes(tmp_path, NOTES_TOKEN="${MY_TOKEN}")})
    here.model.add(uses("mcp__notes__add", a=19, b=23), uses("mcp__notes__token"), {"text": "done"})
    words = ["--model", "claude-x", "-p", "add", "--allowedTools", "mcp__notes__*", *STREAM]
    done = await here.run(*words, MY_TOKEN="very-secret")
    assert done.code == 0, done.stderr
    assert said(done.messages) == ["42", "the token has 11 letters"]
    init = next(line for line in done.messages if line.get("subtype") == "init")
    assert init["mcp_servers"] == [{"name": "notes", "status": "connected"}]
    assert "mcp__notes__add" in init["tools"]
    assert "very-secret" not in journal_of(here) and "MY_TOKEN" not in journal_of(here)
    assert (tmp_path / "calls").read_text() == "add 19 23\ntoken\n"


async def test_a_server_that_ends_starts_again_and_new_tools_count_one_turn_later(here: Here, tmp_path: Path) -> None:
    here.laptop.settings(mcpServers={"notes": notes(tmp_path), "gone": {"command": "/nonexistent/mcp"}})
    for name, given in (("leave", {}), ("add", {"a": 1, "b": 2}), ("grow", {})):
        here.model.add(uses(f"mcp__notes__{name}", **given))
    here.model.add({"text": "one"}, {"text": "two"}, {"text": "three"})
    allowed = "mcp__notes__add,mcp__notes__leave,mcp__notes__grow"
    async with here.start(*STREAMS, "--allowedTools", allowed) as running:
        await running.send(user_message("first"))
        init = await running.until("system", "init")
        await running.until("result")
        await running.send(user_message("/mcp__notes__review 'my code'"))
        await running.until("result")
        await running.send(user_message("what is in @notes:notes://today?"))
        done = await running.finish()
    assert done.code == 0, done.stderr
    second, third = (json.dumps(each.messages) for each in here.model.requests[-2:])
    assert "Please review my code." in second and "buy milk" not in second
    assert "buy milk" in third
    assert {each["name"]: each["status"] for each in init["mcp_servers"]} == {"notes": "connected", "gone": "failed"}
    (told,) = warned(done.messages)
    assert told.startswith("The MCP server gone on the laptop is not connected: ")
    lost, *others = said(done.messages)
    assert "the MCP server notes has ended before it answered. Whether this call had any effect is not known" in lost
    assert others[:2] == ["3", "grown"]
    assert "mcp__notes__late" not in init["tools"]
    last = here.model.requests[-1].body
    assert last is not None and "mcp__notes__late" in [each["name"] for each in last["tools"]]


async def test_a_call_that_only_the_host_allows_is_asked_on_the_laptop(here: Here, tmp_path: Path) -> None:
    here.laptop.settings(mcpServers={"notes": notes(tmp_path)})
    allow(here.project, "mcp__notes")
    here.model.add(*(uses("mcp__notes__add", a=number, b=1) for number in (1, 2)), {"text": "done"})
    async with here.start(*STDIO, "--trust") as running:
        await running.send(user_message("add"))
        for answer in ({"behavior": "deny", "message": "not that one"}, {"behavior": "allow", "updatedInput": None}):
            asked = await running.until("control_request")
            assert asked["request"]["tool_name"] == "mcp__notes__add"
            assert "did not ask you here" in asked["request"]["decision_reason"]
            await running.reply(asked, answer)
        done = await running.finish()
    assert done.code == 0, done.stderr
    assert said(done.messages) == ["mcp__notes__add failed: not that one", "3"]
    assert (tmp_path / "calls").read_text() == "add 2 1\n"
    assert "did not ask you here" not in journal_of(here)
    here.model.add(uses("mcp__notes__add", a=3, b=1), {"text": "done"})
    await here.run("-p", "add", "--trust")
    last = json.dumps(here.model.requests[-1].body)
    assert "The laptop has not allowed mcp__notes__add, and nobody can be asked there" in last
    assert (tmp_path / "calls").read_text() == "add 2 1\n"


async def test_a_server_of_another_maker_works_on_both_ends_and_the_own_name_wins(here: Here, tmp_path: Path) -> None:
    require_sdks()  # the same script installs the server from npm
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "book").write_text("once upon a time")
    program = PLACE / "npm" / "node_modules" / ".bin" / "mcp-server-filesystem"
    shelf = {"command": str(program), "args": [str(tmp_path / "shelf")]}
    bring(here.project, shelf=shelf, files={"command": "touch", "args": ["started"]})
    for name in ("files", "shelf"):
        here.model.add(uses(f"mcp__{name}__read_text_file", path=str(tmp_path / "shelf" / "book")))
    here.model.add({"text": "done"})
    config = json.dumps({"mcpServers": {"files": shelf}})
    words = ["-p", "read", "--mcp-config", config, "--allowedTools", "mcp__files,mcp__shelf", "--trust"]
    done = await here.run(*words)
    assert (done.code, done.stdout) == (0, "done\n"), done.stderr
    assert json.dumps(here.model.requests[-1].messages).count("once upon a time") == 2
    assert not (here.project / "started").exists()


async def test_a_call_of_a_server_inside_the_program_is_asked_there_if_only_the_host_allows_it(here: Here) -> None:
    allow(here.project, "mcp__kit")
    here.model.add(uses("mcp__kit__open", door=1), uses("mcp__kit__open", door=2), {"text": "done"})
    decisions = iter(({"behavior": "deny", "message": "not that one"}, {"behavior": "allow"}))
    opened: list[object] = []

    def open_door(arguments: Json) -> str:
        opened.append(arguments["door"])
        return "open"

    def reply(request: Json) -> Json:
        if request["subtype"] == "can_use_tool":
            assert (request["tool_name"], opened) == ("mcp__kit__open", [])
            return next(decisions)
        return served(request["message"], ["open"], open_door)

    async with here.start(*STDIO, "--trust") as running:
        request = {"subtype": "initialize", "sdkMcpServers": ["kit"]}
        await running.send({"type": "control_request", "request_id": "first", "request": request})
        await running.send(user_message("open the doors"))
        for _ in ("initialize", "initialized", "tools/list", "ask", "ask", "tools/call"):
            line = await running.until("control_request", timeout=20)
            await running.reply(line, reply(line["request"]))
        await running.until("result")
        done = await running.finish()
    assert done.code == 0, done.stderr
    assert opened == [2]
    assert "mcp__kit__open failed: not that one" in json.dumps(here.model.requests[-1].messages)


async def test_the_agent_uses_the_servers_of_a_trusted_project(here: Here, tmp_path: Path) -> None:
    project = here.project
    own_notes = notes(tmp_path, NOTES_TOKEN="${MY_TOKEN}")
    bring(project, notes=own_notes, web={"type": "sse", "url": "https://example.com/mcp"}, a__b={"command": "x"})
    (tmp_path / "go").touch()
    own = {"hookEventName": "PostToolUse", "updatedMCPToolOutput": "counted, says the hook"}
    command = f"echo '{json.dumps({'hookSpecificOutput': own})}'"
    entry = {"matcher": "mcp__notes__count", "hooks": [{"type": "command", "command": command}]}
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").write_text(json.dumps({"hooks": {"PostToolUse": [entry]}}))
    here.model.add(uses("mcp__notes__token"), uses("mcp__notes__leave"), uses("mcp__notes__count", to=2))
    here.model.add(uses(tool_name("notes", "list.all")), uses("mcp__notes__list_all"), {"text": "one"})
    here.model.add({"text": "two"}, {"text": "three"})
    async with here.start(*STREAMS, "--trust", "--allowedTools", "mcp__notes", MY_TOKEN="secret") as running:
        await running.send(user_message("first"))
        init = await running.until("system", "init")
        await running.until("result")
        await running.send(user_message("/mcp__notes__review my code"))
        await running.until("result")
        await running.send(user_message("what is in @notes:notes://today?"))
        await running.until("result")
        done = await running.finish()
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
    first, second = warned(running.lines)
    assert "stdio and http" in first and "web of the project is not connected" in first and "a name has" in second
    progress = [m.get("output") for m in running.lines if m["type"] == "tool_progress"]
    assert "2/2 counted to 2" in str(progress)
    first = json.dumps(here.model.requests[0].messages)
    assert "MCP server notes, in its own words" in first and "Notes of the laptop." in first
    second, third = (json.dumps(each.messages) for each in here.model.requests[-2:])
    assert "Please review my code." in second
    assert "buy milk" in third and "buy milk" not in second


async def test_the_agent_uses_a_server_of_a_trusted_project_over_http(here: Here) -> None:
    far = HttpMcp()
    async with far.serving() as url:
        bring(here.project, far={"type": "http", "url": url, "headers": {"X-Token": "${HOST_TOKEN}"}})
        here.model.add({"text": "nothing"})
        before = await here.run("-p", "first")
        assert not far.headers, "nothing is sent before trust"
        assert url in before.stderr
        here.model.add(uses("mcp__far__work"), {"text": "done"})
        words = [*STREAMS, "--allowedTools", "mcp__far", "--trust"]
        async with here.start(*words, HOST_TOKEN="secret") as running:
            await running.send(user_message("second"))
            init = await running.until("system", "init")
            await running.until("result")
            done = await running.finish()
    assert done.code == 0, done.stderr
    assert init["mcp_servers"] == [{"name": "far", "status": "connected"}]
    assert said(running.lines) == ["worked"]
    assert far.headers["x-token"] == "secret"


async def test_a_form_of_a_server_of_the_project_is_a_card_that_names_the_host(here: Here, tmp_path: Path) -> None:
    bring(here.project, notes=notes(tmp_path))
    here.model.add(uses("mcp__notes__clear"), {"text": "All done."})
    async with here.on_terminal("--trust", "--allowedTools", "mcp__notes") as running:
        await running.shows("The agent works on")
        running.type("go\r")
        await running.shows("The MCP server notes asks")
        await running.shows("Throw all notes away?")
        await running.answer("1")
        await running.shows("All done.")
        running.type("/stop\r")
        await running.ended()
    assert "the answer is accept" in here.model.requests[-1].tool_result_text


ODD, LONG = "gr\u00f6\u00dfe in $", "x" * 70


@pytest.mark.parametrize("place", ["host", "laptop"])
async def test_a_session_with_an_odd_server_leaves_nothing(tmp_path: Path, fake_model: FakeModel, place: str) -> None:
    mark, project = uuid4().hex, tmp_path / "project"
    project.mkdir()
    args = ["-c", LAUNCHER, sys.executable, odd_mcp_server.__file__]
    described = json.dumps({"mcpServers": {"odd": {"command": "sh", "args": args, "env": {"MARK": mark}}}})
    spelled = {name: short for short, name in tool_schema(MIXED).spelled.items()}
    odd = uses("mcp__odd__mixed", **{spelled[ODD]: 5.0, spelled[LONG]: "x", "any": [1], "nothing": 2})
    fake_model.add(odd, {"text": "done"})
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        file = project / ".mcp.json" if place == "host" else laptop.home / ".config/ccb/settings.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(described)
        done = await laptop.run([str(project), "--trust", "-p", "go", "--allowedTools", "mcp__odd", *STREAM])
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
    (told,) = [each for each in warned(done.messages) if "shapeless" in each]
    assert "left out, because they have no name or no schema: shapeless, 5" in told
    assert "described to the model in a form that its API takes: mixed" in told
