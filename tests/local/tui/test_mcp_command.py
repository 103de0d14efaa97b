"""/mcp: the servers of the session with their state, and a new try; what a call reports of its progress."""

from __future__ import annotations

from typing import cast

from tests.support.repl.paper import Paper
from tests.support.repl.pilot import desk

from ccb.local.mcp.mcp_service import LaptopServers, ServerState
from ccb.tunnel.wire.control_protocol import RequestRefused


class Servers:
    """The servers of the laptop: one works, one cannot be reached."""

    def __init__(self) -> None:
        self.restarted: list[str] = []

    def states(self) -> list[ServerState]:
        return [
            ServerState("notes", "notes-server", True, "", 0.0),
            ServerState("far", "https://far.example/mcp", False, "connection refused", 3.0),
        ]

    async def restart(self, name: str) -> None:
        self.restarted.append(name)
        if name == "far":
            raise RequestRefused("the MCP server far cannot be reached")


STATUS = {
    "mcpServers": [
        {"name": "notes", "status": "connected", "transport": "laptop", "tools": [{"name": "add"}, {"name": "b"}]},
        {"name": "far", "status": "failed", "transport": "laptop", "error": "told to the host"},
        {"name": "db\x1b[31m", "status": "failed", "transport": "stdio", "error": "no such file"},
    ]
}


async def test_servers_are_listed_with_their_state_and_connected_again() -> None:
    async with desk(size=(110, 30)) as at:
        servers = Servers()
        at.app.view.steering.mcp.laptop = cast(LaptopServers, servers)
        at.session.control_answers["mcp_status"] = STATUS
        await at.enter("/mcp")
        await at.sees(
            "notes: connected, 2 tools, on this laptop: notes-server",
            "far: failed, on this laptop: https://far.example/mcp (connection refused)",
            "failed, on the host (no such file)",
            "/mcp reconnect NAME tries again.",
        )
        assert "told to the host" not in at.screen
        await at.enter("/mcp reconnect far")
        await at.sees("the MCP server far cannot be reached: connection refused")
        await at.enter("/mcp reconnect notes")
        await at.sees("notes is being connected again")
        assert servers.restarted == ["far", "notes"]
        assert at.session.controls == [("mcp_status", {}), ("mcp_reconnect", {"serverName": "notes"})]
        at.session.control_answers["mcp_status"] = {"mcpServers": []}
        at.app.view.steering.mcp.laptop = None
        await at.enter("/mcp")
        await at.sees("There is no MCP server.")


def test_the_progress_of_a_call_stays_in_its_row_between_signs_of_life() -> None:
    told = Paper(107)
    call = told.call("mcp__far__work", what="all")
    told.run(call, "1/4 first", name="mcp__far__work")
    told.sees("1/4 first")
    progress = {"type": "tool_progress", "tool_use_id": call, "tool_name": "x", "elapsed_time_seconds": 30}
    told.progress({**progress, "heartbeat": True})
    told.sees("1/4 first")
    told.text("meanwhile")
    told.sees("meanwhile", "1/4 first")
