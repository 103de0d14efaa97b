"""What the files of a project would switch on, as the lines of the trust card. All of it comes from the host."""

from __future__ import annotations

from typing import Any

from .approval_text import doubts
from .card_rows import GOES_ON, CardLine, Voice, own_words
from .untrusted.escapes import escaped, escaped_name

Json = dict[str, Any]

_KINDS = {
    "hook": "hook",
    "mcp": "MCP server",
    "allow": "allow rule",
    "ask": "ask rule",
    "deny": "deny rule",
    "setting": "setting",
    "unknown": "no effect",
    "agent": "agent",
    "command": "command",
    "skill": "skill",
    "memory": "memory",
}
_WIDTH = max(map(len, _KINDS.values()))
_HEAD = "Files in this directory switch on the following. Hooks and MCP servers run on the host, without a question."


def trust_lines(asked: Json) -> list[CardLine]:
    """Return the lines for a question about trust (`ccb.tunnel.wire.requests.ProjectTrust`)."""
    switches = [each for each in asked.get("switches", []) if isinstance(each, dict)]
    texts = [str(text) for each in switches for text in each.values()]
    lines = [own_words(_HEAD), *doubts(str(asked.get("directory", "")), *texts)]
    path = ""
    for each in switches:
        kind, name, detail, found_in = (str(each.get(key, "")) for key in ("kind", "name", "detail", "path"))
        if found_in != path:
            path = found_in
            lines.append(CardLine("in ", escaped_name(path), Voice.CONTEXT, f" {GOES_ON} "))
            if each.get("owner"):
                lines.append(CardLine("   of ", escaped_name(str(each["owner"])), Voice.CONTEXT, f"    {GOES_ON} "))
        lines += _entry(_KINDS.get(kind, escaped_name(kind)[:_WIDTH]), name, detail)
    return lines


def _entry(kind: str, name: str, detail: str) -> list[CardLine]:
    goes_on = f"{'':>{_WIDTH}} {GOES_ON} "
    lines = [CardLine(f"{kind:>{_WIDTH}} │ ", escaped_name(name), Voice.EXACT, goes_on)]
    below = escaped(detail).split("\n") if detail else ()
    return lines + [CardLine(f"{'':>{_WIDTH}} │   ", line, Voice.EXACT, f"{goes_on}  ") for line in below]
