"""The prompts to which a person may go back, and the changes of files since: a projection of the journal."""

from __future__ import annotations

from collections import OrderedDict, deque

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.rewind import FileChangeRecord, RewindRecord, RewoundRecord
from ccb.tunnel.wire.kinds.workers import ForkedRecord
from ccb.tunnel.wire.messages import UserLine
from ccb.tunnel.wire.projection import Projection, on
from ccb.tunnel.wire.records import InputRecord, PromptRecord, Record

MAX_POINTS = 100
"""Number of prompts to which a person may go back; the newest ones count."""
MAX_CHANGES = 10_000
"""Number of remembered changes of files; the newest ones count."""

_MAX_TEXT = 2_000  # characters of a prompt
_MAX_INPUTS = 2_000


@dataclass(frozen=True)
class Point:
    """A prompt that an agent has taken with record `seq`. `id` is the id that its client gave it, or else that of its
    input."""

    seq: int
    time: float
    id: str
    text: str


@dataclass(frozen=True)
class FileChange:
    """What was in a file before it was changed (`before`, `mode`) and after that, as in FileChangeRecord."""

    seq: int
    path: str
    before: str
    after: str
    mode: int = 0
    lost: str = ""


class RewindPoints(Projection):
    """`points` are the prompts of the conversation as it is now, the oldest first. `latest` holds the newest known
    digest of each changed file. `unfinished` is the rewind whose files may not all be restored."""

    def __init__(self) -> None:
        self.points: deque[Point] = deque(maxlen=MAX_POINTS)
        self.latest: OrderedDict[str, str] = OrderedDict()
        self.unfinished: RewindRecord | None = None
        self._changes: deque[FileChange] = deque(maxlen=MAX_CHANGES)
        self._inputs: OrderedDict[str, tuple[str, str]] = OrderedDict()  # input id -> id of the message, text

    def find(self, message: str) -> Point | None:
        """Return the point of a message, or None."""
        return next((point for point in self.points if message and point.id == message), None)

    def changed_since(self, seq: int) -> list[FileChange]:
        """Return the first change of each file after record `seq`. A file changed again and back counts as well."""
        first: OrderedDict[str, FileChange] = OrderedDict()
        for change in self._changes:
            if change.seq > seq:
                first.setdefault(change.path, change)
        return list(first.values())

    @property
    def complete_since(self) -> int:
        """The number of the record after which every change is remembered."""
        return self._changes[0].seq if len(self._changes) == MAX_CHANGES else 0

    @on(InputRecord)
    def _input(self, content: InputRecord, _: Record) -> None:
        line = content.public
        if isinstance(line, UserLine):
            self._inputs[content.id] = (line.uuid or content.id, line.text("\n")[:_MAX_TEXT])
            while len(self._inputs) > _MAX_INPUTS:
                self._inputs.popitem(last=False)

    @on(PromptRecord, main_only=True)
    def _prompt(self, content: PromptRecord, record: Record) -> None:
        for input_id in content.input_ids:
            said = self._inputs.pop(input_id, None)
            if said is not None:  # others are notices of the worker
                self.points.append(Point(record.seq, record.time, *said))

    @on(FileChangeRecord)
    def _file_change(self, content: FileChangeRecord, record: Record) -> None:
        self._add(
            FileChange(record.seq, content.path, content.before, content.after, content.mode, content.lost),
        )

    @on(RewindRecord)
    def _rewind(self, content: RewindRecord, record: Record) -> None:
        for each in content.files:
            mode = each.get("mode")
            path, before, after = (str(each.get(name, "")) for name in ("path", "before", "after"))
            self._add(FileChange(record.seq, path, before, after, mode if isinstance(mode, int) else 0))
        if content.to:
            self.points = deque((each for each in self.points if each.seq < content.to), MAX_POINTS)
        self.unfinished = content if content.files else None

    @on(RewoundRecord)
    def _rewound(self, _: RewoundRecord, __: Record) -> None:
        self.unfinished = None

    @on(ForkedRecord)
    def _forked(self, _: ForkedRecord, __: Record) -> None:
        """The original restores its files itself."""
        self.unfinished = None

    def _add(self, change: FileChange) -> None:
        self._changes.append(change)
        self.latest.pop(change.path, None)
        self.latest[change.path] = change.after
        while len(self.latest) > MAX_CHANGES:
            self.latest.popitem(last=False)
