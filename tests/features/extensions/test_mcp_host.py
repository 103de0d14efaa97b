"""MCP servers of a trusted project: they run on the host, beside the agent."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.headless.test_headless_local import STREAMS, user
from tests.support.mcp_http import HttpMcp
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Laptop, tidy_laptop
from tests.support.person.terminal import terminal

from ccb.tunnel.wire.mcp_messages import tool_name

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Iterator[Laptop]:
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        yield laptop


def bring(project: Path, **servers: Json) -> None:
    project.mkdir(exist_ok=True)
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))


def notes(tmp_path: Path) -> Json:
    return {
        "command": "${PYTHON:-" + sys.executable + "}",
        "args": ["-m", "tests.support.mcp_server", str(tmp_path / "calls")],
        "env": {"PYTHONPATH": str(ROOT), "NOTES_TOKEN": "${HOST_TOKEN}"},
    }


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
    async with laptop.start(argv, HOST_TOKEN="secret") as running:
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
    bring(project, notes={**notes(tmp_path), "env": {"PYTHONPATH": str(ROOT)}})
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
