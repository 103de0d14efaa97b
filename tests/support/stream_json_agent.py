"""A program that speaks stream-json as Claude Code does: `python stream_json_agent.py LOG …`. The words of a prompt are
acts: `say:TEXT`, `ask`, `agent` (a sub-agent works), `wait` (until it is interrupted), `raw:JSON` (a line as it is),
`late:JSON` (after the end of the turn), `die`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

Json = dict[str, Any]
log, flags = sys.argv[1], sys.argv[2:]
session = flags[flags.index("--resume") + 1] if "--resume" in flags else f"own-{os.getpid()}"
knows = "resumed" if "--resume" in flags else "new"
interrupted: list[bool] = []
late: list[str] = []
ids = iter(range(1, 1000))
turns = 0


def send(kind: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"type": kind, "session_id": session, "uuid": f"u{next(ids)}", **fields}) + "\n")
    sys.stdout.flush()


def message(role: str, block: Json, parent: str | None = None) -> None:
    inner = {"id": f"m{next(ids)}", "role": role, "content": [block], "usage": {"input_tokens": 7}}
    send(role, message=inner, parent_tool_use_id=parent)


def called(name: str, tool_input: Json, parent: str | None = None) -> str:
    number = f"{session}-{next(ids)}"
    message("assistant", {"type": "tool_use", "id": number, "name": name, "input": tool_input}, parent)
    return number


def result(number: str, text: str, parent: str | None = None) -> None:
    message("user", {"type": "tool_result", "tool_use_id": number, "content": text}, parent)


def receive() -> Json:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    with open(log, "a", encoding="utf-8") as file:
        file.write(line)
    body: Json = json.loads(line)
    request = body.get("request", {})
    if request:
        interrupted.extend([True] if request["subtype"] == "interrupt" else [])
        told = {"commands": [{"name": "tidy", "description": "Tidy up"}], "models": [{"value": "opus"}]}
        send("control_response", response={"subtype": "success", "request_id": body["request_id"], "response": told})
    return body


def act(word: str) -> str:
    act, _, text = word.partition(":")
    if act == "say":
        event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        send("stream_event", event=event, parent_tool_use_id=None)
        message("assistant", {"type": "text", "text": text})
    elif act == "ask":
        number = called("Bash", {"command": "touch made"})
        request: Json = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "touch made"}}
        suggested = [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}]
        request.update(tool_use_id=number, permission_suggestions=suggested)
        send("control_request", request_id=f"r{number}", request=request)
        while (answer := receive()).get("type") != "control_response":
            pass
        text = json.dumps(answer["response"]["response"], sort_keys=True)
        result(number, text)
    elif act == "agent":
        number = called("Task", {"description": "look", "prompt": "look"})
        message("assistant", {"type": "text", "text": "inner"}, number)
        result(number, "looked")
    elif act == "wait":
        called("Bash", {"command": "sleep 9"})
        while not interrupted:
            receive()
        message("user", {"type": "text", "text": "[Request interrupted by user]"})
    elif act == "raw":
        sys.stdout.write(text + "\n")
    elif act == "late":
        late.append(text)
    elif act == "die":
        called("Bash", {"command": "exit"})
        sys.exit("it has died")
    return text


while True:
    prompt = receive()
    if prompt["type"] == "user":
        interrupted.clear()
        turns += 1
        send("system", subtype="init", model="opus-9", tools=[])
        words = "".join(block["text"] for block in prompt["message"]["content"]).split()
        last = [act(word) for word in words][-1]
        ended = {"subtype": "error_during_execution", "is_error": True} if interrupted else {"subtype": "success"}
        send("result", **{"is_error": False, "result": f"{last} ({knows})", "total_cost_usd": 0.5 * turns, **ended})
        while late:
            sys.stdout.write(late.pop() + "\n")
        sys.stdout.flush()
