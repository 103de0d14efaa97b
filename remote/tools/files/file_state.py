"""What the model has seen of files, and in which version: without that, nothing overwrites them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from ...system.host import FileInfo

MOST_FILES = 2000
_MOST_RANGES = 50


@dataclass(frozen=True)
class Seen:
    """A file as it was read or written. `digest` is "" when only a part was looked at and the rest is unknown; then
    size and time stand for the version. `ranges` are the (offset, limit) pairs a Read has shown of this version."""

    digest: str
    size: int
    mtime_ns: int
    ranges: tuple[tuple[int, int], ...] = ()
    ctime_ns: int = 0
    inode: int = 0

    def is_untouched(self, info: FileInfo) -> bool:
        """Whether nothing has written to the file since, as far as the system notices: `cp -p` sets back one time, not
        both."""
        then = (self.size, self.mtime_ns, self.ctime_ns, self.inode)
        return then == (info.size, info.mtime_ns, info.ctime_ns, info.inode)

    def is_version(self, digest: str, info: FileInfo) -> bool:
        """Whether the file now is the file then: the same bytes, whatever its time says."""
        if self.digest:
            return self.digest == digest
        return (self.size, self.mtime_ns) == (info.size, info.mtime_ns)


class FileState:
    """One for a session; keys are real paths. Keeps the `most` files used last."""

    def __init__(self, most: int = MOST_FILES) -> None:
        self._most = most
        self._files: OrderedDict[str, Seen] = OrderedDict()

    def get(self, path: str) -> Seen | None:
        """What was seen of the file, or None."""
        seen = self._files.get(path)
        if seen is not None:
            self._files.move_to_end(path)
        return seen

    def read(self, path: str, digest: str, info: FileInfo, shown: tuple[int, int]) -> None:
        """A Read has shown (offset, limit) of this version."""
        old = self._files.get(path)
        ranges: tuple[tuple[int, int], ...] = ()
        if old is not None and old.is_version(digest, info):
            digest = digest or old.digest
            ranges = tuple(each for each in old.ranges if each != shown)
        self._put(path, _seen(digest, info, (*ranges, shown)[-_MOST_RANGES:]))

    def written(self, path: str, digest: str, info: FileInfo) -> None:
        """The file has been written by a tool; the model knows this version without having been shown it."""
        self._put(path, _seen(digest, info))

    def forget_views(self) -> None:
        """What was shown is no longer in the conversation (compaction): files stay known, and are shown again."""
        for path, seen in self._files.items():
            self._files[path] = replace(seen, ranges=())

    def _put(self, path: str, seen: Seen) -> None:
        self._files[path] = seen
        self._files.move_to_end(path)
        while len(self._files) > self._most:
            self._files.popitem(last=False)


def _seen(digest: str, info: FileInfo, ranges: tuple[tuple[int, int], ...] = ()) -> Seen:
    return Seen(digest, info.size, info.mtime_ns, ranges, info.ctime_ns, info.inode)
