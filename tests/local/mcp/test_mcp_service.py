"""The servers of the laptop in a session: what they ask and report reaches the person, and not the host."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosts.scripted_host import ScriptedHost, read_by, session_on
from tests.support.mcp_http import HttpMcp
from tests.support.network.link_peer import Peer

from ccb.local.credentials.secret_store import KeyStore
from ccb.local.mcp import mcp_service
from ccb.local.mcp.mcp_config import HttpServer
from ccb.local.mcp.mcp_permissions import LaptopPermissions
from ccb.local.mcp.mcp_service import LaptopServers
from ccb.local.session.own_hooks import FormHooks
from ccb.local.session.session_client import Item, SessionEvent
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, Request, public_withdrawal
from ccb.tunnel.wire.frames import Event, Input, Json
from ccb.tunnel.wire.mcp_messages import ELICITATION, LAPTOP_MCP_MESSAGE, McpMessage


async def test_the_session_goes_on_while_what_speaks_to_servers_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def load() -> None:
        begun.set()
        assert may_end.wait(60), "nothing else runs while it loads"

    monkeypatch.setattr(mcp_service, "load_clients", load)
    async with session_with(HttpMcp()) as (_, host, _shown):
        calling = asyncio.create_task(host.call("paint"))
        assert await asyncio.to_thread(begun.wait, 60)
        may_end.set()
        assert await calling == "decline"


async def test_what_a_server_asks_and_reports_reaches_the_reader_and_not_the_host() -> None:
    far = HttpMcp()
    async with session_with(far) as (servers, host, shown):
        session = servers._session
        assert [*servers.states()] == ["far"] and not servers._servers
        session.register(CAN_USE_TOOL)
        assert await host.call("paint") == "decline"  # nobody fills in forms here
        assert [*servers._servers] == ["far"]
        assert await host.call("work") == "worked"
        progress = await shown.get()
        told = (progress["type"], progress["tool_use_id"], progress["output"])
        assert told == ("tool_progress", "t2", "1/4 first")
        session.register(ELICITATION)
        calling = asyncio.create_task(host.call("paint"))
        asked = await shown.get()
        assert (asked["request"]["subtype"], asked["request"]["mcp_server_name"]) == ("elicitation", "far")
        await session.answer(asked["request_id"], {"action": "accept", "content": {"colour": "red", "count": 2}})
        assert await calling == "2 red"
        await host.send("wait")
        async with asyncio.timeout(60):
            await far.began.wait()
            await host.event(public_withdrawal(f"m{host.count}"))  # the person interrupts the agent
            await far.cancelled.wait()


def hook(command: str, matcher: str = "") -> list[Json]:
    return [{"matcher": matcher, "hooks": [{"type": "command", "command": command}]}]


def says(event: str, **own: Any) -> str:
    return f"echo '{json.dumps({'hookSpecificOutput': {'hookEventName': event, **own}})}'"


FIRST = says("Elicitation", action="accept", content={"colour": "blue", "count": 3})
CHANGED = says("ElicitationResult", action="accept", content={"colour": "green", "count": 1})


@pytest.mark.parametrize(
    ("hooks", "told"),
    [
        ({"Elicitation": hook(f"cat > DIR/Elicitation; {FIRST}")}, "3 blue"),
        ({"Elicitation": hook(f"echo Ready; {FIRST}; echo Done")}, "3 blue"),
        ({"Elicitation": hook("exit 2")}, "decline"),
        ({"Elicitation": hook("""echo "['decision': 'block']" """)}, "decline"),
        ({"Elicitation": [*hook(FIRST, "other"), *hook("exit 1")]}, "2 red"),
        ({"ElicitationResult": hook(f"cat > DIR/ElicitationResult; {CHANGED}")}, "1 green"),
    ],
)
async def test_hooks_of_the_person_answer_the_forms_of_a_server_on_the_laptop(
    tmp_path: Path, hooks: dict[str, list[Json]], told: str
) -> None:
    forms = FormHooks(json.loads(json.dumps(hooks).replace("DIR", str(tmp_path))))
    async with session_with(HttpMcp(), forms=forms) as (servers, host, shown):
        servers._session.register(ELICITATION)
        calling = asyncio.create_task(host.call("paint"))
        if told not in ("3 blue", "decline"):
            given = {"action": "accept", "content": {"colour": "red", "count": 2}}
            await servers._session.answer((await shown.get())["request_id"], given)
        assert await calling == told
        assert shown.empty()
    for path in tmp_path.iterdir():
        got = json.loads(path.read_text())
        assert (got["hook_event_name"], got["mcp_server_name"]) == (path.name, "far")
        result = path.name == "ElicitationResult"
        assert got["content"]["colour"] == "red" if result else "colour" in got["requested_schema"]["properties"]


async def test_the_tool_that_answers_in_place_of_the_person_counts() -> None:
    far = HttpMcp()
    permissions = LaptopPermissions(dict, None, mode="default", may_bypass=False, prompt_tool="mcp__far__decide")
    async with session_with(far, permissions) as (_, host, _shown):
        for name, tool_use_id, greeting in (("you", "a", "hello you"), ("me", "b", "not fine")):
            question = {"tool_name": "mcp__far__greet", "input": {"name": name}, "tool_use_id": tool_use_id}
            await host.call("decide", "", **question)
            assert await host.call("greet", tool_use_id, name=name) == greeting
            assert "has not allowed" in await host.call("greet", tool_use_id, name=name)
        assert far.calls == ["you"]


@asynccontextmanager
async def session_with(
    far: HttpMcp, permissions: LaptopPermissions | None = None, forms: FormHooks | None = None
) -> AsyncIterator[tuple[LaptopServers, Host, asyncio.Queue[Json]]]:
    """A session with a server `far`, the worker, and what is shown to the person. All calls are allowed by default."""
    shown: asyncio.Queue[Json] = asyncio.Queue()
    allowing = LaptopPermissions(lambda: {"allow": ["mcp__far"]}, None, mode="default", may_bypass=False)
    async with far.serving() as url, session_on(ScriptedHost()) as (session, peer):
        configs = {"far": HttpServer(type="http", url=url)}
        client = LaptopServers(session, configs, permissions or allowing, KeyStore(), forms or FormHooks({}))
        async with client as servers, read_by(session, partial(show, shown.put_nowait)):
            yield servers, Host(peer), shown


def show(put: Callable[[Json], None], item: Item) -> None:
    if isinstance(item, SessionEvent):
        put(item.body)


class Host:
    """The worker: it calls tools of the server `far`."""

    def __init__(self, peer: Peer) -> None:
        self.count = 0
        self._peer = peer
        self._seq = 0

    async def event(self, body: Json) -> None:
        self._seq += 1
        await self._peer.send(Event(self._seq, 1, "message", body))

    async def send(self, tool: str, call_id: str = "", **arguments: object) -> None:
        self.count += 1
        meta = {"claudecode/toolUseId": call_id or f"t{self.count}"}
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
        await self.event(Request(LAPTOP_MCP_MESSAGE, McpMessage("far", message), id=f"m{self.count}").public())

    async def call(self, tool: str, call_id: str = "", **arguments: object) -> str:
        """Call a tool, and return the text of its result, or why the laptop refuses it. The answer is the first thing
        that the host gets."""
        await self.send(tool, call_id, **arguments)
        response = (await self._peer.next(Input)).body["response"]
        assert response["request_id"] == f"m{self.count}"
        if "error" in response:
            return str(response["error"])
        return str(response["response"]["mcp_response"]["result"]["content"][0]["text"])
