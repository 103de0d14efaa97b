"""MCP servers of a session: handshake, tools from all pages, calls, results, failures."""

from __future__ import annotations

import asyncio
import base64
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.remote.tools.test_read import PNG
from tests.remote.tools_kit import until

from ccb.local.mcp.mcp_permissions import mcp_rules
from ccb.remote.context.reminders import Occasion
from ccb.remote.hooks.hook_outcome import HookOutcome, read_answer
from ccb.remote.mcp.mcp_client import McpChannel, McpClient, McpError, answer_form
from ccb.remote.mcp.mcp_servers import IN_CLIENT, McpServers
from ccb.remote.mcp.mcp_tools import tool_result
from ccb.remote.permissions.rules import Behavior, RuleSet, parse_rule
from ccb.remote.session.client_setup import call_seconds
from ccb.remote.slash_commands.command_registry import CommandCall, CommandRefused, Expanded
from ccb.remote.slash_commands.mcp_prompts import prompt_commands
from ccb.remote.tools.output import OutputFiles
from ccb.remote.tools.tool_contract import CallContext, ToolContext
from ccb.remote.tools.toolset import Toolset
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.mcp_messages import tool_name

ADD: Json = {"name": "add", "description": "Adds.", "inputSchema": {"properties": {"a": {"type": "number"}}}}
LOOK: Json = {"name": "look around", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


LOOK_0, LOOK_1 = tool_name("s0", "look around"), tool_name("s1", "look around")


class Server(McpChannel):
    """An MCP server in memory, with one tool a page."""

    def __init__(self, *tools: Json) -> None:
        self.tools = list(tools)
        self.result: Json = {"content": [{"type": "text", "text": "3"}]}
        self.heard: list[Json] = []
        self.failure = ""
        self.status = 0
        self.silent = ""
        self.offers: Json = {"tools": {}}
        self.instructions = ""
        self.lists: Json = {}

    async def exchange(self, message: Json) -> Json:
        self.heard.append(message)
        method = message["method"]
        if self.failure:
            raise McpError(self.failure, self.status)
        if method == self.silent:
            await asyncio.Event().wait()
        if method == "initialize":
            says = {"instructions": self.instructions} if self.instructions else {}
            info = {"name": "calc", "version": "1"}
            return _reply(message, {"capabilities": self.offers, "serverInfo": info, **says})
        if method == "tools/list":
            at = int(message["params"].get("cursor", 0))
            more = {"nextCursor": str(at + 1)} if at + 1 < len(self.tools) else {}
            return _reply(message, {"tools": self.tools[at : at + 1], **more})
        if method == "tools/call":
            return _reply(message, self.result)
        return _reply(message, self.lists.get(method, {})) if "id" in message else {}


def _reply(message: Json, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


async def connected(*servers: Server) -> tuple[McpServers, Toolset]:
    registry = Toolset(())
    found = McpServers(registry)
    found.use(IN_CLIENT, {f"s{number}": server for number, server in enumerate(servers)})
    assert {each["status"] for each in found.summary()} == {"pending"}
    await found.ready()
    registry.begin_turn()
    return found, registry


def called_as(call: CallContext) -> ToolContext:
    """The context of a call of an MCP server, which uses nothing of the session's."""
    return cast(ToolContext, SimpleNamespace(call=call, spill=OutputFiles("")))


async def test_the_tools_of_all_pages_join_the_registry() -> None:
    server = Server(ADD, LOOK, {"name": "no schema"})
    servers, registry = await connected(server)
    assert [tool.name for tool in registry] == ["mcp__s0__add", LOOK_0]
    assert next(iter(registry)).input_schema == {"type": "object", **ADD["inputSchema"]}
    assert [tool.traits.parallel for tool in registry] == [False, True]
    (status,) = servers.status()
    assert (status["status"], status["serverInfo"]["name"], status["config"]["type"]) == ("connected", "calc", "sdk")
    assert [each["name"] for each in status["tools"]] == ["add", "look around"]
    assert [each["method"] for each in server.heard][:2] == ["initialize", "notifications/initialized"]


async def test_the_model_is_told_the_instructions_of_a_server_once_and_after_a_compaction() -> None:
    plain, server = Server(ADD), Server(ADD)
    server.instructions = "Add in pairs. " + "x" * 5000
    servers, _ = await connected(plain, server)
    (told,) = servers.due(Occasion.PROMPT)
    assert "MCP server s1" in told and "Add in pairs." in told and len(told) < 2200
    assert [*servers.due(Occasion.TOOL_RESULTS)] == []
    assert [*servers.due(Occasion.COMPACTED)] == [told]
    servers.toggle("s1", False)
    assert [*servers.due(Occasion.COMPACTED)] == []


async def test_a_call_reaches_the_server_under_the_name_that_it_knows() -> None:
    server = Server(LOOK)
    _, registry = await connected(server)
    result = await next(iter(registry)).run({"far": True}, called_as(CallContext("toolu_1")))
    assert (result.content, result.is_error) == ("3", False)
    params = server.heard[-1]["params"]
    assert (params["name"], params["arguments"]) == ("look around", {"far": True})
    assert params["_meta"]["claudecode/toolUseId"] == "toolu_1"
    server.failure = "gone"
    failed = await next(iter(registry)).run({}, called_as(CallContext("toolu_2")))
    assert failed.is_error and "gone" in str(failed.content)


async def test_a_server_that_fails_is_told_and_can_be_connected_again() -> None:
    server = Server(ADD)
    server.failure = "no such server"
    servers, registry = await connected(server, Server(LOOK))
    assert [tool.name for tool in registry] == [LOOK_1]
    assert (servers.status()[0]["status"], servers.status()[0]["error"]) == ("failed", "no such server")
    server.failure = ""
    servers.reconnect("s0")
    await servers.ready()
    assert [tool.name for tool in registry.begin_turn()] == [LOOK_1, "mcp__s0__add"]
    servers.toggle("s0", enabled=False)
    assert servers.summary()[0]["status"] == "disabled"
    assert [tool.name for tool in registry.begin_turn()] == [LOOK_1]
    servers.use(IN_CLIENT, {})
    assert not registry.begin_turn() and servers.status() == []
    await servers.close()


async def test_a_server_that_may_come_back_is_tried_again_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccb.remote.mcp.mcp_servers._WAITS_S", (0.01, 0.02))
    far, gone = Server(ADD), Server(LOOK)
    far.failure = gone.failure = "it cannot be reached"
    far.may_come_back = True
    servers, registry = await connected(far, gone)
    assert [each.get("retryInSeconds") for each in servers.status()] == [0, None]
    tries = len(far.heard)
    await until(lambda: len(far.heard) > tries)
    assert servers.status()[0]["status"] == "failed", "no turn waits for it meanwhile"
    far.failure = ""
    await until(lambda: servers.status()[0]["status"] == "connected")
    assert [tool.name for tool in registry.begin_turn()] == ["mcp__s0__add"]
    assert not {"error", "retryInSeconds"} & servers.status()[0].keys()
    refused = Server(ADD)
    refused.failure, refused.status, refused.may_come_back = "it wants a login", 401, True
    servers, _ = await connected(refused)
    assert "retryInSeconds" not in servers.status()[0], "who refuses a client goes on doing so"
    assert servers.summary() == [{"name": "s0", "status": "needs-auth"}]
    await servers.close()


async def test_what_a_server_changes_counts_from_the_next_turn_and_progress_reaches_its_call() -> None:
    server = Server(ADD)
    server.offers = {"tools": {}, "prompts": {}}
    servers, registry = await connected(server)
    before = [tool.name for tool in registry]
    wanted = {"name": "review", "arguments": [{"name": "what", "required": True}, {"name": "how"}]}
    server.lists["prompts/list"] = {"prompts": [wanted]}
    server.tools.append(LOOK)
    for kind in ("prompts", "tools"):
        servers.said("s0", {"method": f"notifications/{kind}/list_changed"})
    await servers.ready()
    assert [each["method"] for each in server.heard].count("initialize") == 1
    assert [tool.name for tool in registry] == before
    assert [tool.name for tool in registry.begin_turn()] == [*before, LOOK_0]
    (command,) = prompt_commands(servers)
    assert (command.name, command.hint) == ("mcp__s0__review", "<what> [how]")
    content = {"type": "text", "text": "Review it."}
    server.lists["prompts/get"] = {"messages": [{"role": "user", "content": content}]}
    expanded = await command.run(CommandCall(command.name, "'this file' very well"))
    assert isinstance(expanded, Expanded) and expanded.blocks == [content]
    assert server.heard[-1]["params"]["arguments"] == {"what": "this file", "how": "very well"}
    with pytest.raises(CommandRefused, match="needs what"):
        await command.run(CommandCall(command.name))
    shown: list[Json] = []
    server.silent = "tools/call"
    context = called_as(CallContext("t1", progress=shown.append))
    call = asyncio.ensure_future(next(iter(registry)).run({}, context))
    await asyncio.sleep(0)
    for token in ("t2", "t1"):
        params = {"progressToken": token, "progress": 1, "total": 4, "message": "at it"}
        servers.said("s0", {"method": "notifications/progress", "params": params})
    assert [each["output"] for each in shown] == ["1/4 at it"]
    call.cancel()
    await servers.close()


async def test_resources_are_listed_and_read() -> None:
    server, other = Server(ADD), Server(LOOK)
    server.offers = {"tools": {}, "resources": {}}
    server.lists = {
        "resources/list": {"resources": [{"uri": "a://b", "name": "b", "size": 3}]},
        "resources/read": {"contents": [{"text": "inside"}, {"blob": "aGk=", "mimeType": "image/png"}, {"blob": "eA"}]},
    }
    _, registry = await connected(server, other)
    tools = {tool.name: tool for tool in registry}
    context = cast(ToolContext, SimpleNamespace(spill=OutputFiles("")))
    listed = await tools["ListMcpResourcesTool"].run({}, context)
    assert listed.content == '{"server": "s0", "uri": "a://b", "name": "b"}'
    assert (await tools["ListMcpResourcesTool"].run({"server": "s1"}, context)).content == "There are no resources."
    found = await tools["ReadMcpResourceTool"].run({"server": "s0", "uri": "a://b"}, context)
    assert isinstance(found.content, list) and found.content[1]["source"]["data"] == "aGk="
    assert found.content[0]["text"].startswith("inside\n[image of type unknown")
    assert (await tools["ReadMcpResourceTool"].run({"server": "s1", "uri": "a://b"}, context)).is_error
    server.failure = "gone"
    assert "s0: gone" in str((await tools["ListMcpResourcesTool"].run({}, context)).content)


def test_results_become_text_and_images() -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    found = tool_result({"content": [{"type": "text", "text": "see"}, image]})
    assert isinstance(found.content, list) and found.content[1]["source"]["data"] == "aGk="
    assert "aGk=" not in str(found.structured)
    for part, said in (
        ({"type": "image", "data": "x" * 600_000, "mimeType": "image/png"}, "left out"),
        ({"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}, "left out"),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}, "[file:///a]\ninside"),
        ({"type": "resource_link", "uri": "file:///a", "name": "a"}, "[a](file:///a)"),
    ):
        assert said in str(tool_result({"content": [part]}).content)
    assert tool_result({"content": [], "structuredContent": {"n": 1}}).content == '{"n": 1}'
    assert tool_result({"content": [], "isError": True}).is_error
    long = tool_result({"content": [{"type": "text", "text": "x" * 90_000}]})
    assert len(str(long.structured)) < 31_000 and len(long.content) == 90_000  # the pipeline keeps the whole in a file


def test_an_image_that_the_api_would_refuse_does_not_get_into_the_history() -> None:
    whole = base64.b64encode(PNG).decode()
    image = {"type": "image", "mimeType": "image/jpeg", "data": whole[:20] + "\n" + whole[20:]}
    found = tool_result({"content": [image]})
    assert isinstance(found.content, list)
    assert found.content[0]["source"] == {"type": "base64", "media_type": "image/png", "data": whole}
    for data in (base64.b64encode(PNG[:-20]).decode(), whole[:-3], "no base64"):
        assert isinstance(tool_result({"content": [{**image, "data": data}]}).content, str)


def test_what_the_model_cannot_see_is_kept_in_a_file(tmp_path: Path) -> None:
    spill = OutputFiles(str(tmp_path / "outputs"))
    audio = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
    table = {"type": "resource", "resource": {"uri": "file:///srv/../t.parquet", "blob": "aGk="}}
    said = str(tool_result({"content": [audio, table]}, spill).content)
    files = sorted((tmp_path / "outputs").iterdir())
    assert [each.name for each in files] == ["0001-audio.wav", "0002-t.parquet"]
    assert all(each.read_bytes() == b"hi" and f"kept in {each}]" in said for each in files)
    broken = tool_result({"content": [{**audio, "data": "no base64"}]}, spill)
    assert "left out: it is not base64" in str(broken.content)


def test_every_tool_has_a_name_of_its_own_that_the_model_api_takes() -> None:
    names = ["a.b", "a_b", "a b", "a__b", "ü", "é", "t" * 120, "t" * 121, "_", "a_b_0123abcd"]
    servers = ["s", "s.s", "s_s", "s s", "s__a_b", "s_", "x" * 64, "x" * 65, "", "s_0123abcd"]
    found = {tool_name(server, name) for server in servers for name in names}
    assert len(found) == len(names) * len(servers)
    assert all(re.fullmatch(r"mcp__[A-Za-z0-9_-]{1,123}", each) for each in found)
    assert tool_name("notes", "add_one") == "mcp__notes__add_one"
    marked = tool_name("my.notes", "add.one")
    assert re.fullmatch(r"mcp__my_notes_[0-9a-f]{8}__add_one_[0-9a-f]{8}", marked)
    assert not tool_name("notes__more", "x").startswith("mcp__notes__")


def test_a_rule_allows_exactly_one_tool_of_those_whose_names_differ_in_punctuation_only() -> None:
    dotted, plain = tool_name("s", "a.b"), tool_name("s", "a_b")
    for rule, covered in ((plain, plain), (dotted, dotted), ("mcp__s__a.b", dotted), ("mcp__s__a/b", "")):
        rules = RuleSet()
        rules.add("", Behavior.ALLOW, [parse_rule(rule)])
        assert [each for each in (dotted, plain) if rules.about(Behavior.ALLOW, each)] == [covered][: len(covered)]
        laptop = mcp_rules({"allow": [rule]})["allow"]
        assert [each for each in (dotted, plain) if each in laptop] == [covered][: len(covered)]
    denied = RuleSet()
    denied.add("", Behavior.DENY, [parse_rule("mcp__s__c_d"), parse_rule("mcp__my.s")])
    assert denied.about(Behavior.DENY, tool_name("s", "c.d")), "whoever wrote it may not know of the mark"
    assert denied.about(Behavior.DENY, tool_name("my.s", "x"))
    assert not denied.about(Behavior.DENY, tool_name("my_s", "x"))


async def test_tools_whose_names_differ_in_punctuation_only_keep_their_names() -> None:
    dotted: Json = {**ADD, "name": "add.one"}
    server = Server(dotted)
    servers, registry = await connected(server)
    (alone,) = [tool.name for tool in registry]
    server.tools = [{**ADD, "name": "add_one"}, dotted]
    servers.said("s0", {"method": "notifications/tools/list_changed"})
    await servers.ready()
    assert [tool.name for tool in registry.begin_turn()] == [alone, "mcp__s0__add_one"]
    for order in (server.tools, server.tools[::-1]):
        server.tools = order
        servers.reconnect("s0")
        await servers.ready()
        assert {tool.name for tool in registry.begin_turn()} == {alone, "mcp__s0__add_one"}
        for name, called in ((alone, "add.one"), ("mcp__s0__add_one", "add_one")):
            tool = registry.named(name)
            assert tool is not None
            await tool.run({}, called_as(CallContext("toolu_1")))
            assert server.heard[-1]["params"]["name"] == called


async def test_a_client_limits_how_long_a_call_of_its_server_takes() -> None:
    slow = Server(ADD)
    slow.silent = "tools/call"
    registry = Toolset(())
    servers = McpServers(registry)
    slow.call_s = call_seconds({"slow": {"timeout": 1000}, "other": {"timeout": 999}})["slow"]
    servers.use(IN_CLIENT, {"slow": slow})
    await servers.ready()
    client = servers.clients["slow"]
    with pytest.raises(McpError, match="no answer within 1 s"):
        await client.call("add", {})
    slow.silent = "tools/list"
    client = McpClient(slow, handshake_s=0.01)
    await client.connect()
    with pytest.raises(McpError, match="no answer within"):
        await client.tools()


async def test_a_form_that_stays_open_holds_nothing_up_but_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Server(ADD)
    slow.silent = "tools/list"
    monkeypatch.setattr(Server, "asking", True)
    client = McpClient(slow, handshake_s=0.01)
    await client.connect()
    with pytest.raises(McpError, match="no answer within"):
        await asyncio.wait_for(client.tools(), 5)


FORM: Json = {"message": "Which colour?", "requestedSchema": {"type": "object"}}
RED: Json = {"action": "accept", "content": {"colour": "red"}}


class World:
    """A person who answers red, and hooks that answer what they are told to."""

    def __init__(self, hooks: Json, *, somebody: bool = True) -> None:
        self.hooks = hooks
        self.somebody = somebody
        self.asked: list[Any] = []
        self.seen: list[tuple[str, Json, str]] = []

    def can_ask(self, _: object) -> bool:
        return self.somebody

    async def request(self, request: Any) -> Json:
        self.asked.append(request.payload)
        return RED

    async def run(self, event: str, payload: Json, match: str) -> HookOutcome:
        self.seen.append((event, payload, match))
        own = {"hookEventName": event, **self.hooks.get(event, {})}
        return read_answer(event, {"hookSpecificOutput": own} if len(own) > 1 else {})

    async def answer(self) -> Json:
        return await answer_form(cast(Any, self), cast(Any, self), "paint", FORM)


async def test_without_a_word_of_hooks_the_person_answers_and_hooks_see_both() -> None:
    world = World({})
    assert await world.answer() == RED
    asked, answered = world.seen
    assert asked[0::2] == ("Elicitation", "paint") and asked[1]["message"] == "Which colour?"
    assert answered[0::2] == ("ElicitationResult", "paint") and answered[1]["content"] == {"colour": "red"}
    nobody = World({}, somebody=False)
    assert await nobody.answer() == {"action": "decline"} and not nobody.asked


@pytest.mark.parametrize(
    ("hooks", "answer", "asks"),
    [
        ({"Elicitation": {"action": "accept", "content": {"colour": "blue"}}}, {"colour": "blue"}, 0),
        ({"Elicitation": {"action": "decline"}}, None, 0),
        ({"ElicitationResult": {"action": "accept", "content": {"colour": "green"}}}, {"colour": "green"}, 1),
        ({"ElicitationResult": {"action": "cancel"}}, None, 1),
    ],
)
async def test_a_hook_answers_a_form_or_changes_its_answer(hooks: Json, answer: Json | None, asks: int) -> None:
    world = World(hooks)
    action = next(iter(hooks.values()))["action"]
    given = {} if answer is None else {"content": answer}
    assert await world.answer() == {"action": action, **given} and len(world.asked) == asks
