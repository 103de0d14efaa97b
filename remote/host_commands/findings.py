"""One finding of the doctor."""

from __future__ import annotations

import os

OK, WARN, BLOCK, INFO = "ok", "warn", "block", "info"


class Finding:
    """`state` is ok, warn (works, but not as well as it could), block (no session will run) or info; `found` is the evidence,
    `fix` the one thing to do, "" when there is none."""

    def __init__(self, name: str, state: str, found: str, fix: str = "") -> None:
        self.name = name
        self.state = state
        self.found = found
        self.fix = fix


def said_by(argv: list[str], seconds: float = 5.0) -> str:
    """The first line a program prints, "" when it fails, prints nothing, or takes too long."""
    import subprocess

    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds, check=False
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout[:2000].decode("utf-8", "replace").partition("\n")[0].strip() if done.returncode == 0 else ""


def text_of(path: str, most: int = 65536) -> str:
    """The start of a file, "" when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def size_text(size: float) -> str:
    """`3.1G`, `26M`, `512K`."""
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return "%.3g%s" % (size / unit, letter)
    return "%d bytes" % size
