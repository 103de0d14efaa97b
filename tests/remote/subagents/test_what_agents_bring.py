"""What the file of an agent brings: hooks and MCP servers that live as long as it works, a memory, a first prompt."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from tests.remote.agent_kit import Json, Reply, calls, says
from tests.remote.subagents.delegation import MAIN, ONE, TWO, Delegation, delegates, delegation, task, worked
from tests.remote.worker_process import until

from ccb.remote.mcp.mcp_servers import McpServers
from ccb.remote.settings.project_switches import read_project
from ccb.remote.settings.worker_settings import PROJECT, WorkerSettings
from ccb.remote.subagents.agent_catalogue import Catalogue
from ccb.remote.subagents.sub_agents import REQUIRED_S, SubAgents
from ccb.tunnel.wire.session_options import SessionOptions, SettingsOption

TRUSTED = SettingsOption(trusted="*").to_json()
SERVER = """
import json, os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
for line in sys.stdin:
    given = json.loads(line)
    method, result = given.get("method"), {}
    if method == "initialize":
        offers = {"tools": {}, "resources": {}}
        result = {"protocolVersion": "2025-06-18", "capabilities": offers, "instructions": "Add slowly."}
    elif method == "tools/list":
        result = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "added in " + os.getcwd()}]}
    elif method == "resources/list":
        result = {"resources": [{"uri": "notes://one", "name": "one"}]}
    if "id" in given:
        print(json.dumps({"jsonrpc": "2.0", "id": given["id"], "result": result}), flush=True)
"""


def agent_file(matter: str, name: str = "helper") -> Json:
    return {"/laptop/a.md": f"---\nname: {name}\ndescription: helps\n{matter}\n---\nYou help."}


def command(text: str) -> tuple[str, str, Json]:
    return f"b_{text.split()[0]}", "Bash", {"command": text}


def with_server(directory: Path, matter: str = "") -> str:
    """Front matter that brings the server `notes`, whose process writes its id to `directory`/pid."""
    program = directory / "server.py"
    program.write_text(SERVER)
    given = json.dumps({"command": sys.executable, "args": [str(program), str(directory / "pid")]})
    return f"{matter}\nmcpServers:\n  - notes: {given}"


def is_running(directory: Path) -> bool:
    try:
        state = Path(f"/proc/{(directory / 'pid').read_text()}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def offered(request: Json) -> list[str]:
    return [tool["name"] for tool in request["tools"]]


def told(d: Delegation) -> list[str]:
    return [each["content"] for each in d.messages("system", "informational")]


HOOKS = """hooks:
  PreToolUse:
    - matcher: Bash
      hooks:
        - type: command
          command: 'grep -q forbidden && { echo "not by me" >&2; exit 2; }; true'
  Stop:
    - hooks:
        - type: command
          command: cat >> {log}"""


async def test_the_hooks_of_an_agent_run_for_its_events_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    scripts = {
        MAIN: [
            calls(task(ONE, "part one", subagent_type="helper"), ("b0", "Bash", {"command": "echo forbidden"})),
            calls(task(TWO, "part two"), message_id="msg_main2"),
            says("All done.", "msg_main3"),
        ],
        "part one": [calls(command("echo forbidden")), says("stopped")],
        "part two": [calls(("b2", "Bash", {"command": "echo forbidden"})), says("free")],
    }
    own = agent_file(HOOKS.replace("{log}", str(log)))
    async with delegation(tmp_path, scripts, own_agents=own, allowed_tools=["Bash"]) as d:
        await d.turn(MAIN + "go")
        assert "not by me" in d.result_text("b_echo", ONE)
        assert [d.result_text("b0"), d.result_text("b2", TWO)] == ["forbidden", "forbidden"]
        (event,) = map(json.loads, log.read_text().splitlines())
        assert (event["hook_event_name"], event["agent_id"]) == ("SubagentStop", ONE), "its end is a Stop for it"
        assert (event["agent_type"], event["background_tasks"], event["session_crons"]) == ("helper", [], [])
        assert uuid.UUID(event["prompt_id"])


@asynccontextmanager
async def helped(tmp_path: Path, matter: str, *script: Reply, **options: Any) -> AsyncIterator[Delegation]:
    """After a turn in which an agent with this front matter has worked."""
    given = {"call": {"subagent_type": "helper"}, "own_agents": agent_file(matter), **options}
    async with worked(tmp_path, *script, says("done", "c9"), **given) as d:
        yield d


async def test_no_hook_of_an_agent_runs_where_hooks_are_switched_off(tmp_path: Path) -> None:
    log = tmp_path / "log"
    off = [{"source": "user", "path": "settings", "values": {"disableAllHooks": True}}]
    settings = SettingsOption(layers=off).to_json()
    async with helped(tmp_path, HOOKS.replace("{log}", str(log)), settings=settings) as d:
        assert d.result_text(ONE).startswith("done") and not log.exists()


async def test_the_servers_of_an_agent_start_for_it_and_end_with_it(tmp_path: Path) -> None:
    use = calls(("m1", "mcp__notes__add", {}), ("m2", "ListMcpResourcesTool", {}), message_id="c1")
    matter = with_server(tmp_path, "tools: Read, ListMcpResourcesTool")
    async with helped(tmp_path, matter, use, allowed_tools=["mcp__notes"]) as d:
        first, _ = d.model.requests["edit it"]
        assert set(offered(first)) == {"Read", "ListMcpResourcesTool", "mcp__notes__add"}, "besides its other tools"
        assert "Add slowly." in json.dumps(first["messages"])
        assert d.result_text("m1", ONE) == f"added in {tmp_path / 'project'}"
        assert "notes://one" in d.result_text("m2", ONE)
        assert not is_running(tmp_path)
        assert "mcp__notes__add" not in offered(d.model.requests[MAIN][1]) and told(d) == []


async def test_a_call_of_such_a_server_is_a_question_and_an_interrupt_ends_the_server(tmp_path: Path) -> None:
    scripts = {
        MAIN: delegates(task(ONE, "part one", subagent_type="helper")),
        "part one": [calls(("m1", "mcp__notes__add", {})), says("no", "c2")],
    }
    own = agent_file(with_server(tmp_path))
    async with delegation(tmp_path, scripts, own_agents=own) as d:
        running = asyncio.ensure_future(d.turn(MAIN + "go"))
        await until(lambda: bool(d.messages("control_request")), "the question")
        asked = d.messages("control_request")[0]["request"]
        assert (asked["tool_name"], asked["agent_id"]) == ("mcp__notes__add", ONE)
        assert asked["mcp_server"] == {"name": "notes", "source": "project"}
        assert is_running(tmp_path)
        d.session.agent.interrupt()
        assert (await running)["terminal_reason"] == "aborted_tools"
        assert not is_running(tmp_path)


async def test_a_server_that_is_missing_or_broken_is_told_and_the_agent_works(tmp_path: Path) -> None:
    matter = 'mcpServers: ["tracker", {"broken": {"command": "/does/not/exist"}}]'
    async with helped(tmp_path, matter) as d:
        assert d.result_text(ONE).startswith("done")
        missing, broken = told(d)
        assert missing == "The agent helper names the MCP server tracker, which the session does not have."
        assert broken.startswith("The MCP server broken of the agent helper is not connected: ")
    async with helped(tmp_path / "strict", with_server(tmp_path), project_mcp=False) as d:
        (why,) = told(d)
        assert why.endswith("does not start: this session uses only those of --mcp-config.")
        assert not (tmp_path / "pid").exists()


async def test_an_agent_does_not_start_without_the_mcp_servers_that_it_requires(tmp_path: Path) -> None:
    own = {
        f"/laptop/{name}.md": f"---\nname: {name}\ndescription: d\nrequiredMcpServers: {server}\n{matter}\n---\np"
        for name, server, matter in (("tracker", "Jira", ""), ("keeper", "Note", with_server(tmp_path)))
    }
    scripts = {
        MAIN: delegates(task(ONE, "part one", subagent_type="tracker"), task(TWO, "part two", subagent_type="keeper")),
        "part two": [says("kept", "c1")],
    }
    async with delegation(tmp_path, scripts, own_agents=own) as d:
        await d.turn(MAIN + "go")
        assert "The agent tracker needs the MCP server Jira, which is not connected" in d.result_text(ONE)
        assert d.result_text(TWO).startswith("kept"), "its own server counts"
    async with delegation(tmp_path, {}, own_agents=own, role="tracker") as d:
        d.session.relaunch(SessionOptions(own_agents=own, role="tracker", permission_prompts="stdio").to_json())
        (refused,) = (await d.turn("and on"))["errors"]
        assert refused == "The agent tracker needs the MCP server Jira, which is not connected in this session."


class Connecting:
    """The MCP servers of a session of which one is connected only when somebody waits for it."""

    connected = McpServers.connected

    def __init__(self, *, comes: bool) -> None:
        self.comes = comes
        self.waited: list[float | None] = []

    def summary(self) -> list[dict[str, str]]:
        status = "pending" if not self.waited else "connected" if self.comes else "failed"
        return [{"name": "jira", "status": status}]

    async def ready(self, patience_s: float | None = None) -> None:
        self.waited.append(patience_s)


async def test_the_start_of_an_agent_waits_for_a_required_server_that_is_being_connected(tmp_path: Path) -> None:
    own = {"/laptop/tracker.md": "---\nname: tracker\ndescription: d\nrequiredMcpServers: Jira\n---\np"}
    for comes, answer in ((True, "done"), (False, "The agent tracker needs the MCP server Jira, which is not")):
        scripts = {MAIN: delegates(task(ONE, "part one", subagent_type="tracker")), "part one": [says("done")]}
        async with delegation(tmp_path / str(comes), scripts, own_agents=own) as d:
            servers = Connecting(comes=comes)
            runner = d.session.agent.config.context.sub_agents
            assert isinstance(runner, SubAgents)
            runner._servers = cast(McpServers, servers)
            await d.turn(MAIN + "go")
            assert d.result_text(ONE).startswith(answer)
            assert servers.waited == [REQUIRED_S]


async def test_an_agent_reads_and_writes_its_memory_without_a_question(tmp_path: Path) -> None:
    place = tmp_path / "project/.claude/agent-memory/helper"
    place.mkdir(parents=True)
    (place / "MEMORY.md").write_text("The tests are slow.\n" * 250)
    paths = place / "a", place / "more/details.md", place.parent / "other/MEMORY.md", place / "CLAUDE.md"
    by_main, *writes = [(f"w{i}", "Write", {"file_path": str(path), "content": "x"}) for i, path in enumerate(paths)]
    scripts = {
        MAIN: delegates(task(ONE, "part one", subagent_type="helper"), by_main),
        "part one": [calls(*writes, message_id="c1"), says("noted", "c2")],
    }
    own = agent_file("memory: project\ntools: Grep")
    async with delegation(tmp_path, scripts, own_agents=own, settings=TRUSTED, permission_prompts="none") as d:
        await d.turn(MAIN + "go")
        request = d.model.requests["part one"][0]
        text = request["system"][0]["text"]
        assert text.count("The tests are slow.") == 200 and "MEMORY.md goes on" in text
        assert set(offered(request)) == {"Grep", "Read", "Write", "Edit"}
        assert "created" in d.result_text("w1", ONE)
        assert all("was not granted" in d.result_text(each, ONE) for each in ("w2", "w3")), "only there"
        assert "was not granted" in d.result_text("w0"), "the main agent has no such directory"


async def test_a_link_in_the_place_of_a_memory_opens_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "MEMORY.md").write_text("the secret")
    place = tmp_path / "project/.claude/agent-memory/helper"
    place.parent.mkdir(parents=True)
    place.symlink_to(secret)
    write = calls(("w1", "Write", {"file_path": str(place / "new.md"), "content": "x"}))
    async with helped(tmp_path, "memory: project", write, settings=TRUSTED, permission_prompts="none") as d:
        text = d.model.requests["edit it"][0]["system"][0]["text"]
        assert "the secret" not in text and "a link leads elsewhere" in text
        assert "was not granted" in d.result_text("w1", ONE) and not (secret / "new.md").exists()


async def test_the_main_agent_works_with_what_its_role_brings(tmp_path: Path) -> None:
    log = tmp_path / "log"
    both = calls(("m1", "mcp__notes__add", {}), command("echo forbidden"))
    hooks = HOOKS.replace("{log}", str(log))
    matter = with_server(tmp_path, f"initialPrompt: Look at the plan.\nmemory: local\n{hooks}")
    options = {"own_agents": agent_file(matter), "role": "helper", "allowed_tools": ["Bash", "mcp__notes"]}
    async with delegation(tmp_path, {MAIN: [both, says("Done.", "m2"), says("Yes.", "m3")]}, **options) as d:
        await d.turn(MAIN + "go")
        request = d.model.requests[MAIN][0]
        texts = [block["text"] for block in request["messages"][0]["content"]]
        assert texts.index("Look at the plan.") < texts.index(MAIN + "go")
        assert "agent-memory-local/helper" in request["system"][0]["text"]
        assert "First, helper is told: Look at the plan." in told(d)
        assert d.result_text("m1").startswith("added in") and "not by me" in d.result_text("b_echo")
        event = json.loads(log.read_text())
        assert (event["hook_event_name"], event["agent_type"]) == ("Stop", "helper") and "agent_id" not in event
        listed = str((await d.turn("/hooks"))["result"])
        assert "Bash: grep -q forbidden" in listed and "the agent helper" in listed
        await d.session.clients.servers.close()
        assert not is_running(tmp_path)
    async with delegation(tmp_path, {MAIN: [says("Yes.", "m4")]}) as d:
        await d.turn("and now?")
        (request,) = d.model.requests[MAIN]
        assert json.dumps(request["messages"]).count("Look at the plan.") == 1, "a restart does not send it again"
        assert "mcp__notes__add" in offered(request), "and starts the servers again"
        await d.session.clients.servers.close()


def of_project(project: Path, matter: str) -> Path:
    place = project / ".claude/agents"
    place.mkdir(parents=True)
    (place / "p.md").write_text(agent_file(matter)["/laptop/a.md"])
    return place / "p.md"


def test_the_question_about_trust_names_hooks_and_servers_of_agents(tmp_path: Path) -> None:
    matter = HOOKS.replace("{log}", "/log") + '\nmcpServers:\n  - notes: {"command": "npx", "args": ["-y", "notes"]}'
    path = of_project(tmp_path, matter)
    switches = read_project(str(tmp_path), "/nowhere", frozenset((PROJECT,))).switches
    shown = [(each.kind, each.name, each.detail) for each in switches if each.kind != "agent"]
    assert shown[1:] == [("hook", "Stop (agent p)", "cat >> /log"), ("mcp", "notes (agent p)", "npx -y notes")]
    assert shown[0][:2] == ("hook", "PreToolUse Bash (agent p)") and "not by me" in shown[0][2]
    assert {each.path for each in switches} == {str(path)}


def test_hooks_and_servers_of_a_file_that_changed_after_the_question_do_not_count(tmp_path: Path) -> None:
    path = of_project(tmp_path, HOOKS)
    project = read_project(str(tmp_path), "/nowhere", frozenset((PROJECT,)))
    trusted = WorkerSettings(trusted=True, trusted_directories=project.directories, trusted_agents=project.agents)
    (definition,) = Catalogue(SessionOptions(), trusted).definitions
    assert [each.event for each in definition.hooks] == ["PreToolUse", "Stop"]
    path.write_text(path.read_text().replace("cat", "cat /etc/passwd"))
    changed = Catalogue(SessionOptions(), trusted)
    assert [each.hooks for each in changed.definitions] == [()]
    assert changed.problems == [f"{path}: it has changed, so its hooks and MCP servers do not count"]


def test_an_agent_of_a_project_does_not_share_the_memory_of_the_persons_agents(tmp_path: Path) -> None:
    of_project(tmp_path, "memory: user")
    found = Catalogue(SessionOptions(), WorkerSettings(trusted=True, trusted_directories=(str(tmp_path),)))
    assert [each.memory for each in found.definitions] == [""]
    assert "keeps its memory in the project" in found.problems[0]


@pytest.mark.parametrize(("matter", "why"), [("memory: cloud", "unknown memory"), ("mcpServers: [1]", "mcpServers is")])
def test_what_is_wrong_is_told(matter: str, why: str) -> None:
    found = Catalogue(SessionOptions(own_agents=agent_file(matter)), WorkerSettings())
    assert found.definitions == () and why in found.problems[0]
