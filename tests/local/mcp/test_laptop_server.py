"""Servers of the laptop, over HTTP and programs: what they answer, and that nothing of them outlives the session."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from tests.support import odd_mcp_server
from tests.support.machine.waiting import until
from tests.support.mcp_http import HttpMcp
from tests.support.network.http_server import serving
from tests.support.odd_mcp_server import LAUNCHER, TOOLS, marked_processes

from ccb.local.mcp import laptop_server as server_module
from ccb.local.mcp.laptop_server import ClientSide, LaptopServer
from ccb.local.mcp.mcp_config import HttpServer, StdioServer
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.control_protocol import RequestRefused
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.mcp_messages import Elicitation


def call(tool: str, **arguments: object) -> Json:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "t1"}}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def text(reply: Json) -> str:
    assert reply["id"] == 7
    return str(reply["result"]["content"][0]["text"])


def server_at(url: str) -> LaptopServer:
    return LaptopServer("far", HttpServer(type="http", url=url), ClientSide(sys.stderr))


async def greeting(server: LaptopServer, name: str) -> str:
    return text(await server.reply(call("greet", name=name)))


@asynccontextmanager
async def connected(far: HttpMcp | None = None, url: str = "", **client: Any) -> AsyncIterator[LaptopServer]:
    """A server over HTTP, as this laptop uses it."""
    async with far.serving() if far is not None else nullcontext(url) as url:
        config = HttpServer(type="http", url=url, headers={"X-Token": "secret"})
        server = LaptopServer("far", config, ClientSide(sys.stderr, **client))
        try:
            yield server
        finally:
            await server.close()


async def test_a_server_over_http_gets_its_headers_and_answers_calls_and_the_end_of_a_cancelled_one() -> None:
    far = HttpMcp()
    async with connected(far) as server, asyncio.timeout(60):
        hello = await server.reply({"id": 1, "method": "initialize"})
        assert hello["result"]["serverInfo"]["name"] == "far" and server._connection
        assert text(await server.reply(call("greet", name="you"))) == "hello you"
        assert far.headers["x-token"] == "secret"
        progress: list[Json] = []
        assert text(await server.reply(call("work"), progress.append)) == "worked"
        assert progress == [{"progress": 1, "total": 4, "message": "first"}]
        assert "not supported" in (await server.reply(call("paint")))["error"]["message"]  # nobody can be asked
        waiting = asyncio.create_task(server.reply(call("wait")))
        await far.began.wait()
        waiting.cancel()
        await far.cancelled.wait()
        assert text(await server.reply(call("greet", name="again"))) == "hello again"


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"action": "accept", "content": {"colour": "red", "count": 3}}, "3 red"),
        ({"action": "decline"}, "decline"),
        ({"action": "nonsense"}, "cancel"),
    ],
)
async def test_a_server_asks_the_person(answer: Json, result: str) -> None:
    asked: list[Elicitation] = []

    async def ask(form: Elicitation) -> Json:
        asked.append(form)
        return answer

    async with connected(HttpMcp(), ask=ask) as server:
        assert text(await server.reply(call("paint"))) == result
    (form,) = asked
    assert (form.mcp_server_name, form.message, form.mode) == ("far", "Which colour?", "form")
    assert form.requested_schema is not None and "colour" in form.requested_schema["properties"]


async def test_a_server_that_was_restarted_meanwhile_is_reached_again() -> None:
    async with HttpMcp().serving() as url:
        server = server_at(url)
        assert await greeting(server, "a") == "hello a"
    port = int(url.split(":")[2].split("/")[0])
    for why in ("Whether this call had any effect is not known", "cannot be reached", "the next try is in 1 s"):
        with pytest.raises(RequestRefused, match=why):
            await greeting(server, "b")
    assert server.why
    async with HttpMcp().serving(port):
        await server.restart()
        assert server.why == ""
        assert await greeting(server, "c") == "hello c"
    last = HttpMcp()
    async with last.serving(port):  # it does not know the session
        with pytest.raises(RequestRefused, match="The next call starts it again"):
            await greeting(server, "d")
        assert await greeting(server, "e") == "hello e"
        assert last.calls == ["e"]
        await server.close()


async def test_a_server_that_has_ended_unseen_is_started_before_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEALTHY_S", 0.0)
    async with HttpMcp().serving() as url:
        server = server_at(url)
        assert await greeting(server, "a") == "hello a"
    with pytest.raises(RequestRefused, match="cannot be reached"):  # not: has ended during this call
        await greeting(server, "b")
    assert server._connection is None
    await server.close()


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('{"jsonrpc": "2.0", "id": "ID", "result": {"is": 1}}', '"is": 1'),
        ('{"jsonrpc": "2.0", "id": ID, "result": {"is": "\\ud800"}}', "JSON"),
        ('{"jsonrpc": "2.0", "id": ID, "result": {"is": NaN}}', "not JSON that can be passed on"),
        ('[{"jsonrpc": "2.0", "id": ID, "result": {}}]', "JSON"),
        ('{"jsonrpc": "2.0", "id": ID, "error": "as text"}', "JSON"),
        ("no JSON", "JSON"),
    ],
)
async def test_odd_answers_over_http_end_their_call_and_a_deaf_server_holds_no_end_up(body: str, found: str) -> None:
    async def serve(request: web.Request) -> web.StreamResponse:
        if body == "no JSON" and request.method == "DELETE":
            await asyncio.Event().wait()
        asked = await request.json() if request.method == "POST" else {}
        if asked.get("method") == "tools/call":
            return web.Response(text=body.replace("ID", str(asked["id"])), content_type="application/json")
        if asked.get("method") != "initialize":
            return web.Response(status=202 if asked else 404)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "far", "version": "1"}}
        reply = {"jsonrpc": "2.0", "id": asked["id"], "result": hello}
        return web.json_response(reply, headers={"mcp-session-id": "s1"})

    async with serving(serve) as url, asyncio.timeout(30), connected(url=url) as server:
        try:
            said = json.dumps(await server.reply(call("odd")))
        except RequestRefused as refused:
            said = str(refused)
        assert found in said


SERVER = odd_mcp_server.__file__


class Odd:
    """A server of this machine. All its processes have a mark in their environment."""

    def __init__(self, *arguments: str, launcher: str = "") -> None:
        self.mark = uuid4().hex
        launched = ["sh", "-c", launcher, sys.executable, SERVER]
        command = launched if launcher else [sys.executable, "-IS", SERVER, *arguments]
        self.config = StdioServer(command=command[0], args=command[1:], env={"MARK": self.mark})
        self.server = LaptopServer("odd", self.config, ClientSide(sys.stderr))

    async def calls(self, tool: str, **arguments: object) -> Json:
        return await self.server.reply(call(tool, **arguments))

    async def is_ok(self) -> bool:
        return bool((await self.calls("ok"))["result"]["is"] == "ok")

    def processes(self) -> list[int]:
        return marked_processes(self.mark)

    async def __aenter__(self) -> Odd:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()
        assert self.processes() == []


async def gone(odd: Odd) -> None:
    await until(lambda: not odd.processes())


async def test_the_end_of_a_server_ends_all_that_its_launcher_has_left_behind() -> None:
    async with Odd(launcher=LAUNCHER) as odd:
        assert await odd.is_ok()
        assert len(odd.processes()) >= 5  # with its keeper
        began = time.monotonic()
    assert time.monotonic() - began < 5, "half a second, on a machine with time"


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
async def test_nothing_of_a_server_is_left_when_ccb_is_killed(end: signal.Signals) -> None:
    odd = Odd(launcher=LAUNCHER)
    program = (
        "import asyncio, sys; from ccb.local.mcp.mcp_config import StdioServer;"
        "from ccb.local.mcp.laptop_server import ClientSide, LaptopServer\n"
        "async def main():\n"
        "    server = LaptopServer('odd', StdioServer.model_validate_json(sys.argv[1]), ClientSide(sys.stderr))\n"
        "    await server.reply({'id': 1, 'method': 'initialize'}); print('up', flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    command = (sys.executable, "-c", program, odd.config.model_dump_json())
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as ccb:
        assert ccb.stdout is not None
        assert await asyncio.to_thread(ccb.stdout.readline) == "up\n"
        assert odd.processes()
        ccb.send_signal(end)
    await gone(odd)


async def test_a_server_ends_with_its_keeper() -> None:
    odd = Odd()
    await odd.is_ok()
    (keeper,) = [each for each in odd.processes() if command_line(each)[3].endswith("keeper.py")]
    os.kill(keeper, signal.SIGKILL)
    await gone(odd)
    await odd.server.close()


@pytest.mark.parametrize("adopts", [True, False], ids=["it adopts orphans", "the kernel refuses that"])
@pytest.mark.parametrize("deaf", ["", "trap '' TERM;"], ids=["polite", "deaf"])
async def test_a_keeper_ends_what_its_server_leaves(adopts: bool, deaf: str) -> None:
    mark = uuid4().hex
    program = (
        "import ctypes, sys, types; from ccb.local.mcp import server_keeper as keeper\n"
        f"real = ctypes.CDLL(None).prctl; ctypes.CDLL = lambda name: types.SimpleNamespace(\n"
        f"    prctl=lambda what, *rest: real(what, *rest) if {adopts} else -1)\n"
        "sys.exit(keeper.main(int(sys.argv[1]), sys.argv[2:]))"
    )
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            server = f"{deaf} sleep 300 & exec cat"
            command = [sys.executable, "-c", program, str(theirs.fileno()), "sh", "-c", server]
            fds, env = (theirs.fileno(),), {**os.environ, "MARK": mark}
            assert subprocess.run(command, input=b"", pass_fds=fds, env=env, check=False).returncode == 0
        ours.settimeout(30)
        assert ours.recv(1) == b"\n"
        ours.shutdown(socket.SHUT_WR)
        assert ours.recv(1) == b""
    assert marked_processes(mark) == []


async def test_a_call_ends_with_its_server_although_others_hold_its_pipes() -> None:
    odd = Odd(launcher=LAUNCHER)
    await odd.is_ok()
    lines = {each: command_line(each) for each in odd.processes()}
    (server,) = [each for each, line in lines.items() if line[1:2] == ["-IS"] and "keeper" not in line[2]]
    hanging = asyncio.ensure_future(odd.calls("hang"))
    os.kill(server, signal.SIGKILL)
    async with asyncio.timeout(30):
        with pytest.raises(RequestRefused, match="has ended before it answered"):
            await hanging
    assert await odd.is_ok()
    await odd.server.close()
    await gone(odd)


def command_line(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


async def test_servers_that_are_still_starting_keep_nobody_from_quitting() -> None:
    silent = [Odd("silent", "stubborn") for _ in range(3)]
    asking = [asyncio.ensure_future(each.server.reply(call("ok"))) for each in silent for _ in range(2)]
    await until(lambda: all(each.processes() for each in silent))
    async with asyncio.timeout(10):
        await asyncio.gather(*(each.server.close() for each in silent))
    for each in asking:
        with pytest.raises(RequestRefused, match="is being stopped"):
            await each
    for odd in silent:
        await gone(odd)


async def test_a_server_that_answers_no_ping_is_started_again_unless_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Odd() as odd:
        await odd.is_ok()
        hanging = asyncio.ensure_future(odd.calls("hang"))
        await until(lambda: odd.server._calls)
        before = odd.processes()
        monkeypatch.setattr(server_module, "HEALTHY_S", 0.0)
        monkeypatch.setattr(server_module, "_PING_S", 0.2)
        await odd.server._running()
        assert odd.processes() == before, "it works on a call"
        await cancelled(hanging)
        assert await odd.is_ok()
        assert not set(odd.processes()) & set(before)


async def test_a_call_has_a_limit_and_later_answers_are_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_LOOK_S", 0.05)
    monkeypatch.setattr(server_module, "SAY_LIMIT_S", 0.1)
    async with Odd() as odd:
        assert await odd.is_ok()
        monkeypatch.setattr(StdioServer, "call_s", 0.5)
        shown: list[Json] = []
        with pytest.raises(RequestRefused, match=r"gives no answer within 0.5 s, the limit of its calls"):
            await odd.server.reply(call("hang"), shown.append)
        assert shown == [{"message": "no answer yet, limit 0.5 s"}]
        odd.server._patient = lambda tool: tool == "hang"
        waiting = asyncio.ensure_future(odd.calls("hang"))
        done, _ = await asyncio.wait({waiting}, timeout=1.0)
        assert not done, "somebody may be asked by it"
        await cancelled(waiting)
    async with Odd() as odd:
        assert await odd.is_ok()
        with pytest.raises(RequestRefused, match="gives no answer"):
            await odd.calls("raw", lines=[])
        monkeypatch.setattr(StdioServer, "call_s", 30)
        assert "cannot be read" in (await odd.calls("raw", lines=["{cut"]))["error"]["message"]


async def test_the_tools_of_a_server_pass_on_as_they_are_and_why_a_program_does_not_start_is_known() -> None:
    async with Odd() as odd:
        assert (await odd.server.reply({"id": 1, "method": "tools/list"}))["result"]["tools"] == TOOLS
    server = LaptopServer("gone", StdioServer(command="/nonexistent"), ClientSide(sys.stderr))
    with pytest.raises(RequestRefused, match=r"^the MCP server gone cannot be reached$"):  # the host learns no more
        await server.reply(call("ok"))
    assert server.why == "[Errno 2] No such file or directory: '/nonexistent'"


ANSWER = '{"jsonrpc": "2.0", "id": ID, "result": {"is": "%s"}}'


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([ANSWER % "\xff"], "\ufffd"),
        ([ANSWER % "\\ud800"], "\ufffd"),
        ([ANSWER.replace('"%s"', "NaN")], None),
        (["[" + ANSWER % "batch" + "]"], "batch"),
        ([ANSWER.replace("ID", '"ID"') % "text"], "text"),
        (["working on it", "[INFO] ID", ANSWER % "chatty"], "chatty"),
        ([(ANSWER % "cut")[:-5]], "cannot be read"),
        (['{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "Parse error"}}'], "Parse error"),
        (['{"jsonrpc": "2.0", "id": ID, "error": "as text"}'], "as text"),
        (['{"jsonrpc": "2.0", "id": ID, "result": []}'], "no result"),
    ],
    ids=str,
)
async def test_each_answer_ends_its_call_at_once_as_far_as_it_can_be_read(lines: list[str], found: object) -> None:
    async with Odd() as odd, asyncio.timeout(30):
        reply = await odd.calls("raw", lines=lines)
        if "result" in reply:
            assert reply["result"]["is"] == found
        else:
            assert str(found) in reply["error"]["message"]
        assert await odd.is_ok()
