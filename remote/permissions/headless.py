"""The denial of a call that would need a question, in a session where nobody can be asked."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from .decision import Decision


def headless_denial(decision: Decision, tool_name: str) -> str:
    """Return the text for the model: the reason and, if there is one, the flag that would have allowed the call."""
    text = f"Permission to use {tool_name} was not granted: {decision.reason} Nobody can be asked in this session."
    hint = _hint(decision)
    return (
        f"{text} To allow it, start the session with {hint}."
        if hint
        else f"{text} An interactive session can allow it."
    )


def _hint(decision: Decision) -> str:
    for update in decision.suggestions[:1]:
        if update.get("type") == "addRules":
            return f"--allowedTools {_quoted(','.join(_text(rule) for rule in update['rules']))}"
        if update.get("type") == "setMode":
            return f"--permission-mode {update['mode']}"
        if update.get("type") == "addDirectories":
            return f"--add-dir {_quoted(update['directories'][0])}"
    return ""


def _text(rule: Mapping[str, Any]) -> str:
    content = rule.get("ruleContent")
    return rule["toolName"] if content is None else f"{rule['toolName']}({content})"


def _quoted(text: str) -> str:
    return shlex.quote(text) if re.search(r'["$`\\!]', text) else f'"{text}"'
