"""Transcripts of Claude Code (`~/.claude/projects/*/*.jsonl`) as sessions of ccb.

A line of a transcript is a message that names the one before it, or bookkeeping. The conversation is what leads to the
last message: other branches were taken back, and what is before a compaction is in its summary.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_dict, as_text
from ccb.tunnel.wire.ndjson import load
from ccb.tunnel.wire.session_archive import JOURNAL, Manifest, add_member, begin, end

_MAX_LINE = 16 << 20
_KINDS = ("text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result")
_NOT_CARRIED = "Not carried: the earlier versions of files (/rewind), what runs in the background, permissions."


def convert(path: Path, target: Path) -> list[str]:
    """Write a transcript as an archive of a session. Return what is not carried, as sentences. Raise UsageError."""
    try:
        with path.open("rb") as source, target.open("xb") as archive, target.with_suffix(".journal").open("w+b") as own:
            journal, left_out = _Journal(own), Counter[str]()
            for each in _conversation(source, left_out):
                journal.take(each, left_out)
            journal.end_turn()
            if not journal.prompts:
                raise UsageError(
                    f"{one_line(str(path))} holds no conversation of Claude Code",
                    do="Name a file like ~/.claude/projects/*/*.jsonl.",
                )
            begin(archive, Manifest(journal.session, journal.cwd))
            size = own.tell()
            own.seek(0)
            add_member(archive, JOURNAL, own, size)
            end(archive)
    except OSError as error:
        raise UsageError(f"{one_line(str(path))}: {error.strerror}", do="Check the path.") from None
    return [*(f"Not carried: {count} {what}." for what, count in sorted(left_out.items())), _NOT_CARRIED]


def _conversation(file: BinaryIO, left_out: Counter[str]) -> Iterator[Json]:
    """Yield the messages that lead to the last one, the first one first."""
    known: dict[str, tuple[int, str]] = {}  # where each message begins, and the one before it
    last, at = "", 0
    while data := file.readline(_MAX_LINE):
        line = _parsed(data)
        if not line:
            left_out["lines that cannot be read"] += 1
        elif line.get("isSidechain") is True:
            left_out["messages of sub-agents"] += 1
        elif name := as_text(line.get("uuid")):
            known[name] = at, as_text(line.get("parentUuid"))
            if line.get("type") in ("user", "assistant"):
                last = name
        at += len(data)
    chain: list[int] = []
    while last in known:
        at, last = known.pop(last)  # taken out, so a circle ends
        chain.append(at)
    for at in reversed(chain):
        file.seek(at)
        yield _parsed(file.readline(_MAX_LINE))


def _parsed(data: bytes) -> Json:
    try:
        return as_dict(load(data.decode("utf-8")))
    except (ValueError, RecursionError):
        return {}


class _Journal:
    """Writes the journal of the session. `cwd` is its last directory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._seq = 0
        self._time = 0.0
        self._answer = ""  # the id of the answer whose blocks come
        self.session = ""
        self.cwd = "/"
        self.prompts = 0

    def take(self, line: Json, left_out: Counter[str]) -> None:
        kind, message = line.get("type"), as_dict(line.get("message"))
        blocks = list(self._blocks(message.get("content"), left_out))
        if kind not in ("user", "assistant") or not blocks or line.get("isApiErrorMessage") is True:
            return
        self._time = _seconds(line) or self._time
        path = as_text(line.get("cwd"))
        self.cwd = path if path.startswith("/") else self.cwd
        if not self.session:
            self._begin(line)
        if kind == "assistant":
            self._take_answer(message, blocks)
            return
        said = {"type": "user", "message": {"role": "user", "content": blocks}, "parent_tool_use_id": None}
        is_summary = line.get("isCompactSummary") is True
        if is_summary or line.get("isMeta") is True or any(each["type"] == "tool_result" for each in blocks):
            self._end_answer()
            self.prompts += is_summary
            marks = {"isCompactSummary": True} if is_summary else {}
            self._write(records.MessageRecord({**said, **marks, **self._names()}))
        else:
            self.end_turn()
            self.prompts += 1
            identity = f"claude-{self.prompts}"
            self._write(records.InputRecord(identity, {**said, "uuid": as_text(line.get("uuid"))}))
            self._write(records.TurnStartRecord())
            self._write(records.PromptRecord([], [records.PromptItem(identity)]))

    def _begin(self, line: Json) -> None:
        try:
            self.session = str(uuid.UUID(as_text(line.get("sessionId"))))
        except ValueError:
            self.session = str(uuid.uuid4())
        self._write(records.OptionsRecord({}, self.session, self._time, self.cwd))

    def _take_answer(self, message: Json, blocks: list[Json]) -> None:
        name = as_text(message.get("id")) or str(uuid.uuid4())
        if name != self._answer:
            self._end_answer()
            self._answer = name
        one = {"id": name, "type": "message", "role": "assistant", "model": as_text(message.get("model"))}
        for block in blocks:
            said = {**one, "content": [block]}
            self._write(records.MessageRecord({"type": "assistant", "message": said, **self._names()}))

    def _end_answer(self) -> None:
        if self._answer:
            self._write(records.ModelEndRecord(self._answer, "end_turn", {}))
            self._answer = ""

    def end_turn(self) -> None:
        self._end_answer()
        if self.prompts:
            self._write(records.TurnEndRecord())

    def _names(self) -> Json:
        return {"parent_tool_use_id": None, "session_id": self.session, "uuid": str(uuid.uuid4())}

    def _write(self, content: records.Content) -> None:
        self._seq += 1
        self._file.write(records.to_line(records.record_of(content, self._seq, self._time)))

    @staticmethod
    def _blocks(content: object, left_out: Counter[str]) -> Iterator[Json]:
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for each in content if isinstance(content, list) else ():
            if isinstance(each, dict) and each.get("type") in _KINDS:
                yield {name: value for name, value in each.items() if name != "cache_control"}
            else:
                left_out["blocks of a kind that ccb does not know"] += 1


def _seconds(line: Json) -> float:
    try:
        return datetime.fromisoformat(as_text(line.get("timestamp"))).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return 0.0
