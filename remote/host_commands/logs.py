"""`ccb logs`: the journal of a session and the log of its worker, as readable lines."""

from __future__ import annotations

import json
import os
import time
from typing import Callable

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import MAIN_AGENT, Projection, Record, on, parse_line
from ccb.tunnel.wire.prompt_content import is_attached_file

LogLine = tuple[float, str, str]  # time in seconds of the host's clock, source, text
_BLOCK = 512 * 1024
_MAX_BYTES = 64 * 1024 * 1024  # read back from the end of a file
_MAX_WIDTH = 400
_STAMP = "%Y-%m-%d %H:%M:%S"


def last_lines(directory: str, count: int) -> list[tuple[str, str, str]]:
    """Return (source, time on the host, text) of the last `count` lines. Raise OSError."""
    lines = _from_end(os.path.join(directory, "journal.jsonl"), count, _of_journal)
    try:
        lines += _from_end(os.path.join(directory, "daemon.log"), count, _of_worker)
    except OSError as error:
        lines.append((time.time(), "worker", "%s: %s" % (error.filename, error.strerror)))
    lines.sort(key=lambda line: line[0])
    return [(source, time.strftime(_STAMP, time.localtime(when)), text) for when, source, text in lines[-count:]]


def _from_end(path: str, count: int, readable: Callable[[list[bytes]], list[LogLine]]) -> list[LogLine]:
    span = _BLOCK
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            while True:
                file.seek(max(0, size - span))
                parts = file.read(min(span, size)).split(b"\n")
                found = readable(parts if span >= size else parts[1:])
                if len(found) >= count or span >= min(size, _MAX_BYTES):
                    return found[-count:]
                span *= 4
    except FileNotFoundError:
        return []


def _of_worker(parts: list[bytes]) -> list[LogLine]:
    """Parse the worker's log. A traceback line gets the time of the line before it."""
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
            found.append((when, "worker", text[:_MAX_WIDTH]))
    return found


def _of_journal(parts: list[bytes]) -> list[LogLine]:
    log = _JournalLog()
    for part in filter(None, parts):
        record = parse_line(part)
        if record is None:
            when = log.lines[-1][0] if log.lines else 0.0
            log.lines.append((when, "session", _short("damaged record: " + part[:80].decode("utf-8", "replace"))))
        else:
            log.apply(record)
    return log.lines


_TEXTS: dict[type, str] = {
    messages.ControlCancel: "question withdrawn",
    records.DriverRecord: "driver: {0.by}",
    records.WorkerRecord: "worker started, pid {0.pid}",
    records.ForkedRecord: "copied from session {0.source}",
    records.DamagedRecord: "journal damaged: {0.what}",
    records.LateAnswerRecord: "an answer came too late and was dropped",
    records.WithdrawnRecord: "a partial answer was withdrawn",
}


class _JournalLog(Projection):
    def __init__(self) -> None:
        self.lines: list[LogLine] = []

    def add(self, record: Record, text: str) -> None:
        who = "" if record.agent_id == MAIN_AGENT else "sub-agent %s: " % record.agent_id
        self.lines.append((record.time, "session", _short(who + text)))

    @on(messages.AssistantMessage)
    def _assistant(self, line: messages.AssistantMessage, record: Record) -> None:
        for block in line.blocks:
            if block.get("type") == "text" and str(block.get("text")).strip():
                self.add(record, "agent: %s" % block.get("text"))
            elif block.get("type") == "tool_use":
                self.add(record, "call %s %s" % (block.get("name"), _compact(block.get("input"))))

    @on(messages.UserMessage)
    def _user(self, line: messages.UserMessage, record: Record) -> None:
        for block in line.blocks:
            if block.get("type") == "tool_result":
                what = "tool error" if block.get("is_error") else "tool result"
                content = block.get("content")
                if isinstance(content, list):
                    parts = [each for each in content if isinstance(each, dict)]
                    content = " ".join(str(each.get("text", "(%s)" % each.get("type"))) for each in parts)
                self.add(record, "%s: %s" % (what, content))

    @on(messages.ResultMessage)
    def _result(self, line: messages.ResultMessage, record: Record) -> None:
        end = "turn failed: " + ("; ".join(line.errors) or line.subtype) if line.is_error else "turn done"
        self.add(record, end)

    @on(records.AgentResultRecord)
    def _agent_result(self, content: records.AgentResultRecord, record: Record) -> None:
        if isinstance(content.public, messages.ResultMessage):
            self._result(content.public, record)

    @on(messages.ControlRequest)
    def _asked(self, line: messages.ControlRequest, record: Record) -> None:
        if line.tool_name:
            self.add(record, "asks to use %s %s" % (line.tool_name, _compact(line.request.get("input") or {})))
        else:
            self.add(record, "asks the client: %s" % line.subtype)

    @on(messages.SystemMessage)
    def _system(self, line: messages.SystemMessage, record: Record) -> None:
        if line.subtype == "init":
            self.add(record, "model %s, permission mode %s" % (line.model, line.permission_mode))

    @on(records.InputRecord)
    def _input(self, content: records.InputRecord, record: Record) -> None:
        line = content.public
        if isinstance(line, messages.UserMessage):
            self.add(record, "prompt: " + " ".join(map(_part, line.blocks)))
        elif isinstance(line, messages.ControlRequest):
            self.add(record, "client: %s" % line.subtype)
        elif isinstance(line, messages.ControlResponse):
            who = "viewer %s" % content.by if content.by else "client"
            self.add(record, "%s answers: %s" % (who, (line.payload or {}).get("behavior") or line.subtype))

    @on(*_TEXTS)
    def _other(self, content: object, record: Record) -> None:
        self.add(record, _TEXTS[type(content)].format(content))

    @on(records.OptionsRecord)
    def _options(self, content: records.OptionsRecord, record: Record) -> None:
        self.add(record, "session in %s" % content.cwd if content.cwd else "new options")

    @on(records.UnknownRecord)
    def _unknown(self, content: records.UnknownRecord, record: Record) -> None:
        self.add(record, "%s %s" % (content.kind, _compact(content.body)))


def _part(block: Json) -> str:
    """Return the text of a block: of a file that goes along its name, of a note to the model none of its words."""
    text = str(block.get("text", "(%s)" % block.get("type")))
    if is_attached_file(block):
        return '(file "%s")' % text.split('"', 2)[1]
    is_note = text.startswith("<system-reminder>") and text.endswith("</system-reminder>")
    return "(a note to the model)" if is_note else text


def _short(text: str) -> str:
    text = " ".join(text[: 8 * _MAX_WIDTH].split())
    return text if len(text) <= _MAX_WIDTH else text[: _MAX_WIDTH - 1] + "…"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
