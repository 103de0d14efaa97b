"""What the tools of an agent remember: which version of each file the model has seen, and its todo list."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.todo_list import TodoList

from ..system.regular_files import FileInfo

MAX_FILES = 2000
MAX_CONTENT = 4 << 20  # bytes of the contents that are remembered, of the files used most recently
_MAX_ONE = 1 << 20  # bytes of one content
_MAX_RANGES = 50
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Seen:
    """A version of a file that was read or written. `digest` is "" if only a part of it was read; then size and time
    identify the version. `ranges` are the (offset, limit) pairs that Read has shown of this version. `content` is None
    if it is not remembered (any more)."""

    digest: str
    info: FileInfo
    ranges: Ranges = ()
    content: bytes | None = None

    def is_untouched(self, info: FileInfo) -> bool:
        """Whether nothing has written to the file since. `cp -p` restores only one of the two times."""
        return replace(self.info, mode=0, links=0) == replace(info, mode=0, links=0)

    def is_version(self, digest: str, info: FileInfo) -> bool:
        """Whether the file still has the same bytes, whatever its times say."""
        if self.digest:
            return self.digest == digest
        return (self.info.size, self.info.mtime_ns) == (info.size, info.mtime_ns)


class FileState:
    """The file versions that one session has seen, by real path. Keeps the `max_files` most recently used files."""

    def __init__(self, max_files: int = MAX_FILES) -> None:
        self._max_files = max_files
        self._files: OrderedDict[str, Seen] = OrderedDict()

    @property
    def paths(self) -> list[str]:
        """The real paths of the files, the most recently used last."""
        return list(self._files)

    def get(self, path: str) -> Seen | None:
        seen = self._files.get(path)
        if seen is not None:
            self._files.move_to_end(path)
        return seen

    def read(self, path: str, digest: str, info: FileInfo, part: tuple[int, int], content: bytes | None = None) -> None:
        """Note that Read has shown a range (offset, limit) of this version."""
        old = self._files.get(path)
        ranges: Ranges = ()
        if old is not None and old.is_version(digest, info):
            digest = digest or old.digest
            ranges = tuple(each for each in old.ranges if each != part)
        self._put(path, digest, info, (*ranges, part)[-_MAX_RANGES:], content)

    def written(self, path: str, digest: str, info: FileInfo, content: bytes | None = None) -> None:
        """Note that a tool has written this version, which the model therefore knows."""
        self._put(path, digest, info, (), content)

    def forget(self) -> None:
        """Forget every file: the part of the conversation that may have shown it is gone."""
        self._files.clear()

    def forget_views(self) -> None:
        """Let Read show again what it has shown: compaction has removed it from the conversation."""
        for path, seen in self._files.items():
            self._files[path] = replace(seen, ranges=())

    def _put(self, path: str, digest: str, info: FileInfo, ranges: Ranges, content: bytes | None) -> None:
        kept = content if content is not None and len(content) <= _MAX_ONE else None
        self._files.pop(path, None)
        self._files[path] = Seen(digest, info, ranges, kept)
        while len(self._files) > self._max_files:
            self._files.popitem(last=False)
        room = MAX_CONTENT
        for other, seen in [*self._files.items()][::-1]:
            room -= len(seen.content or b"")
            if room < 0 and seen.content is not None:
                self._files[other] = replace(seen, content=None)


_ROUNDS = 12  # of tool calls until the agent is reminded


class AgentTodos:
    """The todo list that an agent works on, and the rounds of tool calls since it was changed."""

    def __init__(self) -> None:
        self.list = TodoList()
        self._last_id = 0
        self._rounds = 0

    @property
    def new_id(self) -> str:
        """An id that no item has had in this worker."""
        return str(self._last_id + 1)

    def use(self, todos: TodoList) -> None:
        self.list, self._rounds = todos, 0
        self._last_id = max([self._last_id, *(int(each.id) for each in todos.items if each.id.isdecimal())])

    def round_passed(self) -> bool:
        """Count a round of tool calls. Return whether the agent has not changed its list for long."""
        self._rounds += 1
        if not self.list.open or self._rounds < _ROUNDS:
            return False
        self._rounds = 0
        return True
