"""MCP servers of a project that the host reaches over Streamable HTTP: real ones, made with `mcp`, and bad ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from mcp.server.mcpserver import Context
from tests.support.mcp_http import Authority, HttpMcp
from tests.support.model.model_script import Json

from ccb.remote.mcp.host_servers import project_servers
from ccb.remote.mcp.mcp_client import McpClient, McpError
from ccb.remote.mcp.mcp_http import HttpChannel, ServerAddress
from ccb.remote.settings.project_switches import _command_line
from ccb.remote.settings.worker_settings import PROJECT, Layer, WorkerSettings
from ccb.remote.system.deadline import within


class Reached:
    """A client of a server, and what the server says of its own accord."""

    def __init__(self, url: str, answer: Json | None = None) -> None:
        self.said: asyncio.Queue[Json] = asyncio.Queue()
        address = ServerAddress(url, {"Authorization": "Bearer t0"})
        self.channel = HttpChannel("far", address, self.said.put_nowait, self._ask)
        self.client = McpClient(self.channel, handshake_s=20)
        self.asked: list[Json] = []
        self._answer = answer or {}

    async def _ask(self, params: Json) -> Json:
        self.asked.append(params)
        return self._answer

    async def hears(self, method: str) -> Json:
        async def found() -> Json:
            while True:
                message = await self.said.get()
                if message["method"] == method:
                    return message

        return await within(20, found())

    async def __aenter__(self) -> Reached:
        await self.client.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()


def text_of(result: Json) -> str:
    return str(result["content"][0]["text"])


async def test_a_server_over_http_is_asked_answered_cancelled_and_heard() -> None:
    far = HttpMcp()

    @far.server.tool()
    async def grow(context: Context) -> str:
        """Offer one more tool."""
        far.server.add_tool(lambda: "late", name="late", description="A tool that came later.")
        await context.session.send_tool_list_changed()
        return "grown"

    form = {"action": "accept", "content": {"colour": "red", "count": 2}}
    async with far.serving() as url, Reached(url, form) as reached:
        assert {"greet", "wait"} <= {tool.name for tool in await reached.client.tools()}
        assert text_of(await reached.client.call("greet", {"name": "you"}, "toolu_1")) == "hello you"
        assert far.headers["authorization"] == "Bearer t0" and far.headers["mcp-session-id"]
        assert far.headers["mcp-protocol-version"] == reached.channel._protocol != ""
        assert text_of(await reached.client.call("work", {}, "toolu_2")) == "worked"
        assert (await reached.hears("notifications/progress"))["params"]["message"] == "first"
        assert text_of(await reached.client.call("paint", {}, "toolu_3")) == "2 red"
        assert reached.asked[0]["message"] == "Which colour?"
        assert text_of(await reached.client.call("grow", {}, "toolu_4")) == "grown"
        await reached.hears("notifications/tools/list_changed")
        assert "late" in {tool.name for tool in await reached.client.tools()}
        waiting = asyncio.ensure_future(reached.client.call("wait", {}, "toolu_5"))
        await within(20, far.began.wait())
        waiting.cancel()
        await within(20, far.cancelled.wait())
        assert far.calls == ["you"]


async def test_a_server_that_has_forgotten_the_session_is_greeted_again_and_no_call_runs_twice() -> None:
    first, second = HttpMcp(), HttpMcp()
    async with first.serving() as url:
        reached = Reached(url)
        await reached.client.connect()
    with pytest.raises(McpError, match="it cannot be reached"):
        await reached.client.call("greet", {"name": "nobody"})
    async with second.serving(int(url.rpartition(":")[2].partition("/")[0])):
        assert text_of(await reached.client.call("greet", {"name": "again"})) == "hello again"
        await reached.hears("notifications/tools/list_changed")
        await reached.channel.close()
        with pytest.raises(McpError, match="not connected"):
            await reached.client.call("greet", {"name": "nobody"})
    assert (first.calls, second.calls) == ([], ["again"])


async def test_a_server_that_wants_a_login_names_the_command_for_the_laptop() -> None:
    authority = Authority()
    async with authority.serving(), HttpMcp().serving(wrap=authority.gate) as url:
        with pytest.raises(McpError, match=rf"stay on your machine.* ccb mcp add far {url}, then ccb mcp login far"):
            await Reached(f"{url}?key=secret").client.connect()


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """Answer every request with these bytes. Yield the address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 500 No\r\n\r\n", "HTTP 500"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n", "HTTP 302"),
        (b"SSH-2.0-other\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 x\r\n\r\n", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "the connection was lost"),
        (b"HTTP/1.1 200 OK\r\n\r\nno JSON", "an answer that cannot be read: no JSON"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 9_000_000, "more than 8 MiB"),
        (EVENTS + b"data: " + b"x" * 9_000_000, "more than 8 MiB"),
        (EVENTS + b"data: xxxxxxxxxxxx\n" * 600_000, "more than 8 MiB"),
        (EVENTS + b'data: {"jsonrpc": "2.0", "id": -1, "result": {}}\n\n', "ended before the answer came"),
    ],
)
async def test_what_a_bad_server_sends_has_limits(answer: bytes, why: str) -> None:
    async with answering(answer) as url:
        with pytest.raises(McpError, match=why):
            await Reached(url).client.connect()


def test_addresses_and_headers_of_a_project_are_read_and_their_variables_are_those_of_the_host() -> None:
    described: Json = {
        "far": {"type": "http", "url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "open": {"url": "http://localhost:1/mcp"},
        "unset": {"type": "http", "url": "https://example.com/${MISSING}"},
        "header": {"type": "http", "url": "https://example.com", "headers": {"X": "${TWO}"}},
        "old": {"type": "sse", "url": "https://example.com"},
    }
    settings = WorkerSettings((Layer(PROJECT, ".mcp.json", {"mcpServers": described}, on_host=True),))
    found = project_servers(settings, "/p", {"HOST": "example.com", "TOKEN": "t0", "TWO": "a\r\nB: c"})
    assert found["far"] == ServerAddress("https://example.com/mcp", {"Authorization": "Bearer t0"})
    assert found["open"] == ServerAddress("http://localhost:1/mcp")
    assert found["unset"] == "the variable MISSING is not set"
    assert "a header has characters" in str(found["header"]) and "'sse'" in str(found["old"])
    assert _command_line(described["far"]) == 'https://${HOST}/mcp {"Authorization": "Bearer ${TOKEN}"}'
