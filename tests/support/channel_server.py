"""The server of `mcp_server` as a channel, which pushes what its tool `push` is given: `python -m … [LOG]` on stdio."""

from __future__ import annotations

import json
import os

from tests.support.mcp_server import note, server

OUT = os.dup(1)  # the package takes the other one away from tools


@server.tool()
def push(texts: list[str]) -> str:
    """Push messages, as a chat would at any time."""
    for text in texts:
        params = {"content": text, "meta": {"chat": "7"}}
        message = {"jsonrpc": "2.0", "method": "notifications/claude/channel", "params": params}
        os.write(OUT, json.dumps(message).encode() + b"\n")
    note("pushed")
    return "pushed"


if __name__ == "__main__":
    server.run("stdio")
