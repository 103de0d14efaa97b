"""The journal of a session and the log of its worker as lines for people."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable

Json = dict[str, Any]
LogLine = tuple[float, str, str]
"""Seconds of the host's clock, source, text."""

_BLOCK = 512 * 1024
_MOST = 64 * 1024 * 1024  # bytes read back from the end
_WIDTH = 400
_STAMP = "%Y-%m-%d %H:%M:%S"


def last_lines(directory: str, count: int) -> list[tuple[str, str, str]]:
    """Source, host time and text of the last `count` lines, in order of time. Raises OSError when the journal cannot be read."""
    lines = _from_end(os.path.join(directory, "journal.jsonl"), count, _of_journal)
    try:
        lines += _from_end(os.path.join(directory, "daemon.log"), count, _of_worker)
    except OSError as error:
        lines.append((time.time(), "worker", "%s: %s" % (error.filename, error.strerror)))
    lines.sort(key=lambda line: line[0])
    return [(source, time.strftime(_STAMP, time.localtime(when)), text) for when, source, text in lines[-count:]]


def _from_end(path: str, count: int, readable: Callable[[list[bytes]], list[LogLine]]) -> list[LogLine]:
    """The last `count` readable lines of a file, none where there is no file; it is read backwards until there are enough."""
    span = _BLOCK
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            while True:
                file.seek(max(0, size - span))
                parts = file.read(min(span, size)).split(b"\n")
                found = readable(parts if span >= size else parts[1:])
                if len(found) >= count or span >= min(size, _MOST):
                    return found[-count:]
                span *= 4
    except FileNotFoundError:
        return []


def _of_worker(parts: list[bytes]) -> list[LogLine]:
    """Lines of the log; those of a traceback have no time of their own."""
    found: list[LogLine] = []
    when = 0.0
    for part in parts:
        text = part.decode("utf-8", "replace").rstrip()
        try:
            when = time.mktime(time.strptime(text[:19], _STAMP))
            text = text[24:]
        except (ValueError, OverflowError):
            pass
        if text:
            found.append((when, "worker", text[:_WIDTH]))
    return found


def _of_journal(parts: list[bytes]) -> list[LogLine]:
    found: list[LogLine] = []
    for part in parts:
        if not part:
            continue
        try:
            record = json.loads(part)
            texts = _READERS.get(record["kind"], _fact)(record["kind"], record["body"])
            found += [(float(record["time"]), "session", text) for text in texts]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            found.append((found[-1][0] if found else 0.0, "session", "damaged record: " + _short(part[:80])))
    return found


def _short(value: object) -> str:
    """One line of limited length."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text[: 8 * _WIDTH].split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _blocks(message: Json) -> list[Json]:
    content = (message.get("message") or {}).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content or [] if isinstance(block, dict)]


def _message(kind: str, body: Json) -> list[str]:
    what = body.get("type")
    if what == "assistant":
        return [text for block in _blocks(body) for text in _said(block)]
    if what == "user":
        return [_result(block) for block in _blocks(body) if block.get("type") == "tool_result"]
    if what == "result":
        errors = "; ".join(map(str, body.get("errors") or ()))
        end = "turn failed: " + (errors or str(body.get("subtype"))) if body.get("is_error") else "turn done"
        return [_short(end)]
    if what == "control_request":
        request = body.get("request") or {}
        return [_short("asks to use %s %s" % (request.get("tool_name"), _compact(request.get("input"))))]
    if what == "control_cancel_request":
        return ["question withdrawn"]
    if what == "system" and body.get("subtype") == "init":
        return [_short("model %s, permission mode %s" % (body.get("model"), body.get("permissionMode")))]
    return []


def _said(block: Json) -> list[str]:
    if block.get("type") == "text":
        return [_short("agent: %s" % block.get("text"))]
    if block.get("type") == "tool_use":
        return [_short("call %s %s" % (block.get("name"), _compact(block.get("input"))))]
    return []


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _result(block: Json) -> str:
    content = block.get("content")
    if isinstance(content, list):
        content = " ".join(str(each.get("text", "(%s)" % each.get("type"))) for each in content)
    return _short("%s: %s" % ("tool error" if block.get("is_error") else "tool result", content))


def _input(kind: str, body: Json) -> list[str]:
    said = body["body"]
    if said.get("type") == "user":
        texts = [str(block.get("text", "(%s)" % block.get("type"))) for block in _blocks(said)]
        return [_short("prompt: " + " ".join(texts))]
    if said.get("type") == "control_request":
        return [_short("client: %s" % (said.get("request") or {}).get("subtype"))]
    if said.get("type") == "control_response":
        response = said.get("response") or {}
        word = (response.get("response") or {}).get("behavior") or response.get("subtype")
        return [_short("client answers: %s" % word)]
    return []


def _fact(kind: str, body: Json) -> list[str]:
    """What the journal says about the session itself. An unknown fact is shown as it is."""
    return [_short("%s %s" % (kind, _compact(body)))]


def _nothing(kind: str, body: Json) -> list[str]:
    return []


_READERS: dict[str, Callable[[str, Json], list[str]]] = {
    "message": _message,
    "input": _input,
    "options": lambda kind, body: [_short("session in %s" % body["cwd"] if "cwd" in body else "new options")],
    "driver": lambda kind, body: [_short("driver: %s" % body.get("by"))],
    "worker": lambda kind, body: ["worker started, pid %s" % body.get("pid")],
    "forked": lambda kind, body: [_short("copied from session %s" % body.get("from"))],
    "damaged": lambda kind, body: [_short("journal damaged: %s" % body.get("what"))],
    "late_answer": lambda kind, body: ["an answer came too late and was dropped"],
    "withdrawn": lambda kind, body: ["a partial answer was withdrawn"],
    **dict.fromkeys(("prompt", "turn_start", "turn_end", "tool_start", "model_end", "model"), _nothing),
}
