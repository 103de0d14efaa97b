"""The names of MCP tools, the requests that carry JSON-RPC of MCP servers, and how lines of servers are read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Callable

from .control_protocol import (
    Answer,
    AnsweredBy,
    RequestFailed,
    RequestKind,
    RequestRefused,
    client_kind,
    payload_of,
    public_fields,
)
from .dataclass import dataclass
from .frames import Json

WANTS_LOGIN = "wants a login"  # what the error of a server says that nobody has logged in to
MAX_NAME = 128  # the longest name of a tool that the model API takes
TOOL_USE_ID = "claudecode/toolUseId"  # the key in the `_meta` of a call that holds the id of the tool call
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_MARK = re.compile(r"_[0-9a-f]{8}(?=__|\Z)")
_MAX_SERVER = 64

SERVER_NAME = re.compile(r"(?=.{1,64}\Z)[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")
"""What a configuration may call a server: a rule for `mcp__notes` must not cover the tools of a `notes__more`."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]{0,1000}))?\}")


def filled_in(text: str, environ: Mapping[str, str]) -> str:
    """Return a text of a configuration with variables for `${NAME}` and `${NAME:-default}`. Raise KeyError."""

    def variable(match: re.Match[str]) -> str:
        found = environ.get(match[1])
        if found is None and match[2] is None:
            raise KeyError(match[1])
        return found or match[2] or ""

    return _VARIABLE.sub(variable, text)


def tool_name(server: str, tool: str) -> str:
    """Return the name under which the model and the rules know a tool, and no other tool: a name that loses something
    ends with a mark, which is a hash of the whole name."""
    first = f"mcp__{server_name(server)}__"
    return first + _marked(tool, _OTHER.sub("_", tool), MAX_NAME - len(first))


def server_name(server: str) -> str:
    """Return the part of the names of a server's tools that stands for the server. It has no `__`."""
    return _marked(server, re.sub("__+", "_", _OTHER.sub("_", server)).strip("_"), _MAX_SERVER)


def _marked(name: str, plain: str, room: int) -> str:
    if name == plain and len(name) <= room and not _MARK.search(name):
        return name
    return f"{plain[: room - 9]}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def unmarked(name: str) -> str:
    """Return the name of an MCP tool without marks."""
    return _MARK.sub("", name) if name.startswith("mcp__") else name


def rule_tool(tool: str) -> str:
    """Return the tool of a rule (`mcp__tracker__issues.list`) under the name that the model knows."""
    end = "__*" if tool.endswith("__*") else ""
    whole = tool[: len(tool) - len(end)]
    if not tool.startswith("mcp__") or not _OTHER.search(whole):
        return tool
    server, has_tool, name = whole[len("mcp__") :].partition("__")
    return (tool_name(server, name) if has_tool else f"mcp__{server_name(server)}") + end


@dataclass(frozen=True)
class McpMessage:
    """A JSON-RPC message for the server of this name."""

    server_name: str
    message: Json


def read_mcp_message(fields: Json) -> McpMessage:
    """Raise RequestRefused."""
    server, message = fields.get("server_name"), fields.get("message")
    if not (isinstance(server, str) and isinstance(message, dict)):
        raise RequestRefused("the request has no server_name or no message")
    return McpMessage(server, message)


def _read_reply(answer: Answer) -> Json:
    reply = payload_of(answer).get("mcp_response")
    if not isinstance(reply, dict):
        raise RequestFailed("the answer has no mcp_response")
    return reply


MCP_MESSAGE: RequestKind[McpMessage, Json] = RequestKind(
    "mcp_message", AnsweredBy.CLIENT, _read_reply, read=read_mcp_message
)
"""To a server inside the client that drives the session. The answer is the server's reply."""

LAPTOP_MCP_MESSAGE: RequestKind[McpMessage, Json] = RequestKind(
    "laptop_mcp_message", AnsweredBy.LAPTOP, _read_reply, read=read_mcp_message
)
"""The same to a server that ccb runs on the laptop."""

CLIENT_MCP_MESSAGE: RequestKind[McpMessage, Json] = client_kind("mcp_message", read_mcp_message, public_fields)
"""The other way: what a server inside the client says of its own accord."""


@dataclass(frozen=True)
class Elicitation:
    """A server asks the person to fill in a form (`mode` "form", with a schema) or to visit an address ("url")."""

    mcp_server_name: str
    message: str
    mode: str = "form"
    requested_schema: Json | None = None
    url: str | None = None


def _read_elicited(answer: Answer) -> Json:
    """Return {"action", "content"}. Anything that is not a clear answer is a cancel."""
    try:
        payload = payload_of(answer)
    except RequestFailed:
        return {"action": "cancel"}
    return payload if payload.get("action") in ("accept", "decline") else {"action": "cancel"}


ELICITATION: RequestKind[Elicitation, Json] = RequestKind("elicitation", AnsweredBy.PERSON, _read_elicited)
"""To the person, for a server on the host; for a server on the laptop, the laptop itself asks."""

MCP_STATUS: RequestKind[None, Json] = client_kind("mcp_status", lambda fields: None)
MCP_RECONNECT: RequestKind[str, Json] = client_kind(
    "mcp_reconnect", lambda fields: str(fields.get("serverName")), lambda name: {"serverName": name}
)

CALL_S = 600.0  # seconds for a call of a tool without a sign of its server: answer, progress, or a form

SAY_LIMIT_S = 10.0  # seconds without a sign after which the row of a call shows how long it may take

LIMIT_VARIABLE = "MCP_TOOL_TIMEOUT"  # the variable that sets another limit for calls, in milliseconds
_ID = re.compile(rb'"id"\s*:\s*"?(\d{1,18})\b')
_SURROGATE = re.compile("[\ud800-\udfff]")
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_MAX_SHOWN = 200
_MAX_REASON = 10_000


@dataclass(frozen=True)
class Unreadable:
    """What nobody can read. `number` is the request that it seems to answer, if it `looks_like_an_answer`."""

    shown: str
    number: int | None
    looks_like_an_answer: bool

    @property
    def why(self) -> str:
        return f"it has sent an answer that cannot be read: {self.shown}"


def read_messages(data: bytes) -> list[Json] | Unreadable:
    """Return the messages in a line or body. What is not UTF-8 becomes U+FFFD, and numbers that JSON does not have
    become null: the rest of an answer is worth reading."""
    text = data.decode("utf-8", "replace").strip("\ufeff \t\r\n")
    start = max(0, text.find('{"'))
    listed: list[Json] = []
    for part in dict.fromkeys((text, text[start:])):  # perhaps there is a warning in front of the message
        try:
            found = json.loads(part, parse_constant=lambda _: None, parse_float=_finite)
            given = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
            listed = [_whole(each) for each in given] if _HALF.search(data) else given
        except (ValueError, RecursionError):
            continue
        break
    if not listed:
        match = _ID.search(data)
        return Unreadable(text[:_MAX_SHOWN], int(match[1]) if match else None, text.startswith(("{", "[{")))
    return listed


class LineReader:
    """Reads the lines of one server, which may print others between its messages. `failed` gets a request whose answer
    cannot be read, and why."""

    def __init__(self, failed: Callable[[object, str], None]) -> None:
        self._failed = failed
        self._pending: set[object] = set()

    def sent(self, message: Json) -> None:
        if message.get("method") == "notifications/cancelled":
            self.done((message.get("params") or {}).get("requestId"))
        if "method" in message and message.get("id") is not None:
            self._pending.add(message["id"])

    def done(self, number: object) -> None:
        self._pending.discard(number)

    def read(self, line: bytes) -> list[Json]:
        """Return the messages of a line that have a method, or answer a pending request, under its id."""
        found = read_messages(line) if line.strip() else []
        if isinstance(found, Unreadable):
            only = next(iter(self._pending)) if len(self._pending) == 1 else None
            number = found.number if found.number in self._pending else only
            if found.looks_like_an_answer and number is not None:
                self._failed(number, found.why)
            return []
        kept = []
        for message in found:
            if "method" not in message:
                number = answered_number(message, self._pending)
                if number is None:
                    continue
                message = {**message, "id": number}
            kept.append(message)
        return kept


def reason_of(error: object) -> str:
    said = error.get("message") if isinstance(error, dict) else error
    text = said if isinstance(said, str) else json.dumps(error, ensure_ascii=False)
    return text[:_MAX_REASON] or "the server gives no reason"


def answered_number(message: Json, pending: Collection[object]) -> object:
    """Return the pending request that a message without a method answers. Some servers send the id back as text, or
    send none: then it answers the only one that is pending."""
    number = message.get("id")
    if isinstance(number, str) and re.fullmatch(r"\d{1,18}", number):
        number = int(number)
    if isinstance(number, float) and number % 1 == 0:
        number = int(number)
    if type(number) is int:  # perhaps nobody waits for it any more
        return number if number in pending else None
    is_answer = "result" in message or "error" in message or number is not None
    return next(iter(pending)) if is_answer and len(pending) == 1 else None


def limit_of(described: object, environ_value: str | None) -> float:
    """Return the seconds for a call: `described` is the server's `timeout` in milliseconds, else the variable."""
    for given in (described, environ_value):
        try:
            seconds = float(given) / 1000  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        if 1 <= seconds < 1e9:
            return seconds
    return CALL_S


def too_long(seconds: float) -> str:
    return f"no answer within {seconds:g} s, the limit of its calls ({LIMIT_VARIABLE} sets another, in milliseconds)"


def _finite(text: str) -> float | None:
    value = float(text)
    return value if value - value == 0 else None


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_whole(name): _whole(each) for name, each in value.items()}
    return [_whole(each) for each in value] if isinstance(value, list) else value
