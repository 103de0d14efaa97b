"""A server that answers in odd ways: a program for any Python, started by its path. `stubborn`: it ignores SIGTERM and
the end of its stdin. `silent`: it never answers."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

LAUNCHER = """
trap '' TERM HUP
setsid sleep 1000 &
(setsid sh -c 'trap "" TERM HUP; sleep 1001; sleep 1002' &)
exec "$0" -IS "$1" stubborn
"""
"""A shell script that starts the server, and leaves others behind that ignore what they can."""

MIXED = {
    "properties": {
        "gr\u00f6\u00dfe in $": {"type": "integer", "maxLength": "5"},
        "x" * 70: {"anyOf": [True]},
        "any": True,
        "nothing": {"enum": None, "required": True, "properties": None, "description": None},
    },
    "anyOf": [{"required": ["any"]}, {"required": ["nothing"]}],
    "required": True,
}
TOOLS = [
    {"name": "mixed", "description": None, "inputSchema": MIXED},
    {"name": "shapeless", "inputSchema": "text"},
    {"name": 5, "inputSchema": {}},
]


def marked_processes(mark: str) -> list[int]:
    """Return the processes of this machine that have a text in their environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                found += [int(name)] if mark.encode() in file.read() else []
        except OSError:
            continue
    return found


def say(number: object, **what: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, **what}) + "\n")
    sys.stdout.flush()


def serve() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        params = asked.get("params") or {}
        number, name, method = asked.get("id"), params.get("name"), asked["method"]
        if method == "initialize":
            info = {"name": 5}
            say(number, result={"protocolVersion": "1", "capabilities": {"tools": True}, "serverInfo": info})
        elif method == "tools/list":
            say(number, result={"tools": TOOLS})
        elif name == "raw":
            for text in params["arguments"]["lines"]:
                sys.stdout.buffer.write(text.replace("ID", str(number)).encode("latin-1") + b"\n")
                sys.stdout.flush()
        elif name == "hang":
            time.sleep(1000)
        elif name is not None:
            text = json.dumps(params["arguments"], ensure_ascii=False) + " \0 \ud800"
            say(number, result={"is": "ok", "content": [{"type": "text", "text": text}]})


if __name__ == "__main__":
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "silent" not in sys.argv:
        serve()
    if {"stubborn", "silent"} & set(sys.argv):
        time.sleep(1000)
