"""The frames that a host command writes to the channel."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ..sessions.refusal import HostRefusal

if TYPE_CHECKING:
    from .findings import HostFinding

Json = dict[str, Any]


class Reports:
    """Sends reports to the laptop. When the laptop has gone, nothing more is written and the command goes on."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._gone = False

    def session(self, body: Json) -> None:
        self._send({"t": "report", "kind": "session", "body": body})

    def log(self, source: str, when: str, text: str) -> None:
        self._send({"t": "report", "kind": "log", "body": {"source": source, "when": when, "text": text}})

    def stopped(self, session: str, pid: int, how: str) -> None:
        self._send({"t": "report", "kind": "stopped", "body": {"session": session, "pid": pid, "how": how}})

    def ended(self, session: str, pid: int, name: str, why: str) -> None:
        body = {"session": session, "pid": pid, "what": name, "why": why}
        self._send({"t": "report", "kind": "ended", "body": body})

    def removed(self, path: str, what: str, size: int, why: str) -> None:
        body = {"path": path, "what": what, "bytes": size, "why": why}
        self._send({"t": "report", "kind": "removed", "body": body})

    def kept(self, path: str, why: str) -> None:
        self._send({"t": "report", "kind": "kept", "body": {"path": path, "why": why}})

    def check(self, found: HostFinding) -> None:
        body = {"name": found.name, "state": found.state, "found": found.found, "fix": found.fix}
        self.report("check", body)

    def report(self, kind: str, body: Json) -> None:
        self._send({"t": "report", "kind": kind, "body": body})

    def refused(self, refusal: HostRefusal) -> None:
        frame = {"t": "refused", "code": refusal.code, "message": refusal.message, "data": refusal.data}
        self._send(frame)

    def bye(self) -> None:
        self._send({"t": "bye", "reason": ""})

    def _send(self, frame: Json) -> None:
        data = json.dumps(frame).encode("ascii") + b"\n"
        try:
            while data and not self._gone:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self._gone = True
