"""Permission updates that come with a question, in words, and which of them an answer may grant."""

from __future__ import annotations

from typing import Any

from ...session.messages import ControlRequest
from .escapes import escaped_name

Json = dict[str, Any]

_MAX_RULE = 1_000


def describe_update(update: Json) -> str:
    """Return a permission update in words: the exact rule, mode or directory."""
    kind = update.get("type")
    if kind in ("addRules", "replaceRules"):
        rules = update.get("rules")
        names = []
        for rule in rules if isinstance(rules, list) else []:
            if isinstance(rule, dict):
                content = rule.get("ruleContent")
                names.append(f"{rule.get('toolName', '?')}({content})" if content else str(rule.get("toolName", "?")))
        return f"{escaped_name(str(update.get('behavior', 'allow')))} " + ", ".join(map(escaped_name, names))
    if kind == "setMode":
        return f"permission mode {escaped_name(str(update.get('mode')))}"
    if kind == "addDirectories":
        directories = update.get("directories")
        return "work in " + ", ".join(
            escaped_name(str(each)) for each in (directories if isinstance(directories, list) else ())
        )
    return escaped_name(str(kind))


def session_updates(request: ControlRequest) -> list[Json]:
    """Return what the answer "this session" grants: the first suggestion, for this session only. A suggestion that
    is too long to read is never granted."""
    first = request.request.permission_suggestions[:1]
    return [{**update, "destination": "session"} for update in first if len(describe_update(update)) <= _MAX_RULE]
