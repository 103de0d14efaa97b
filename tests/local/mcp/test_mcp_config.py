"""The description of MCP servers on the laptop: what is read, and what is refused."""

from __future__ import annotations

import pytest

from ccb.local.mcp.mcp_config import HttpServer, StdioServer, server_configs
from ccb.tunnel.errors import ConfigError


def test_variables_are_filled_in_and_servers_of_a_client_left_out() -> None:
    described: dict[str, dict[str, object]] = {
        "one": {"command": "${HOME}/bin/one", "args": ["${NOT_SET:-x}"], "env": {"KEY": "${KEY}"}},
        "two": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
        "three": {"type": "sdk", "name": "three"},
    }
    found = server_configs(described, {"HOME": "/home/me", "KEY": "secret"})
    assert found == {
        "one": StdioServer(command="/home/me/bin/one", args=["x"], env={"KEY": "secret"}),
        "two": HttpServer(type="http", url="https://example.com/mcp", headers={"Authorization": "Bearer secret"}),
    }
    shown = ["KEY=… /home/me/bin/one x", "https://example.com/mcp Authorization: …"]
    assert [each.shown for each in found.values()] == shown


@pytest.mark.parametrize(
    ("name", "server", "reason"),
    [
        ("a b", {"command": "x"}, "letters, digits"),
        ("a", {}, "command: Field required"),
        ("a", {"type": "http", "url": "ftp://x"}, "url"),
        ("a", {"type": "pigeon"}, "pigeon"),
        ("a", {"command": "${MISSING}"}, "the variable MISSING is not set"),
    ],
)
def test_a_wrong_server_is_refused_by_name_and_reason(name: str, server: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        server_configs({name: server}, {})
    assert name in refused.value.what and reason in refused.value.evidence
