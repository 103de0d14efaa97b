"""An agent that speaks ACP on stdio, with the standard library alone: `python acp_agent.py LOG [load] [deaf]…`.

A prompt is a list of words, each an act: `say:TEXT`, `think:TEXT`, `ask` (for a command), `edit`, `terminal`, `plan`,
`title:TEXT`, `wait` (until it is cancelled), `form`, `leak`, `touch:PATH`, `die`,
`model:TEXT` (say what the model answers), `update:JSON` and `asks:JSON` (an update of the session, and a question that
nobody waits for, as they are), `ends:REASON`, `fails:CODE`. LOG gets a line for each message. With `load` it takes up
sessions, with `deaf` it ignores cancels, with `gateway` or `providers` it is told where its models are."""

from __future__ import annotations

import json
import os
import sys
from typing import Any
from urllib.request import Request, urlopen

Json = dict[str, Any]
log, options = sys.argv[1], sys.argv[2:]
numbers = iter(range(100, 10_000))
session = f"own-{os.getpid()}"
cancelled: list[bool] = []
ends: list[str] = []
fails: list[int] = []
SHOWN = (
    "session/prompt",
    "session/load",
    "session/cancel",
    "session/set_mode",
    "session/set_config_option",
    "authenticate",
    "providers/set",
)
MODELS = [{"value": name, "name": name.title()} for name in ("small-1", "large-2")]
MODEL: Json = {"id": "model", "category": "model", "type": "select", "name": "Model", "options": MODELS}
MODES = {"currentModeId": "default", "availableModes": [{"id": each, "name": each} for each in ("default", "plan")]}


def note(what: object) -> None:
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(update_kind: str, **fields: Any) -> None:
    send(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": update_kind, **fields}})


def receive() -> Json:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    message: Json = json.loads(line)
    if message.get("method") in SHOWN or "result" in message:
        note({name: message.get(name) for name in ("method", "params", "result") if name in message})
    if message.get("method") == "session/cancel" and "deaf" not in options:
        cancelled.append(True)
    return message


def ask(method: str, **params: Any) -> Json:
    number = next(numbers)
    send(id=number, method=method, params={"sessionId": session, **params})
    while True:
        answer = receive()
        if answer.get("id") == number:
            result: Json = answer["result"]
            return result


def model_answer(text: str) -> str:
    """Ask a model where the environment says, and return what its events say."""
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 99,
        "stream": True,
        "messages": [{"role": "user", "content": text}],
    }
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    with urlopen(Request(url, json.dumps(body).encode(), {"content-type": "application/json"})) as response:
        events = [json.loads(line[6:]) for line in response if line.startswith(b"data: ")]
    assert events[-1] == {"type": "message_stop"}
    return "".join(each["delta"]["text"] for each in events if each["type"] == "content_block_delta")


def act(word: str) -> None:
    act, _, text = word.partition(":")
    number = str(next(numbers))
    call: Json = {"toolCallId": number, "title": "touch made", "kind": "execute", "rawInput": {"command": "touch made"}}
    if act in ("say", "think"):
        kind = "agent_message_chunk" if act == "say" else "agent_thought_chunk"
        for piece in text.replace("_", " _").split("_"):
            update(kind, content={"type": "text", "text": piece})
    elif act == "ask":
        update("tool_call", status="pending", **call)
        kinds = ("allow_once", "allow_always", "reject_once")
        offered = [{"optionId": kind, "kind": kind, "name": f"{kind} touch"} for kind in kinds]
        chosen = ask("session/request_permission", toolCall={"toolCallId": number}, options=offered)["outcome"]
        status = "completed" if chosen.get("optionId", "").startswith("allow") else "failed"
        content = [{"type": "content", "content": {"type": "text", "text": f"it was {chosen}"}}]
        update("tool_call_update", toolCallId=number, status=status, content=content)
    elif act == "edit":
        diff = {"type": "diff", "path": os.path.abspath("a.py"), "oldText": "old", "newText": "new"}
        update("tool_call", toolCallId=number, title="Edit a.py", kind="edit", status="completed", content=[diff])
    elif act == "terminal":
        info = {"terminal_info": {"terminal_id": number}}
        shown = [{"type": "terminal", "terminalId": number}]
        update("tool_call", status="in_progress", content=shown, _meta=info, **call)
        for line in ("one\n", "two\n"):
            output = {"terminal_output": {"terminal_id": number, "data": line}}
            update("tool_call_update", toolCallId=number, _meta=output)
        ended = {"terminal_exit": {"terminal_id": number, "exit_code": 3}}
        update("tool_call_update", toolCallId=number, status="failed", _meta=ended)
    elif act == "plan":
        update("plan", entries=[{"content": "look", "status": "completed"}, {"content": "mend", "status": "pending"}])
    elif act == "title":
        update("session_info_update", title=text)
    elif act == "leak":
        sys.stderr.write(os.environ["ANTHROPIC_BASE_URL"] + "\n")
        update("agent_message_chunk", content={"type": "text", "text": os.environ["ANTHROPIC_BASE_URL"]})
    elif act == "form":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = ask("elicitation/create", mode="form", message="Your name?", requestedSchema=schema)
        update("agent_message_chunk", content={"type": "text", "text": json.dumps(answer)})
    elif act == "wait":
        update("tool_call", status="in_progress", **call)
        while not cancelled:
            receive()
    elif act == "model":
        update("agent_message_chunk", content={"type": "text", "text": model_answer(text)})
    elif act == "touch":
        try:
            open(text, "w").close()
            said = "made"
        except OSError as error:
            said = type(error).__name__
        update("agent_message_chunk", content={"type": "text", "text": said})
    elif act == "update":
        send(method="session/update", params={"sessionId": session, "update": json.loads(text)})
    elif act == "asks":
        send(id=number, method="session/request_permission", params={"sessionId": session, **json.loads(text)})
    elif act == "ends":
        ends.append(text)
    elif act == "fails":
        fails.append(int(text))
    elif act == "huge":
        sys.stdout.write("x" * (33 << 20) + "\n")
        sys.stdout.flush()
    elif act == "die":
        update("agent_message_chunk", content={"type": "text", "text": "last words"})
        sys.exit("it has died")


def answer(message: Json) -> Json:
    global session
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        able = {"loadSession": "load" in options, "promptCapabilities": {"image": True}}
        able.update({"providers": {}} if "providers" in options else {})
        gateway = [{"id": "gateway", "name": "Gateway"}] if "gateway" in options else []
        return {"protocolVersion": 1, "agentCapabilities": able, "authMethods": gateway}
    if method == "providers/list":
        apis = {"main": ["vertex", "openai", "anthropic"], "codex": ["openai"], "cloud": ["bedrock"], "odd": 7}
        listed = [{"providerId": name, "supported": api, "required": False} for name, api in apis.items()]
        return {"providers": listed}
    if method in ("session/new", "session/load"):
        session = params.get("sessionId", session)
        update("agent_message_chunk", content={"type": "text", "text": "what was said before"})
        update("available_commands_update", availableCommands=[{"name": "tidy", "description": "Tidy up"}])
        MODEL["currentValue"] = "small-1"
        return {"sessionId": session, "modes": MODES, "configOptions": [MODEL]}
    if method == "session/set_config_option":
        MODEL["currentValue"] = params["value"]
        return {"configOptions": [MODEL]}
    if method == "session/prompt":
        cancelled.clear()
        words = " ".join(block.get("text", "") for block in params["prompt"]).split()
        for word in words:
            act(word)
        update("usage_update", used=1200, size=100_000, cost={"amount": 0.25, "currency": "USD"})
        return {"stopReason": ends.pop() if ends else "cancelled" if cancelled else "end_turn"}
    return {}


note({"environment": sorted(os.environ), "argv": sys.argv})
while True:
    request = receive()
    if "method" in request and "id" in request:
        result = answer(request)
        if fails:
            send(id=request["id"], error={"code": fails.pop(), "message": "no"})
        else:
            send(id=request["id"], result=result)
