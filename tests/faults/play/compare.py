"""Whether a disturbed session came out like an undisturbed one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from tests.support.model.model_script import Json

_VOLATILE = {
    "uuid", "session_id", "duration_ms", "duration_api_ms", "total_cost_usd", "usage", "modelUsage",
    "model_usage_since_last_result", "timestamp", "id", "pid", "request_id", "requestId", "ttft_ms", "model",
    "num_turns", "cwd",
    "totalTokens", "totalDurationMs", "pre_tokens", "post_tokens", "prefix_tokens", "totalCostUsd",
}  # fmt: skip
_SKIPPED = ("stream_event", "tool_progress", "keep_alive", "control_response")
_IDS = re.compile(r"toolu_\d+_\d+|-[0-9a-f]{8}\b|(?<=/sessions/)[0-9a-f-]{36}|\d+ tokens, \d+ s(?=</usage>)")
_SLOW = "The agent waits for MCP servers to start"  # what is said only where starting them takes a while
_SHELL_REPORT = re.compile(r"\nIt had printed:\nTerminated$")
"""A shell may have the time to report the end of its child before it ends itself."""
_STREAMING = {
    "[Request interrupted by user for tool use]": "[Request interrupted by user]",
    "aborted_tools": "aborted_streaming",
}
"""A tool starts as soon as its call is complete. Over a slow link the end of the model's answer may come later than the
interrupt, which then counts as one of the answer (tests/remote/agent/test_interrupt.py holds both)."""


def transcript(messages: Sequence[Json], home: str) -> list[str]:
    """What was shown, without what may differ: the main agent, each sub-agent, each prompt, each task. The order
    between them is chance."""
    agents = _agents(messages)
    threads: dict[str, list[Json]] = {"": []}
    for message in filter(_counts, messages):
        thread = agents.get(str(message.get("parent_tool_use_id")), "")
        if message["type"] == "command_lifecycle":
            thread = f"prompt {message['command_uuid']}"
        elif str(message.get("subtype")).startswith("task_"):
            thread = f"task of {agents.get(message['tool_use_id'], 'a command')}"
        threads.setdefault(thread, []).append(message)
    return [f"{thread}: {line}" for thread in sorted(threads) for line in _lines(threads[thread], home)]


def _agents(messages: Sequence[Json]) -> dict[str, str]:
    inner = [message["message"]["content"] for message in messages if message["type"] == "assistant"]
    blocks = [block for content in inner for block in content if block.get("name") == "Task"]
    return {block["id"]: f"agent {block['input']['description']}" for block in blocks}


def _lines(messages: Sequence[Json], home: str) -> list[str]:
    """Results go behind the answer: tools that only read start while the model still talks, so their place is
    chance."""
    lines: list[str] = []
    results: list[str] = []
    answer = ""
    for message in messages:
        line = json.dumps(_plain(message), sort_keys=True).replace(home, "~")
        inner = message.get("message")
        identity = str(inner.get("id")) if isinstance(inner, dict) and message["type"] == "assistant" else ""
        if message["type"] == "user" or (message["type"] == "control_request" and answer):
            results.append(line)
            continue
        if identity != answer:
            lines += sorted(results)
            results.clear()
            answer = identity
        lines.append(line)
    return lines + sorted(results)


def _counts(message: Json) -> bool:
    if str(message.get("content")).startswith(_SLOW):
        return False
    if message.get("type") == "system":
        return message.get("subtype") not in ("status", "api_retry", "task_progress")
    return message.get("type") not in _SKIPPED


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if name not in _VOLATILE}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, str):
        return value
    return _IDS.sub("*", _SHELL_REPORT.sub("", _STREAMING.get(value, value)))


def first_difference(wanted: Sequence[str], got: Sequence[str]) -> str:
    for place, (left, right) in enumerate(zip(wanted, got, strict=False)):
        if left != right:
            return f"message {place}: wanted {left[:600]}\n got {right[:600]}"
    if len(wanted) != len(got):
        longer, what = (wanted, "missing") if len(wanted) > len(got) else (got, "too many")
        return f"{what}: {[line[:300] for line in longer[min(len(wanted), len(got)) :]]}"
    return ""
