"""Facts about a whole session, read from its journal: the summary, the last worker, and the origin of a copy."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterator

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire.client_requests import SHELL_COMMAND
from ccb.tunnel.wire.journal_records import Projection, Record, on, replay
from ccb.tunnel.wire.messages import AssistantMessage, ControlRequest, SystemMessage, UserMessage

_END_BYTES = 256 * 1024
_MAX_TEXT = 200
_MAX_UUIDS = 20_000
_MAX_STARTS = 20  # of which all but the last may be taken back
_COMMAND = re.compile(r"/[^/\s]+(\s|$)|!")


def prompt_start(line: UserMessage) -> str:
    return one_line(line.text(" "))


def one_line(text: str) -> str:
    return " ".join(text[:2000].split())[:_MAX_TEXT]


class JournalSummary(Projection):
    """`created` is when the session or the copy began, `first` the time of the first readable record, `cwd` the last
    directory, `title` the name that somebody has given, `summary` what a model has made of the first prompt that is no
    command and was not taken back; `prompt` is the first there is of title, summary and the start of that prompt. A
    prompt that was sent twice counts once. `said` is the start of the last text of the main agent, `asked` the last
    call that somebody was asked about."""

    def __init__(self) -> None:
        self.created = 0.0
        self.first = 0.0
        self.cwd = ""
        self.prompt = ""
        self.prompts = 0
        self.title = ""
        self.summary = ""
        self.said = ""
        self.asked = ""
        self._uuids: OrderedDict[str, None] = OrderedDict()
        self._starts: dict[str, tuple[int, str]] = {}  # of the first prompts, with the numbers of their records

    def apply(self, record: Record) -> None:
        self.first = self.first or record.time
        super().apply(record)

    @on(records.OptionsRecord)
    def _options(self, options: records.OptionsRecord, record: Record) -> None:
        self.created = self.created or record.time
        self.cwd = self.cwd or options.cwd

    @on(SystemMessage, main_only=True)
    def _system(self, line: SystemMessage, _: Record) -> None:
        self.cwd = self.cwd or line.cwd
        if line.subtype == "session_title_changed":
            title = one_line(str(line.body.get("title")))
            if line.body.get("generated") is True:
                self.summary = title
            else:
                self.title = title
            self._named()

    @on(AssistantMessage, main_only=True)
    def _said(self, line: AssistantMessage, _: Record) -> None:
        for block in line.blocks:
            if block.get("type") == "text":
                self.said = one_line(str(block.get("text"))) or self.said

    @on(ControlRequest)
    def _asked(self, line: ControlRequest, _: Record) -> None:
        if line.tool_name:
            given = [value for value in line.input.values() if isinstance(value, str)]
            self.asked = one_line(" ".join([line.tool_name, *given[:1]]))

    @on(records.WorkerRecord)
    def _worker(self, worker: records.WorkerRecord, _: Record) -> None:
        self.cwd = worker.cwd or self.cwd

    @on(records.ForkedRecord)
    def _forked(self, content: records.ForkedRecord, record: Record) -> None:
        self.created = record.time
        self.cwd = content.to or self.cwd

    @on(records.InputRecord)
    def _input(self, content: records.InputRecord, record: Record) -> None:
        line = content.public
        if not isinstance(line, UserMessage) or line.uuid in self._uuids:
            return
        self.prompts += 1
        start = prompt_start(line)
        is_command = line.body.get(SHELL_COMMAND) is True or bool(_COMMAND.match(start))
        if start and not is_command and len(self._starts) < _MAX_STARTS:
            self._starts[content.id] = (record.seq, start)
            self._named()
        if line.uuid:
            self._uuids[line.uuid] = None
            if len(self._uuids) > _MAX_UUIDS:
                self._uuids.popitem(last=False)

    @on(records.UnqueuedRecord)
    def _taken_back(self, content: records.UnqueuedRecord, _: Record) -> None:
        self.prompts = max(0, self.prompts - 1)
        self._starts.pop(content.id, None)
        self._named()

    @on(records.RewindRecord)
    def _rewound(self, content: records.RewindRecord, _: Record) -> None:
        if content.to:
            self._starts = {name: each for name, each in self._starts.items() if each[0] < content.to}
            self.summary = self.summary if self._starts else ""
            self._named()

    def _named(self) -> None:
        self.prompt = self.title or self.summary or next((start for _, start in self._starts.values()), "")


class LastWorker(Projection):
    """`mark` is that of its processes: a copy does not take over its original's. `told_in` is the directory in which
    the model was last told anything, "" when it was told nothing. `moved`: it has come here from another
    machine since. `agent_session` is the id that an agent of others has given the conversation."""

    def __init__(self) -> None:
        self.mark = ""
        self.told_in = ""
        self.agent_session = ""
        self.moved: records.ForkedRecord | None = None
        self._directory = ""

    @on(records.OptionsRecord, records.WorkerRecord)
    def _worker(self, content: records.OptionsRecord | records.WorkerRecord, _: Record) -> None:
        self.mark = self.mark if content.mark is None else content.mark
        self._directory = content.cwd or self._directory

    @on(records.ForkedRecord)
    def _forked(self, content: records.ForkedRecord, _: Record) -> None:
        self.mark = self.agent_session = ""  # the original goes on with them
        self.moved = content if content.root else self.moved

    @on(records.AgentSessionRecord)
    def _agent_session(self, content: records.AgentSessionRecord, _: Record) -> None:
        self.agent_session = content.id

    @on(records.PromptRecord, main_only=True)
    def _prompt(self, _: records.PromptRecord, __: Record) -> None:
        self.told_in, self.moved = self._directory, None


def last_mark(path: str) -> str:
    worker = LastWorker()
    replay(_with_word(path, b'"mark"', b'"forked"'), worker)
    return worker.mark


def worktrees(path: str) -> list[records.WorktreeRecord]:
    """Return the work trees that agents of the journal at `path` may have left. Raise OSError."""
    return [tree for tree in _worktrees(path).values() if not tree.removed]


def main_worktree(path: str) -> records.WorktreeRecord | None:
    """Return the work tree that was made for the session of the journal at `path`. Raise OSError."""
    return _worktrees(path).get(records.MAIN_AGENT)


def _worktrees(path: str) -> dict[str, records.WorktreeRecord]:
    found: dict[str, records.WorktreeRecord] = {}
    for each in _with_word(path, b'"worktree"', b'"forked"'):
        if isinstance(each.content, records.WorktreeRecord):
            found[each.agent_id] = each.content
        elif isinstance(each.content, records.ForkedRecord) and each.content.root:
            found.clear()  # they are on another machine
    return found


def unused_origin(path: str) -> str:
    """Return the session that a journal is a copy of; "" if it is none or was driven since. Raise OSError."""
    origin = ""
    for record in _with_word(path, b'"forked"', b'"driver"'):
        if isinstance(record.content, (records.ForkedRecord, records.DriverRecord)):
            origin = record.content.source if isinstance(record.content, records.ForkedRecord) else ""
    return origin


def summarize_ends(path: str) -> JournalSummary:
    """Return the summary of the first and the last 256 KiB of a journal. Raise OSError."""
    summary = JournalSummary()
    with open(path, "rb") as file:
        head = file.read(_END_BYTES)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(len(head), size - _END_BYTES))
        replay(_readable(iter(head.split(b"\n"))), summary)
        replay(_readable(iter(file.read().split(b"\n"))), summary)
    return summary


def _with_word(path: str, *words: bytes) -> Iterator[Record]:
    with open(path, "rb") as file:
        yield from _readable(line for line in file if any(word in line for word in words))


def _readable(lines: Iterator[bytes]) -> Iterator[Record]:
    for line in lines:
        record = records.parse_line(line)
        if record is not None:
            yield record
