"""A piece of work with calls of an MCP server that the host runs."""

from __future__ import annotations

import json

from tests.faults.work.piece import Json, Piece, tool

NAME = "tally"
ALLOWED = f"mcp__{NAME}"

SERVER = """
import json, os, sys, time
tool = {"name": "count", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    asked = json.loads(line)
    result = {"capabilities": {"tools": {}}, "tools": [tool]}
    if asked["method"] == "tools/call":
        given = asked["params"]["arguments"]
        word, until = given["word"], given.get("until", ".")
        open("count", "a").write(word + "\\n")
        open(word + "-runs", "w").close()
        time.sleep(0.3)
        while not os.path.exists(until):
            time.sleep(0.05)
        open("count", "a").write(word + "-ended\\n")
        result = {"content": [{"type": "text", "text": "counted " + word}]}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""Counts words. A call lasts for a while, so that a disturbance can come in its middle. With `until`, it ends when that
file exists."""

MCP_JSON = json.dumps({"mcpServers": {NAME: {"command": "python3", "args": ["-I", "-S", "-c", SERVER]}}})


def count(word: str, **more: str) -> Json:
    return tool(f"mcp__{NAME}__count", word=word, **more)


def _serve(_: str) -> list[Json]:
    return [{"blocks": [count("served")]}, {"blocks": [count("again")]}, {"text": "It has counted."}]


SERVE = Piece(
    "use the server", _serve, ("served", "served-ended", "again", "again-ended"), moments=("served-runs", "again-runs")
)
