"""Pieces of work with calls of MCP servers: one that the host runs for its project, one that runs on the laptop."""

from __future__ import annotations

import json

from tests.faults.work.piece import Json, Piece, tool

NAME, NEAR_NAME = "tally", "purse"
ALLOWED = f"mcp__{NAME}"

REFUSED = "refused"
"""The word that the person does not let the server on the laptop count."""

SERVER = """
import json, os, sys, time
tool = {"name": "count", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    asked = json.loads(line)
    result = {"capabilities": {"tools": {}}, "tools": [tool]}
    if asked["method"] == "initialize":
        result |= {"protocolVersion": "2025-06-18", "serverInfo": {"name": "counter", "version": "1"}}
    if asked["method"] == "tools/call":
        given = asked["params"]["arguments"]
        word, until = given["word"], given.get("until", ".")
        open("count", "a").write(word + "\\n")
        open(word + "-runs", "w").close()
        time.sleep(given.get("seconds", 0.3))
        while not os.path.exists(until):
            time.sleep(0.05)
        open("count", "a").write(word + "-ended\\n")
        result = {"content": [{"type": "text", "text": "counted " + word}]}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""Counts words. A call lasts for some `seconds`, so that a disturbance can come in its middle. With `until`, it ends
when that file exists."""

COMMAND = {"command": "python3", "args": ["-I", "-S", "-c", SERVER]}
MCP_JSON = json.dumps({"mcpServers": {NAME: COMMAND}})
LAPTOP_SETTINGS = json.dumps({"mcpServers": {NEAR_NAME: COMMAND}})


def count(word: str, *, server: str = NAME, **more: object) -> Json:
    return tool(f"mcp__{server}__count", word=word, **more)


def _serve(_: str) -> list[Json]:
    return [{"blocks": [count("served")]}, {"blocks": [count("again")]}, {"text": "It has counted."}]


def _spend(_: str) -> list[Json]:
    near = [count(word, server=NEAR_NAME, seconds=1) for word in ("spent", REFUSED)]
    return [*({"blocks": [each]} for each in near), {"text": "It has counted on the laptop."}]


SERVE = Piece(
    "use the server", _serve, ("served", "served-ended", "again", "again-ended"), moments=("served-runs", "again-runs")
)
SPEND = Piece("use mine", _spend, near=("spent", "spent-ended"), moments=("spent-runs",))
