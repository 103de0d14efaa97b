"""Whether a recorded conversation keeps to the Agent Client Protocol: every line both ways fits the schema that the npm
package brings, and every request has its one answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from tests.conformance.official_sdks import PLACE, Json

_SCHEMA = PLACE / "npm" / "node_modules" / "@agentclientprotocol" / "sdk" / "schema" / "v1" / "schema.json"


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


def faults(lines: list[Line]) -> list[str]:
    """What is wrong with a conversation; empty when nothing is."""
    return [*_shape(lines), *_order(lines)]


def updates(lines: list[Line], kind: str = "") -> list[Json]:
    """The updates of the agent, all or of one kind."""
    told = [line.params["update"] for line in lines if line.by == "agent" and line.method == "session/update"]
    return [each for each in told if kind in ("", each["sessionUpdate"])]


def said(lines: list[Line]) -> str:
    return "".join(each["content"]["text"] for each in updates(lines, "agent_message_chunk"))


def _shape(lines: list[Line]) -> Iterator[str]:
    asked: dict[tuple[str, object], str] = {}
    for line in lines:
        if not isinstance(line.body, dict) or line.body.get("jsonrpc") != "2.0":
            yield f"no message of JSON-RPC by the {line.by}: {line.text[:200]!r}"
        elif line.method:
            role = "Request" if "id" in line.body else "Notification"
            if role == "Request":
                asked[line.by, line.body["id"]] = line.method
            yield from _misfit(line, line.method, role, line.body.get("params", {}))
        else:
            other = "agent" if line.by == "client" else "client"
            method = asked.pop((other, line.body.get("id")), "")
            if not method:
                yield f"an answer to nothing by the {line.by}: {line.text[:200]}"
            elif "error" in line.body:
                yield from (f"{line.by}: {each.message}" for each in _of("Error").iter_errors(line.body["error"]))
            else:
                yield from _misfit(line, method, "Response", line.body.get("result"))
    for (who, _), method in asked.items():
        yield f"{method} of the {who} has no answer"


def _misfit(line: Line, method: str, role: str, value: object) -> Iterator[str]:
    if method.startswith("_"):
        return  # an extension
    name = _definitions().get((method, role))
    if name is None:
        yield f"{method} is no {role.lower()} of the protocol"
        return
    for error in _of(name).iter_errors(value):
        where = "/".join(map(str, error.absolute_path))
        yield f"{method} {role.lower()} of the {line.by}, at {where}: {error.message[:300]}"


def _order(lines: list[Line]) -> Iterator[str]:
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
    document: Json = json.loads(_SCHEMA.read_text())
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
