"""What host commands write: report frames, and the findings of the doctor."""

from __future__ import annotations

import json
import os

from ccb.tunnel.wire.frames import Json

from ..session_store.refusal import HostRefusal

OK, WARN, BLOCK, INFO = "ok", "warn", "block", "info"


class HostFinding:
    """`state`: ok, warn, block (no session will run), info; `found`: the evidence; `fix`: the one thing to do."""

    def __init__(self, name: str, state: str, found: str, fix: str = "") -> None:
        self.name, self.state, self.found = name, state, found
        self.fix = fix if state != OK else ""


def text_of(path: str, flags: int = 0, most: int = 65536) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)
        with os.fdopen(fd, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def size_text(size: float) -> str:
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return "%.3g%s" % (size / unit, letter)
    return "%d bytes" % size


class Reports:
    """Sends reports to the laptop. When it has gone, the command goes on unheard."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.gone = False

    def report(self, kind: str, body: Json) -> None:
        self._send({"t": "report", "kind": kind, "body": body})

    def stopped(self, session: str, pid: int, how: str) -> None:
        self.report("stopped", {"session": session, "pid": pid, "how": how})

    def removed(self, path: str, what: str, size: int, why: str) -> None:
        self.report("removed", {"path": path, "what": what, "bytes": size, "why": why})

    def kept(self, path: str, why: str) -> None:
        self.report("kept", {"path": path, "why": why})

    def refused(self, refusal: HostRefusal) -> None:
        self._send({"t": "refused", "code": refusal.code, "message": refusal.message, "data": refusal.data})

    def bye(self) -> None:
        self._send({"t": "bye", "reason": ""})

    def _send(self, frame: Json) -> None:
        data = json.dumps(frame).encode("ascii") + b"\n"
        try:
            while data and not self.gone:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self.gone = True
