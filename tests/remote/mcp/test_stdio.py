"""MCP servers of a project: their processes, and which of them may start."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from tests.remote.agent_kit import MemoryLog, OpenPermissions, no_hooks

from ccb.remote.mcp.host_servers import project_servers
from ccb.remote.mcp.mcp_client import McpClient, McpError, answer_form
from ccb.remote.mcp.mcp_stdio import ServerCommand, StdioChannel
from ccb.remote.settings.worker_settings import LOCAL, PROJECT, USER, Layer, WorkerSettings
from ccb.remote.system.deadline import within
from ccb.remote.system.host import Host
from ccb.remote.system.process import marked
from ccb.tunnel.wire.control_protocol import Request
from ccb.tunnel.wire.frames import Json

SERVER = """
import json, os, sys, time
open(sys.argv[1], "a").write("start\\n")
os.write(2, b"hello on stderr\\n")
print("no JSON")
def say(**what):
    print(json.dumps({"jsonrpc": "2.0", **what}), flush=True)
for line in sys.stdin:
    given = json.loads(line)
    open(sys.argv[1], "a").write(f"{given.get('method', 'reply')}\\n")
    name = given.get("params", {}).get("name")
    if given.get("method") == "initialize":
        if len(sys.argv) > 2:
            sys.exit("it is broken")
        offers = given["params"]["capabilities"]
        say(id=given["id"], result={"capabilities": {"tools": {}}})
    elif name == "ask":
        say(id=7, method="ping")
        say(id=8, method="roots/list")
        answers = [json.loads(sys.stdin.readline()) for _ in range(2)]
        say(id=given["id"], result={"answers": answers})
    elif name == "form":
        say(id="f1", method="elicitation/create", params={"message": "Which?", "requestedSchema": {"type": "object"}})
        say(id=given["id"], result={"answer": json.loads(sys.stdin.readline()), "offers": offers})
    elif name == "flood":
        sys.stdout.write("x" * 9_000_000)
        sys.stdout.flush()
    elif name == "raw":
        for text in given["params"]["arguments"]["lines"]:
            sys.stdout.buffer.write(text.replace("ID", str(given["id"])).encode("latin-1") + b"\\n")
            sys.stdout.flush()
    elif name == "deaf":
        say(method="notifications/deaf")
        time.sleep(60)
    elif name == "leave":
        os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "60")
        os._exit(3)
"""


class Person:
    """Answers forms, if there is somebody."""

    def __init__(self) -> None:
        self.answer: Json | None = {"action": "accept", "content": {"colour": "red"}}
        self.asked: asyncio.Queue[Json] = asyncio.Queue()
        self.gone = asyncio.Event()

    def can_ask(self, kind: object) -> bool:
        return self.answer is not None

    async def request(self, request: Request[Any, Any]) -> Json:
        self.asked.put_nowait(request.public()["request"])
        if not self.answer:
            try:
                await asyncio.Event().wait()
            finally:
                self.gone.set()
        assert self.answer
        return self.answer


class Place:
    """A server of this host, and what it says of its own accord."""

    def __init__(self, tmp_path: Path, *more: str) -> None:
        self.seen = tmp_path / "seen"
        self.host = Host()
        self.news: asyncio.Queue[Json] = asyncio.Queue()
        command = ServerCommand((sys.executable, "-ISc", SERVER, str(self.seen), *more), str(tmp_path))
        self.person = Person()
        ask = partial(answer_form, cast(Any, self.person), no_hooks(MemoryLog(), OpenPermissions()), "s")
        self.channel = StdioChannel("s", command, self.host, self.news.put_nowait, ask)
        self.ask = ask
        self.client = McpClient(self.channel)

    async def wrote(self, line: str) -> None:
        async def there() -> None:
            while line not in self.seen.read_text().split("\n"):
                await asyncio.sleep(0.01)

        await within(20, there())

    async def close(self) -> None:
        await self.channel.close()
        assert marked(self.host.session) == []


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    await made.client.connect()
    yield made
    await made.close()


async def test_a_server_is_asked_answered_cancelled_started_again_and_ended(place: Place) -> None:
    found = await place.client.call("ask", {})
    assert [(each["id"], sorted(each)[0]) for each in found["answers"]] == [(7, "id"), (8, "error")]
    call = asyncio.ensure_future(place.client.call("nothing", {}))
    await asyncio.sleep(0)
    call.cancel()
    await place.wrote("notifications/cancelled")
    with pytest.raises(McpError, match="ended with exit code 3: hello on stderr; the next call starts it again"):
        await place.client.call("leave", {})
    assert marked(place.host.session) == []
    await place.client.call("ask", {})
    assert place.seen.read_text().count("start") == 2
    assert (await place.news.get())["method"] == "notifications/tools/list_changed"
    await place.close()
    with pytest.raises(McpError, match="not connected"):  # as from an agent that still works when the session ends
        await place.client.call("ask", {})
    await place.client.connect()
    assert place.seen.read_text().count("start") == 3


async def test_a_form_of_a_server_is_put_to_the_person(place: Place) -> None:
    found = await place.client.call("form", {})
    assert found["answer"]["result"] == {"action": "accept", "content": {"colour": "red"}}
    assert "elicitation" in found["offers"]
    asked = await place.person.asked.get()
    shown = {"subtype": "elicitation", "mcp_server_name": "s", "message": "Which?", "mode": "form"}
    assert asked.items() >= {**shown, "requested_schema": {"type": "object"}}.items()
    place.person.answer = None  # nobody is there
    assert (await place.client.call("form", {}))["answer"]["result"] == {"action": "decline"}
    place.person.answer = {}  # nobody answers before the server ends
    call = asyncio.ensure_future(place.client.call("form", {}))
    await place.person.asked.get()
    await place.close()
    await within(20, place.person.gone.wait())
    with pytest.raises(McpError, match="is being stopped"):
        await call


async def test_a_server_has_limits_in_what_it_sends_and_does_not_read(place: Place) -> None:
    with pytest.raises(McpError, match="more than 8 MiB"):
        await place.client.call("flood", {})
    waiting = asyncio.ensure_future(place.client.call("deaf", {}))
    while (await place.news.get())["method"] != "notifications/deaf":
        pass
    big = "x" * 5_000_000
    more = asyncio.ensure_future(place.client.call("ask", {"text": big}))
    await asyncio.sleep(0)
    with pytest.raises(McpError, match="does not read"):
        await place.client.call("ask", {"text": big})
    await place.close()
    for each in (waiting, more):
        with pytest.raises(McpError, match="is being stopped"):
            await each


async def test_a_server_that_does_not_start_is_refused_for_a_while(tmp_path: Path) -> None:
    place = Place(tmp_path, "broken")
    with pytest.raises(McpError, match="exit code 1: it is broken"):
        await place.client.connect()
    with pytest.raises(McpError, match="exit code 1"):
        await place.client.call("ask", {})
    with pytest.raises(McpError, match="the next try is in"):
        await place.client.call("ask", {})
    await place.close()
    gone = StdioChannel("gone", ServerCommand(("/nonexistent", "x"), "/"), place.host, print, place.ask)
    with pytest.raises(McpError, match="/nonexistent cannot be started: No such file"):
        await McpClient(gone).connect()


ANSWER = '{"jsonrpc": "2.0", "id": ID, "result": {"is": "%s"}}'


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([ANSWER % "\xff\xfe"], "\ufffd\ufffd"),
        ([ANSWER % "\\ud800 \\ud83d\\ude00"], "\ufffd \U0001f600"),
        ([ANSWER.replace('"%s"', "[NaN, 1e999]")], [None, None]),
        (["[" + ANSWER % "batch" + "]"], "batch"),
        ([ANSWER.replace("ID", '"ID"') % "text"], "text"),
        ([ANSWER.replace("ID", "ID.0") % "number"], "number"),
        (["Warning: old \xff" + ANSWER % "behind"], "behind"),
        (["working on it", "[INFO] ID", ANSWER % "chatty"], "chatty"),
        (['{"level": "info", "id": "x"', '{"level": "info"}', ANSWER % "too late"], "cannot be read"),
        ([(ANSWER % "cut")[:-5]], "cannot be read"),
        (["[{" + "[" * 5000 + "]" * 5000], "cannot be read"),
        (['{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "Parse error"}}'], "Parse error"),
        (['{"jsonrpc": "2.0", "id": ID, "error": "as text"}'], "as text"),
        (['{"jsonrpc": "2.0", "id": ID, "error": {"code": "x", "message": {"a": 1}}}'], '"a": 1'),
        (['{"jsonrpc": "2.0", "id": ID, "error": []}'], "[]"),
        (['{"jsonrpc": "2.0", "id": ID, "result": "text"}'], "no result"),
        (['{"jsonrpc": "2.0", "id": ID}'], "no result"),
    ],
    ids=str,
)
async def test_each_answer_ends_its_call_at_once_as_far_as_it_can_be_read(
    place: Place, lines: list[str], found: object
) -> None:
    try:
        assert (await within(20, place.client.call("raw", {"lines": lines})))["is"] == found
    except McpError as error:
        assert str(found) in str(error)
    assert "answers" in await within(20, place.client.call("ask", {})), "the next call finds the server as it was"


async def test_the_time_of_a_call_stops_while_a_person_is_asked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccb.remote.mcp.mcp_client._LOOK_S", 0.02)
    place.client.call_s, place.person.answer = 0.5, {}
    why = r"no answer within 0.5 s, the limit of its calls .MCP_TOOL_TIMEOUT sets another"
    with pytest.raises(McpError, match=why):
        await place.client.call("nothing", {}, "t1")
    waiting = asyncio.ensure_future(place.client.call("form", {}, "t2"))
    await within(20, place.person.asked.get())
    done, _ = await asyncio.wait({waiting}, timeout=1.0)
    assert not done
    await place.close()
    with pytest.raises(McpError, match="being stopped"):
        await waiting


def settings(*layers: Json, user: Json | None = None) -> WorkerSettings:
    own = Layer(USER, "u", user or {})
    return WorkerSettings((own, *(Layer(s, "p", v, on_host=True) for s, v in zip((PROJECT, LOCAL), layers))))


def test_which_servers_of_a_project_start() -> None:
    x = {"command": "x"}
    shared = {"mcpServers": {"a": x, "b": x, "c": x}, "disabledMcpjsonServers": ["c"]}
    assert list(project_servers(settings(shared, user={"mcpServers": {"mine": x}}), "/", {})) == ["a", "b"]
    only = {"enabledMcpjsonServers": ["a", "c"]}
    assert list(project_servers(settings(shared, only), "/", {})) == ["a"]
    assert list(project_servers(settings(shared, {**only, "enableAllProjectMcpServers": True}), "/", {})) == ["a", "b"]


def test_variables_stand_for_their_values() -> None:
    env = {"A": "${SET}", "B": "${EMPTY:-other}", "C": "${NONE:-}", "D": "$SET"}
    server = {"command": "${SET}/x", "args": ["${NONE:-d}", 3], "env": env}
    described = {"mcpServers": {"a": server, "b": {"command": "${NONE}"}, "c": {"command": 3}, "d__d": server}}
    given = settings({**described, "env": {"SET": "from settings"}})
    found = project_servers(given, "/work", {"SET": "1", "EMPTY": ""})
    own = {"A": "from settings", "B": "other", "C": "", "D": "$SET"}
    shared = {"SET": "from settings", "CLAUDE_PROJECT_DIR": "/work"}
    assert found["a"] == ServerCommand(("from settings/x", "d", "3"), "/work", {**shared, **own})
    assert [found[name] for name in "bc"] == ["the variable NONE is not set", str(found["c"])]
    assert "needs a command" in str(found["c"]) and "single _" in str(found["d__d"])


@pytest.mark.parametrize("kind", [{}, {"type": "http"}, {"type": "stdio"}])
def test_a_server_whose_question_could_show_something_else_does_not_start(kind: Json) -> None:
    both = {**kind, "command": "notes", "url": "https://example.com/mcp"}
    found = project_servers(settings({"mcpServers": {"a": both}}), "/", {})
    assert found == {"a": "it has a command and a url, and only one of them can count"}
