"""A directory for fetched files that only this user reads, and that goes with the process."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_BYTES = 500 << 20
"""The largest file that is fetched to be looked at, and what stays of earlier ones when another one is fetched."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NoRoom(Exception):
    """Files that may not go hold `size` bytes already."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class PrivateFolder:
    """A directory below `above`, made when the first file needs it. A lock says that its process lives: whatever has
    none is left over from a process that was killed. All methods block."""

    def __init__(self, above: Path) -> None:
        self._above = above
        self._path: Path | None = None
        self._lock = -1

    def remove_left_over(self) -> None:
        """Remove what processes have left that ended without doing so."""
        if not self._above.is_dir():
            return
        with self._alone():
            for each in self._above.iterdir():
                lock = _locked(each)
                if lock >= 0:
                    shutil.rmtree(each, ignore_errors=True)
                    os.close(lock)

    def place_for(self, remote: str, in_use: Collection[Path] = ()) -> Path:
        """Return the directory for one file of the host: the same for the same path, so that a copy goes on there.
        The files that were fetched first go, if there is much, but none in the directories `in_use`. Raise OSError,
        and NoRoom if those hold too much."""
        if self._path is None:
            self._path = self._make()
        place = self._path / hashlib.sha256(os.fsencode(remote)).hexdigest()[:16]
        self._make_room(self._path, place, in_use)
        place.mkdir(mode=0o700, exist_ok=True)
        os.utime(place)
        return place

    def close(self) -> None:
        """Remove all that was fetched."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            os.close(self._lock)
            self._path = None

    def _make(self) -> Path:
        self._above.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._above.chmod(0o700)
        with self._alone():
            path = Path(tempfile.mkdtemp(dir=self._above))  # 0700
            self._lock = _locked(path)
            return path

    def _make_room(self, path: Path, place: Path, in_use: Collection[Path]) -> None:
        """Make room for a file in `place`, where a part of it may be already."""
        others = [each for each in path.iterdir() if each != place]
        sizes = {each: sum(file.stat().st_size for file in each.iterdir()) for each in others}
        for each in sorted(sizes.keys() - set(in_use), key=lambda place: place.stat().st_mtime):
            if sum(sizes.values()) <= MAX_BYTES:
                return
            shutil.rmtree(each, ignore_errors=True)
            del sizes[each]
        if sum(sizes.values()) > MAX_BYTES:
            raise NoRoom(sum(sizes.values()))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from making or removing directories here meanwhile."""
        lock = os.open(self._above, _DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _locked(path: Path) -> int:
    """Lock a directory for as long as the descriptor that is returned is open. -1 if another process has it."""
    try:
        lock = os.open(path, _DIRECTORY)
    except OSError:  # another ccb has removed it, or another user made it
        return -1
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock
    os.close(lock)
    return -1
