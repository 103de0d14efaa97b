"""The result message of a turn: its exit code, its text, and a substitute if the host could not send one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccb.tunnel.wire.messages import BLOCKED_PROMPT
from ccb.tunnel.wire.models import ESTIMATED
from ccb.tunnel.wire.ndjson import dump
from ccb.tunnel.wire.requests import new_uuid

from ..command_line.exit_codes import ExitCode

if TYPE_CHECKING:
    from ..session.client import Json

_NO_USAGE: Json = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
    "server_tool_use": {"web_search_requests": 0},
    "service_tier": "standard",
}
_FACTS = ("contextWindow", "maxOutputTokens", "canonicalModel", "costBasis", ESTIMATED)
_LIMITS = ("error_max_turns", "error_max_budget_usd")


def exit_code(result: Json, *, denied_unasked: bool = False, wants_answer: bool = False) -> ExitCode:
    """Return the exit code of a run that ended with `result`. `denied_unasked` means that the worker denied a tool call
    because nobody could be asked, `wants_answer` that a turn without an answer has failed."""
    subtype = result.get("subtype")
    if subtype in _LIMITS:
        return ExitCode.LIMIT_REACHED
    if result.get("terminal_reason") == "storage_full":
        return ExitCode.NO_STORAGE
    if result.get("terminal_reason") == "turn_setup_failed":
        return ExitCode.USAGE
    if subtype != "success" or result.get("is_error"):
        return ExitCode.AUTH_FAILED if result.get("api_error_status") in (401, 403) else ExitCode.AGENT_FAILED
    if denied_unasked:
        return ExitCode.PERMISSION_DENIED
    return ExitCode.AGENT_FAILED if wants_answer and not has_answer(result) else ExitCode.OK


def usage_between(before: Json, now: Json) -> Json:
    """Return the `modelUsage` of the time between two results. Both are sums since the start."""
    found: Json = {}
    for model, sums in now.items():
        old = before.get(model) or {}
        counts = {
            name: value if name in _FACTS or not isinstance(value, (int, float)) else value - old.get(name, 0)
            for name, value in sums.items()
        }
        if any(counts[name] for name in counts if name not in _FACTS):
            found[model] = counts
    return found


def has_answer(result: Json) -> bool:
    """Return whether a turn has succeeded with an answer, or needed none, as that of a command that prints nothing."""
    if result.get("subtype") != "success" or result.get("is_error"):
        return False
    said, turns = result.get("result"), result.get("num_turns")
    if not turns:
        return not str(said).startswith(BLOCKED_PROMPT)
    return bool(isinstance(said, str) and said.strip()) or "structured_output" in result


def result_text(result: Json) -> str:
    """Return the result as plain text: the answer, or why there is none."""
    text = result.get("result")
    if isinstance(text, str) and not text.strip() and "structured_output" in result:
        return dump(result["structured_output"])
    if isinstance(text, str) and (text.strip() or has_answer(result)):
        return text
    if isinstance(text, str):
        reason = str(result.get("terminal_reason") or "completed").replace("_", " ")
        return f"The turn ended without an answer{'' if reason == 'completed' else f' ({reason})'}."
    errors = result.get("errors")
    lines = [str(line) for line in errors] if isinstance(errors, list) and errors else [str(result.get("subtype"))]
    return "\n".join(f"Error: {line}" for line in lines)


def local_result(session_id: str, errors: list[str], *, reason: str, duration_ms: int) -> Json:
    """Make a result for a turn that got none from the host. `reason` goes into `terminal_reason`."""
    return {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "duration_ms": duration_ms,
        "duration_api_ms": 0,
        "num_turns": 0,
        "stop_reason": None,
        "session_id": session_id,
        "total_cost_usd": 0,
        "usage": _NO_USAGE,
        "modelUsage": {},
        "permission_denials": [],
        "errors": errors,
        "terminal_reason": reason,
        "uuid": new_uuid(),
    }
