"""Open the files of a session so that only their owner can read them, and set up the daemon's log."""

from __future__ import annotations

import logging
import os
from io import TextIOWrapper

_MAX_LOG = 1024 * 1024


class _PrivateLog(logging.FileHandler):
    """A log of limited size that only its owner can read, whatever the umask is. The one before it is kept. (The
    handlers of the standard library take 3 ms to import.)"""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self.stream is not None and self.stream.tell() > _MAX_LOG:
                os.replace(self.baseFilename, self.baseFilename + ".1")
                self.stream.close()
                self.stream = self._open()
        except OSError:
            self.handleError(record)
        super().emit(record)

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=private_file)


def private_file(path: str, flags: int) -> int:
    """Open a file of a session with mode 0600, without following a link. Use it as `open(…, opener=private_file)`."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def log_to(path: str) -> None:
    """Log messages of level INFO and above to the file at `path`. With "" (a session in memory), log nothing."""
    root = logging.getLogger()
    if not path:
        root.addHandler(logging.NullHandler())
        return
    handler = _PrivateLog(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
