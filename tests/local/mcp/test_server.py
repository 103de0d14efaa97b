"""Servers of the laptop over Streamable HTTP, made with the official package: calls, cancelling, progress, forms,
restarts."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from aiohttp import web
from tests.support.mcp_http import HttpMcp
from tests.support.network.http_server import serving

from ccb.local.mcp import laptop_server as server_module
from ccb.local.mcp.laptop_server import ClientSide, LaptopServer
from ccb.local.mcp.mcp_config import HttpServer
from ccb.tunnel.wire.control_protocol import RequestRefused
from ccb.tunnel.wire.mcp_messages import Elicitation

Json = dict[str, Any]


def call(tool: str, **arguments: object) -> Json:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "t1"}}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def text(reply: Json) -> str:
    assert reply["id"] == 7
    return str(reply["result"]["content"][0]["text"])


async def test_a_server_over_http_gets_its_headers_and_answers_calls() -> None:
    far = HttpMcp()
    async with far.serving() as url:
        config = HttpServer(type="http", url=url, headers={"X-Token": "secret"})
        server = LaptopServer("far", config, ClientSide(sys.stderr))
        try:
            hello = await server.reply({"id": 1, "method": "initialize"})
            assert hello["result"]["serverInfo"]["name"] == "far" and server.running
            assert text(await server.reply(call("greet", name="you"))) == "hello you"
            assert far.headers["x-token"] == "secret"
            progress: list[Json] = []
            assert text(await server.reply(call("work"), progress.append)) == "worked"
            assert progress == [{"progress": 1, "total": 4, "message": "first"}]
            assert "not supported" in (await server.reply(call("paint")))["error"]["message"]  # nobody can be asked
        finally:
            await server.close()


async def test_a_call_that_is_cancelled_is_cancelled_on_the_server() -> None:
    far = HttpMcp()
    async with far.serving() as url:
        server = LaptopServer("far", HttpServer(type="http", url=url), ClientSide(sys.stderr))
        waiting = asyncio.create_task(server.reply(call("wait")))
        async with asyncio.timeout(60):
            await far.began.wait()
            waiting.cancel()
            await far.cancelled.wait()
        assert text(await server.reply(call("greet", name="again"))) == "hello again"
        await server.close()


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

    far = HttpMcp()
    async with far.serving() as url:
        server = LaptopServer("far", HttpServer(type="http", url=url), ClientSide(sys.stderr, ask=ask))
        assert text(await server.reply(call("paint"))) == result
        await server.close()
    (form,) = asked
    assert (form.mcp_server_name, form.message, form.mode) == ("far", "Which colour?", "form")
    assert form.requested_schema is not None and "colour" in form.requested_schema["properties"]


async def test_a_server_that_was_restarted_meanwhile_is_reached_again() -> None:
    far = HttpMcp()
    async with far.serving() as url:
        server = LaptopServer("far", HttpServer(type="http", url=url), ClientSide(sys.stderr))
        assert text(await server.reply(call("greet", name="a"))) == "hello a"
    port = int(url.split(":")[2].split("/")[0])
    with pytest.raises(RequestRefused, match="Whether this call had any effect is not known"):
        await server.reply(call("greet", name="b"))
    with pytest.raises(RequestRefused, match="cannot be reached"):
        await server.reply(call("greet", name="b"))
    with pytest.raises(RequestRefused, match="does not start; the next try is in 1 s"):
        await server.reply(call("greet", name="b"))
    assert server.why and server.retry_s > 0
    again = HttpMcp()
    async with again.serving(port):
        await server.restart()
        assert server.why == ""
        assert text(await server.reply(call("greet", name="c"))) == "hello c"
    last = HttpMcp()
    async with last.serving(port):  # it does not know the session, so it has not carried out the call
        assert text(await server.reply(call("greet", name="d"))) == "hello d"
        assert last.calls == ["d"]
        await server.close()


async def test_a_call_whose_answer_was_cut_is_not_begun_again_although_the_server_has_forgotten_the_session() -> None:
    begun: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = await request.json() if request.method == "POST" else {}
        if asked.get("method") == "tools/call":
            begun.append(asked["params"]["name"])
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(b"id: 1\nretry: 1\ndata:\n\n")  # then it is restarted, and knows nothing any more
            return response
        if asked.get("method") != "initialize":
            return web.Response(status=202 if asked else 404)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "far", "version": "1"}}
        reply = {"jsonrpc": "2.0", "id": asked["id"], "result": hello}
        return web.json_response(reply, headers={"mcp-session-id": "s1"})

    async with serving(answer) as url:
        server = LaptopServer("far", HttpServer(type="http", url=url), ClientSide(sys.stderr))
        with pytest.raises(RequestRefused, match="Whether this call had any effect is not known"):
            await server.reply(call("pay"))
        await server.close()
    assert begun == ["pay"]


async def test_a_server_that_has_ended_unseen_is_started_before_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "HEALTHY_S", 0.0)
    far = HttpMcp()
    async with far.serving() as url:
        server = LaptopServer("far", HttpServer(type="http", url=url), ClientSide(sys.stderr))
        assert text(await server.reply(call("greet", name="a"))) == "hello a"
    with pytest.raises(RequestRefused, match="cannot be reached"):  # not: has ended during this call
        await server.reply(call("greet", name="b"))
    assert not server.running
    await server.close()


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('{"jsonrpc": "2.0", "id": "ID", "result": {"is": 1}}', '"is": 1'),
        ('{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "Parse error"}}', "Parse error"),
        ('{"jsonrpc": "2.0", "id": ID, "result": {"is": "\\ud800"}}', "JSON"),
        ('{"jsonrpc": "2.0", "id": ID, "result": {"is": NaN}}', "not JSON that can be passed on"),
        ('[{"jsonrpc": "2.0", "id": ID, "result": {}}]', "JSON"),
        ('{"jsonrpc": "2.0", "id": ID, "error": "as text"}', "JSON"),
        ("no JSON", "JSON"),
    ],
)
async def test_odd_answers_over_http_end_their_call_and_a_deaf_server_holds_no_end_up(body: str, found: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "DELETE" and found == "Parse error":
            await asyncio.Event().wait()
        asked = await request.json() if request.method == "POST" else {}
        if asked.get("method") == "tools/call":
            return web.Response(text=body.replace("ID", str(asked["id"])), content_type="application/json")
        if asked.get("method") != "initialize":
            return web.Response(status=202 if asked else 404)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "far", "version": "1"}}
        reply = {"jsonrpc": "2.0", "id": asked["id"], "result": hello}
        return web.json_response(reply, headers={"mcp-session-id": "s1"})

    async with serving(answer) as url, asyncio.timeout(30):
        server = LaptopServer("far", HttpServer(type="http", url=url), ClientSide(sys.stderr))
        try:
            said = json.dumps(await server.reply(call("odd")))
        except RequestRefused as refused:
            said = str(refused)
        assert found in said
        await server.close()
