"""What the journal says about the compactions of a conversation, and what a person has said in it."""

from __future__ import annotations

from collections import deque

from ccb.tunnel.wire.kinds.turns import CompactEndRecord, CompactStartRecord
from ccb.tunnel.wire.kinds.workers import ForkedRecord
from ccb.tunnel.wire.messages import CompactLine
from ccb.tunnel.wire.projection import Projection, on
from ccb.tunnel.wire.records import Record

MAX_FAILURES = 3
"""After so many failures in a row the conversation is not compacted without being asked."""

_MAX_WORKED_FILES = 10
_MAX_TEXT = 4_000  # characters of one prompt
_MAX_FIRST = 8_000  # of the first prompts
_MAX_LATEST = 16_000  # of the latest


class CompactionFailed(Exception):
    """There is no summary; the text says why."""


class Compactions(Projection):
    """`unfinished` is the compaction that a dead worker had begun; `failures` counts those without a use in a row that
    nobody has asked for."""

    def __init__(self) -> None:
        self.unfinished: CompactStartRecord | None = None
        self.failures = 0
        self._counted = False

    @property
    def given_up(self) -> bool:
        return self.failures >= MAX_FAILURES

    @on(CompactStartRecord)
    def _start(self, record: CompactStartRecord, _: Record) -> None:
        self.unfinished = record
        self._counted = record.trigger != "manual"
        self.failures += self._counted  # until it succeeds: one that kills its worker must not go on for ever

    @on(CompactEndRecord)
    def _end(self, record: CompactEndRecord, _: Record) -> None:
        self.unfinished = None
        if record.outcome == "interrupted":
            self.failures -= self._counted

    @on(CompactLine)
    def _boundary(self, line: CompactLine, _: Record) -> None:
        if not line.is_micro:
            self.unfinished = None
            if line.post_tokens * 4 <= line.pre_tokens * 3:
                self.failures = 0

    @on(ForkedRecord)
    def _forked(self, _: ForkedRecord, __: Record) -> None:
        self.unfinished = None  # the original goes on with it


class WorkedFiles:
    """The files that tool calls were about, also those before earlier compactions, within a limit."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        """As the calls have named them, the one of the newest call last."""

    def add(self, path: str) -> None:
        """Take the file of the next call."""
        if path in self.paths:
            self.paths.remove(path)
        self.paths.append(path)
        del self.paths[:-_MAX_WORKED_FILES]


class KeptPrompts:
    """The words of the person, within a limit: the first prompts and the latest ones. A summary may lose a word that
    counts; these are kept literally."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._latest: deque[str] = deque()
        self._first_chars = self._latest_chars = 0
        self._left_out = 0

    def add(self, text: str) -> None:
        """Take the next prompt."""
        text = text.strip()
        if not text or text.startswith("<"):  # nobody, or the worker itself
            return
        text = text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " […]"
        if not self._latest and self._first_chars + len(text) <= _MAX_FIRST:
            self._first.append(text)
            self._first_chars += len(text)
            return
        self._latest.append(text)
        self._latest_chars += len(text)
        while self._latest_chars > _MAX_LATEST:
            self._latest_chars -= len(self._latest.popleft())
            self._left_out += 1

    def texts(self) -> list[str]:
        """Return the prompts, the oldest first."""
        gap = [f"({self._left_out} prompts between are left out)"] if self._left_out else []
        return [*self._first, *gap, *self._latest]
