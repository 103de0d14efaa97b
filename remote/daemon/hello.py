"""Hello, written before the agent is imported: a frame by hand, so that it does not wait for anything."""

from __future__ import annotations

import json
import os
import socket
import sys

PROTOCOL = 1  # as in ccb.tunnel.wire.frames, which is not imported on the way to hello; a test compares them
CAPABILITIES = ["replay", "viewers", "inband_calls", "interrupt_receipt_v1", "snapshot"]


def hello_frame(facts: dict[str, object], *, epoch: int, seq: int, state: str, driver: str) -> dict[str, object]:
    """The hello of a session. `facts` are bundle, session, cwd, storage and notes; in memory also `summary`, for the
    host's `ps`, which elsewhere reads a file."""
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
    """Greet the first client of a daemon that has just started. `state_directory` is "" for a session in memory."""
    epoch, driver = read_lease(state_directory)
    journal = os.path.join(state_directory, "journal.jsonl")
    frame = hello_frame(
        facts,
        epoch=epoch,
        driver=driver,
        seq=_last_seq(journal) if state_directory else 0,
        state="idle",
    )
    client.sendall(json.dumps(frame).encode() + b"\n")


def read_lease(state_directory: str) -> tuple[int, str]:
    """The highest epoch ever granted in this session, and who holds it: "" when that driver has left."""
    if not state_directory:
        return 0, ""
    try:
        with open(os.path.join(state_directory, "epoch"), encoding="utf-8") as file:
            epoch, _, driver = file.read().strip().partition(" ")
        return int(epoch or 0), driver
    except (OSError, ValueError):
        return 0, ""


def _last_seq(journal: str) -> int:
    """The number of the last whole record; only the end of the file is read, unless the last record is huge."""
    try:
        with open(journal, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            span = 65536
            while True:
                file.seek(max(0, size - span))
                lines = file.read().split(b"\n")[:-1]
                for line in reversed(lines if size <= span else lines[1:]):
                    try:
                        return int(json.loads(line)["seq"])
                    except (ValueError, KeyError, TypeError):
                        continue
                if span >= size:
                    return 0
                span *= 16
    except OSError:
        return 0
