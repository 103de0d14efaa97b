"""The log of a daemon, and how the other files of its session are opened."""

from __future__ import annotations

import logging
import logging.handlers
import os
from io import TextIOWrapper


class _PrivateLog(logging.handlers.RotatingFileHandler):
    """Bounded, and readable for its owner only, whatever the umask is."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=private_file)


def private_file(path: str, flags: int) -> int:
    """Opener for files of the session."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def log_to(path: str) -> None:
    """Log everything from INFO on to this file; nothing anywhere when there is none."""
    root = logging.getLogger()
    if not path:
        root.addHandler(logging.NullHandler())
        return
    handler = _PrivateLog(path, maxBytes=1024 * 1024, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
