"""Whether a recorded conversation keeps to the Agent Client Protocol: every line both ways fits the schema that the npm
package brings, and every request has its one answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

Json = dict[str, Any]

SCHEMA = Path(__file__).parents[2] / ".make/sdks/npm/node_modules/@agentclientprotocol/sdk/schema/v1/schema.json"
"""Which .ci/official-sdks brings."""

_OTHER = {"agent": "client", "client": "agent"}


@dataclass(frozen=True)
class Line:
    """One message. `by` is `client` or `agent`; a line that is no JSON has `text` only."""

    by: str
    text: str
    body: Any

    @property
    def method(self) -> str:
        return str(self.body.get("method", ""))

    @property
    def params(self) -> Json:
        return dict(self.body.get("params", {}))


def read(record: Path) -> list[Line]:
    lines = []
    for entry in map(json.loads, record.read_text().splitlines()):
        try:
            body = json.loads(entry["line"])
        except ValueError:
            body = None
        lines.append(Line(entry["by"], entry["line"], body))
    return lines


def faults(lines: Sequence[Line]) -> list[str]:
    """What is wrong with a conversation that is over; empty when nothing is."""
    asked: dict[tuple[str, object], str] = {}
    wrong = [*_shape(lines, asked), *_order(lines)]
    return wrong + [f"{method} has no answer from the {_OTHER[who]}" for (who, _), method in asked.items()]


def faults_of_agent(told: Sequence[tuple[str, Json]]) -> list[str]:
    """What is wrong with the agent's part of a conversation, given as pairs of who speaks, `<` being the agent, and
    message. Requests may be open at its end."""
    lines = [Line("agent" if way == "<" else "client", json.dumps(body), body) for way, body in told]
    return [*(each for each in _shape(lines, {}) if "by the client" not in each), *_order(lines)]


def updates(lines: Sequence[Line], kind: str = "") -> list[Json]:
    """The updates of the agent, all or of one kind."""
    told = [line.params["update"] for line in lines if line.by == "agent" and line.method == "session/update"]
    return [each for each in told if kind in ("", each["sessionUpdate"])]


def said(lines: Sequence[Line]) -> str:
    """What the model said, without what ccb itself tells a client that knows no notices."""
    texts = [each["content"]["text"] for each in updates(lines, "agent_message_chunk")]
    return "".join(each for each in texts if not each.startswith("\n\n*ccb: "))


def _shape(lines: Sequence[Line], asked: dict[tuple[str, object], str]) -> Iterator[str]:
    """`asked` are the requests that are open, by who asks and their ids: the methods."""
    for line in lines:
        if not isinstance(line.body, dict) or line.body.get("jsonrpc") != "2.0":
            yield f"no message of JSON-RPC by the {line.by}: {line.text[:200]!r}"
        elif line.method:
            role = "Request" if "id" in line.body else "Notification"
            if role == "Request":
                asked[line.by, line.body["id"]] = line.method
            yield from _misfit(line, line.method, role, line.body.get("params", {}))
        else:
            method = asked.pop((_OTHER[line.by], line.body.get("id")), "")
            if not method:
                yield f"an answer to nothing by the {line.by}: {line.text[:200]}"
            elif "error" in line.body:
                yield from _misfits(line, "an error", "Error", line.body["error"])
            else:
                yield from _misfit(line, method, "Response", line.body.get("result"))


def _misfit(line: Line, method: str, role: str, value: object) -> Iterator[str]:
    if method.startswith("_"):
        return  # an extension
    name = _definitions().get((method, role))
    if name is None:
        yield f"{method} by the {line.by} is no {role.lower()} of the protocol"
    else:
        yield from _misfits(line, f"{method} {role.lower()}", name, value)


def _misfits(line: Line, what: str, name: str, value: object) -> Iterator[str]:
    for error in _of(name).iter_errors(value):
        where = "/".join(map(str, error.absolute_path))
        yield f"{what} by the {line.by}, at {where}: {error.message[:300]}"


def _order(lines: Sequence[Line]) -> Iterator[str]:
    """What no schema says: updates of a call follow its announcement, and the client is never called for files or
    terminals."""
    known: set[str] = set()
    for line in lines:
        if not isinstance(line.body, dict) or line.by != "agent" or not line.method:
            continue
        if line.method.startswith(("fs/", "terminal/")):
            yield f"{line.method} would act on the wrong machine"
        update = line.params.get("update", {})
        if update.get("sessionUpdate") == "tool_call":
            known.add(update["toolCallId"])
        elif update.get("sessionUpdate") == "tool_call_update" and update["toolCallId"] not in known:
            yield f"an update of a call that was not announced: {update['toolCallId']}"


@cache
def _document() -> Json:
    document: Json = json.loads(SCHEMA.read_text())
    return document


@cache
def _definitions() -> dict[tuple[str, str], str]:
    """The name of the definition for each method and role."""
    found = {}
    for name, definition in _document()["$defs"].items():
        role = next((each for each in ("Request", "Response", "Notification") if name.endswith(each)), "")
        if role and "x-method" in definition:
            found[definition["x-method"], role] = name
    return found


@cache
def _of(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": _document()["$defs"]})
