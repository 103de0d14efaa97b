"""The servers of the laptop in a session: what they ask and report reaches the person, and not the host."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.local.mcp.test_mcp_permissions import Worker
from tests.support.hosts.scripted_host import ScriptedHost, read_by, session_on
from tests.support.mcp_http import HttpMcp

from ccb.local.credentials.secret_store import KeyStore
from ccb.local.mcp import mcp_service
from ccb.local.mcp.mcp_config import HttpServer
from ccb.local.mcp.mcp_permissions import LaptopPermissions
from ccb.local.mcp.mcp_service import LaptopServers
from ccb.local.session.own_hooks import FormHooks
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, public_withdrawal
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.mcp_messages import ELICITATION


async def test_the_session_goes_on_while_what_speaks_to_servers_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def load() -> None:
        begun.set()
        assert may_end.wait(60), "nothing else runs while it loads"

    monkeypatch.setattr(mcp_service, "load_clients", load)
    async with session_with(HttpMcp()) as (_, host):
        calling = asyncio.create_task(called(host, "paint"))
        assert await asyncio.to_thread(begun.wait, 60)
        may_end.set()
        assert await calling == "decline"


async def test_what_a_server_asks_and_reports_reaches_the_reader_and_not_the_host() -> None:
    far = HttpMcp()
    async with session_with(far) as (servers, host):
        session = servers._session
        assert [*servers.states()] == ["far"] and not servers._servers
        session.register(CAN_USE_TOOL)
        assert await called(host, "paint") == "decline"  # nobody fills in forms here
        assert [*servers._servers] == ["far"]
        assert await called(host, "work") == "worked"
        progress = await host.question()
        told = (progress["type"], progress["tool_use_id"], progress["output"])
        assert told == ("tool_progress", "t1", "1/4 first")
        session.register(ELICITATION)
        calling = asyncio.create_task(called(host, "paint"))
        asked = await host.question()
        assert (asked["request"]["subtype"], asked["request"]["mcp_server_name"]) == ("elicitation", "far")
        await session.answer(asked["request_id"], {"action": "accept", "content": {"colour": "red", "count": 2}})
        assert await calling == "2 red"
        await host.calls({}, tool="wait", id="wait")
        async with asyncio.timeout(60):
            await far.began.wait()
            await host.event(public_withdrawal("wait"))  # the person interrupts the agent
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
    async with session_with(HttpMcp(), forms=forms) as (servers, host):
        servers._session.register(ELICITATION)
        calling = asyncio.create_task(called(host, "paint"))
        if told not in ("3 blue", "decline"):
            given = {"action": "accept", "content": {"colour": "red", "count": 2}}
            await servers._session.answer((await host.question())["request_id"], given)
        assert await calling == told
        assert host.shown.empty()
    for path in tmp_path.iterdir():
        got = json.loads(path.read_text())
        assert (got["hook_event_name"], got["mcp_server_name"]) == (path.name, "far")
        result = path.name == "ElicitationResult"
        assert got["content"]["colour"] == "red" if result else "colour" in got["requested_schema"]["properties"]


async def test_the_tool_that_answers_in_place_of_the_person_counts() -> None:
    far = HttpMcp()
    permissions = LaptopPermissions(dict, None, mode="default", may_bypass=False, prompt_tool="mcp__far__decide")
    async with session_with(far, permissions) as (_, host):
        for name, tool_use_id, greeting in (("you", "a", "hello you"), ("me", "b", "not fine")):
            question: Json = {"tool_name": "mcp__far__greet", "input": {"name": name}, "tool_use_id": tool_use_id}
            await called(host, "decide", **question)
            assert await called(host, "greet", tool_use_id, name=name) == greeting
            assert "has not allowed" in await called(host, "greet", tool_use_id, name=name)
        assert far.calls == ["you"]


@asynccontextmanager
async def session_with(
    far: HttpMcp, permissions: LaptopPermissions | None = None, forms: FormHooks | None = None
) -> AsyncIterator[tuple[LaptopServers, Worker]]:
    """A session with a server `far`, and the worker. All calls are allowed by default."""
    allowing = LaptopPermissions(lambda: {"allow": ["mcp__far"]}, None, mode="default", may_bypass=False)
    async with far.serving() as url, session_on(ScriptedHost()) as (session, peer):
        configs = {"far": HttpServer(type="http", url=url)}
        client = LaptopServers(session, configs, permissions or allowing, KeyStore(), forms or FormHooks({}))
        worker = Worker(session, peer, "far")
        async with client as servers, read_by(session, worker.reads):
            yield servers, worker


async def called(worker: Worker, tool: str, call_id: str = "t1", **arguments: object) -> str:
    """Call a tool, and return the text of its result, or why the laptop refuses it."""
    number = f"m{worker._seq}"
    await worker.calls(arguments, call_id, tool, number)
    response = await worker.response(number)
    if "error" in response:
        return str(response["error"])
    return str(response["response"]["mcp_response"]["result"]["content"][0]["text"])
