"""The hello of a daemon, built by hand and sent before the agent is imported: the laptop does not wait for that."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

from ..session_store import session_paths

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from ..session_store.node_claim import NodeClaim

PROTOCOL = 1  # the same as in ccb.tunnel.wire.frames, which takes long to import; a test compares the two
CAPABILITIES = [
    *("replay", "viewers", "inband_calls", "interrupt_receipt_v1", "snapshot", "sandbox", "names", "shell_command"),
    *("move_async_message", "steer", "packed", "set_sandbox", "raw_channels", "task_output", "viewer_answers"),
]

LONG_JOURNAL = 1 << 20  # bytes from which on hello brings the last records: reading all takes too long for a screen
_SPAN = 64 * 1024  # bytes of the end of a journal
_MAX_LAST = 32 * 1024  # of the records in hello
_SEEN = ("input", "prompt", "taken", "message", "tool_start", "withdrawn", "rewind", "rewound")


def hello_frame(facts: dict[str, object], *, epoch: int, seq: int, state: str, driver: str) -> dict[str, object]:
    """Return the hello of a session with these `facts`; in memory also `summary`, as `ccb ps` has no file to read."""
    return {
        "t": "hello",
        "protocol": PROTOCOL,
        "pid": os.getpid(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "platform": "%s-%s" % (sys.platform, os.uname().machine),
        "epoch": epoch,
        "seq": seq,
        "state": state,
        "driver": driver,
        "capabilities": CAPABILITIES,
        **facts,
    }


def send_hello(client: socket.socket, facts: dict[str, object], state_directory: str) -> None:
    """Send hello to the first client of a daemon that has just started. In memory, `state_directory` is ""."""
    epoch, driver = read_lease(state_directory)
    journal = os.path.join(state_directory, "journal.jsonl")
    last = _last_records(journal) if state_directory else [{"seq": 0}]
    frame = hello_frame(facts, epoch=epoch, driver=driver, seq=int(last[-1]["seq"]), state="idle")
    if last[0]["seq"]:
        frame["last"] = {"records": _shown(last)}
    client.sendall(json.dumps(frame).encode() + b"\n")


def send_last(client: socket.socket, frame: dict[str, object]) -> None:
    """Tell the first client why the daemon ends before it serves it."""
    try:
        client.settimeout(1)
        client.sendall(json.dumps(frame).encode() + b"\n")
    except OSError:
        pass


def read_lease(state_directory: str) -> tuple[int, str]:
    """Return the highest epoch ever granted in this session, and the name of its driver, "" when it has left."""
    if not state_directory:
        return 0, ""
    try:
        with open(os.path.join(state_directory, "epoch"), encoding="utf-8") as file:
            epoch, _, driver = file.read().strip().partition(" ")
        return int(epoch or 0), driver
    except (OSError, ValueError):
        return 0, ""


def _last_records(journal: str) -> list[dict[str, Any]]:
    """Return the last records of a journal of which only the end is read; of a short one an empty one, and the last."""
    records: list[dict[str, Any]] = []
    try:
        with open(journal, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            span = _SPAN
            while not records:
                file.seek(max(0, size - span))
                lines = file.read().split(b"\n")[:-1]
                for line in reversed(lines if size <= span else lines[1:]):
                    try:
                        record = json.loads(line)
                        record["seq"] = int(record["seq"])
                        records.append(record)
                    except (ValueError, KeyError, TypeError, RecursionError):
                        continue
                    if size < LONG_JOURNAL:
                        break
                if span >= size:
                    break
                span *= 16
    except OSError:
        pass
    none: dict[str, Any] = {"seq": 0}
    return records[::-1] if records and size >= LONG_JOURNAL else [none, *records]


def _shown(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    room = _MAX_LAST
    for record in reversed(records):
        body = record.get("body")
        if record.get("kind") in _SEEN and isinstance(body, dict) and body.get("subtype") != "init":
            room -= len(json.dumps(body))
            if room < 0:
                break
            shown.append({"seq": record["seq"], "kind": record["kind"], "body": body})
    return shown[::-1]


WORKTREES = "/.claude/worktrees/"  # what the path of every worktree of a session holds


# The signals that end a daemon. They are blocked while it starts, except while it waits for its first client: what a
# handler raises amid an import can be swallowed, and amid the use of a lock it can leave the lock held.
ENDING = (signal.SIGTERM, signal.SIGINT)


class DaemonLaunch:
    """What a daemon receives from the process that forks it. (No dataclass: that import would delay hello.) `params`
    are those of `main.start`, `locks` the descriptors of lock file and journal (-1: none), `claim` that of the node."""

    def __init__(
        self,
        where: session_paths.SessionPaths,
        facts: dict[str, object],
        params: dict[str, object],
        tree: object,
        listener: socket.socket,
        locks: tuple[int, int],
        claim: NodeClaim,
    ) -> None:
        self.where, self.facts, self.params = where, facts, params
        self.tree, self.listener, self.locks, self.claim = tree, listener, locks, claim

    def text(self, name: str) -> str:
        return str(self.params.get(name) or "")

    def seconds(self, name: str, default: float) -> float:
        value = self.params.get(name)
        return float(value) if isinstance(value, (int, float)) else default
