"""The requests that carry JSON-RPC messages between the worker and MCP servers that run elsewhere."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from ..dataclass import dataclass
from ..requests import (
    CLIENT_DEADLINE_S,
    Answer,
    AnsweredBy,
    RequestFailed,
    RequestKind,
    RequestRefused,
    client_kind,
    payload_of,
)

Json = dict[str, Any]


WANTS_LOGIN = "wants a login"
"""What the error of a server says that nobody has logged in to."""

MAX_NAME = 128
"""The longest name of a tool that the model API takes."""

TOOL_USE_ID = "claudecode/toolUseId"
"""The key in the `_meta` of a call that holds the id of the tool call."""


_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_MARK = re.compile(r"_[0-9a-f]{8}(?=__|\Z)")
_MAX_SERVER = 64


def tool_name(server: str, tool: str) -> str:
    """Return the name under which the model and the rules know a tool. It is the same on both machines and at any time,
    and no other tool has it: a name that loses something ends with a mark, which is a hash of the whole name."""
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
    """Return the name of an MCP tool without marks. Rules that deny or ask cover it, too: whoever wrote them may know
    the tool by that name."""
    return _MARK.sub("", name) if name.startswith("mcp__") else name


def rule_tool(tool: str) -> str:
    """Return the tool of a rule by the name that the model knows: a rule may name an MCP tool as its server does
    (`mcp__tracker__issues.list`)."""
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
    """Read the fields of a request. Raise RequestRefused."""
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

CLIENT_MCP_MESSAGE: RequestKind[McpMessage, Json] = RequestKind(
    "mcp_message", AnsweredBy.WORKER, payload_of, read=read_mcp_message, deadline_s=CLIENT_DEADLINE_S
)
"""The other way: what a server inside the client says of its own accord."""


@dataclass(frozen=True)
class Elicitation:
    """A server asks the person to fill in a form (`mode` "form", with a schema) or to visit an address ("url"). The
    fields are those of the public `elicitation` request."""

    mcp_server_name: str
    message: str
    mode: str = "form"
    requested_schema: Json | None = None
    url: str | None = None


def _read_elicited(answer: Answer) -> Json:
    """Return {"action": accept, decline or cancel, "content"}. Anything that is not a clear answer is a cancel."""
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
