"""The contents that files had before tools changed them, one file for each content, named by its digest."""

from __future__ import annotations

import contextlib
import logging
import os
import zlib

from ..system.regular_files import digest_of
from ..system.replacing import sync_directory

_log = logging.getLogger(__name__)

TOTAL_CAP = 256 << 20
"""Limit of all contents of a session on disk, in bytes, compressed; the ones used longest ago are removed first."""
MAX_CONTENT = 64 << 20
"""Largest content that is read back, in bytes."""


class FileHistory:
    """The directory of the contents, "" for a session in memory. It gets mode 0700 and its files 0600. The methods
    block: call them in a thread."""

    def __init__(self, directory: str, total_cap: int = TOTAL_CAP) -> None:
        self.directory = directory
        self._total_cap = total_cap
        self._total = -1  # bytes on disk; -1: not counted yet
        self._count = 0

    def keep(self, data: bytes) -> str:
        """Keep a content durably. Return why that failed, "" if it did not."""
        if not self.directory:
            return "this session is in memory only"
        path = os.path.join(self.directory, digest_of(data))
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            if os.path.exists(path):
                os.utime(path)
                return ""
            packed = zlib.compress(data, 1)
            if not self._make_room(len(packed), path):
                return "it is larger than the room for the file history"
            self._write(path, packed)
            self._total += len(packed)
        except OSError as error:
            _log.warning("a version of a file could not be kept: %s", error)
            return error.strerror or str(error)
        return ""

    def load(self, digest: str) -> bytes | None:
        """Return the content with this digest, None if it is not kept (any more) or is damaged."""
        if not self.directory or len(digest) != 64 or not digest.isalnum():
            return None
        try:
            with open(os.path.join(self.directory, digest), "rb") as file:
                data = zlib.decompressobj().decompress(file.read(), MAX_CONTENT)
        except (OSError, zlib.error):
            return None
        return data if digest_of(data) == digest else None

    def holds(self, digest: str) -> bool:
        """Return whether the content with this digest is kept."""
        return bool(self.directory) and os.path.exists(os.path.join(self.directory, digest))

    def _write(self, path: str, packed: bytes) -> None:
        self._count += 1
        temporary = os.path.join(self.directory, ".%d-%d-new" % (os.getpid(), self._count))
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(packed)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_directory(self.directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _make_room(self, size: int, wanted: str) -> bool:
        """Remove the contents used longest ago until `size` more bytes fit. Return False if they never will."""
        if size > self._total_cap:
            return False
        if self._total >= 0 and self._total + size <= self._total_cap:
            return True
        with os.scandir(self.directory) as found:
            kept = sorted((each.stat().st_mtime_ns, each.stat().st_size, each.path) for each in found)
        self._total = sum(length for _, length, _ in kept)
        for _, length, path in kept:
            if self._total + size <= self._total_cap:
                break
            if path != wanted:
                os.unlink(path)
                self._total -= length
        return True
