"""The findings of `ccb doctor` on the host, and functions that several of its checks share."""

from __future__ import annotations

import os

OK, WARN, BLOCK, INFO = "ok", "warn", "block", "info"


class HostFinding:
    """`state` is ok, warn (works, but not as well as it could), block (no session will run) or info; `found` is the
    evidence, `fix` the one thing to do, "" when there is none."""

    def __init__(self, name: str, state: str, found: str, fix: str = "") -> None:
        self.name = name
        self.state = state
        self.found = found
        self.fix = fix


def text_of(path: str, most: int = 65536) -> str:
    """Return the start of a file; "" when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def size_text(size: float) -> str:
    """Return a size in bytes as a short text: `3.1G`, `26M`, `512K`."""
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return "%.3g%s" % (size / unit, letter)
    return "%d bytes" % size
