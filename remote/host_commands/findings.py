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


def said_by(argv: list[str], seconds: float = 5.0, *, any_status: bool = False) -> str:
    """Run a program and return the first line of its output. Return "" when it fails (unless `any_status`), prints
    nothing, or takes more than `seconds`. Processes that it leaves behind are killed."""
    import signal
    import subprocess

    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    out = b""
    try:
        out = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.kill()
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            pass
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    good = process.returncode == 0 or (any_status and process.returncode > 0)
    return out[:2000].decode("utf-8", "replace").strip().partition("\n")[0].strip() if good else ""


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
