"""Open the files of a session so that only their owner can read them, and set up the daemon's log."""

from __future__ import annotations

import logging
import logging.handlers
import os
from io import TextIOWrapper


class _PrivateLog(logging.handlers.RotatingFileHandler):
    """A log of limited size that only its owner can read, whatever the umask is."""

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
    handler = _PrivateLog(path, maxBytes=1024 * 1024, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
