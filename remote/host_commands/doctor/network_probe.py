"""The host's end of the laptop's measurements: round trip, throughput both ways, clocks.

The laptop writes frames on the channel. The host answers `ping` with a report `clock` of the same `n`, and `credit`
with that many bytes of `bulk` reports. It reads `data` and drops it. The report `ready` names a `socket` that the
laptop may connect to, "" when there is none. The measurements end at the end of input, at `stop`, or after SILENCE_S
without a frame.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time

from ...sessions import paths
from ...sessions.registry import runtime_directories
from ..report import Reports
from .storage import remove_made

SILENCE_S = 15.0
_BLOCK = 48 * 1024
_MAX_BULK = 64 * 1024 * 1024
_MAX_LINE = 512 * 1024


def serve(reports: Reports, fd: int = 0) -> None:
    """Answer the laptop's frames until it ends the measurements."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        path = directory = ""
        existed = [each for each in runtime_directories() if os.path.isdir(each)]
        try:
            directory, _ = paths.runtime_directory("0" * 36)
            listener.bind(os.path.join(directory, "doctor-%d.sock" % os.getpid()))
            path = os.path.join(directory, "doctor-%d.sock" % os.getpid())
            os.chmod(path, 0o600)
            listener.listen(1)
        except (OSError, paths.NoPlace):
            pass  # the laptop gets no socket to try
        try:
            reports.report("ready", {"socket": path})
            _serve(reports, fd)
        finally:
            if path:
                with contextlib.suppress(OSError):
                    os.unlink(path)
            if directory and directory not in existed:
                remove_made(directory)


def _serve(reports: Reports, fd: int) -> None:
    pending = b""
    while select.select([fd], [], [], SILENCE_S)[0]:
        try:
            data = os.read(fd, 256 * 1024)
        except OSError:
            return
        *lines, pending = (pending + data).split(b"\n")
        if not data or len(pending) > _MAX_LINE or not all(_answer(line, reports) for line in lines):
            return


def _answer(line: bytes, reports: Reports) -> bool:
    """Answer one frame. Return False for the frame that ends the measurements."""
    if line.startswith(b'{"t":"data"'):
        return True
    try:
        frame = json.loads(line)
        kind = frame.get("t")
        if kind == "ping":
            reports.report("clock", {"n": int(frame["n"]), "now": time.time()})
        elif kind == "credit":
            left = min(_MAX_BULK, int(frame["bytes"]))
            while left > 0:
                reports.report("bulk", {"x": _noise(min(left, _BLOCK))})
                left -= _BLOCK
        return bool(kind != "stop")
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _noise(size: int) -> str:
    """Return a text of `size` characters that compression can shrink by half at most."""
    return os.urandom((size + 1) // 2).hex()[:size]
