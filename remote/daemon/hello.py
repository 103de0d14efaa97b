"""The hello of a daemon. It is built by hand and sent before the agent is imported, so that the laptop does not wait
for the import."""

from __future__ import annotations

import json
import os
import socket
import sys

PROTOCOL = 1  # the same as in ccb.tunnel.wire.frames, which takes long to import; a test compares the two
CAPABILITIES = [
    *("replay", "viewers", "inband_calls", "interrupt_receipt_v1", "snapshot", "sandbox", "names", "shell_command"),
    *("move_async_message", "steer", "packed"),
]


def hello_frame(facts: dict[str, object], *, epoch: int, seq: int, state: str, driver: str) -> dict[str, object]:
    """Return the hello of a session. `facts` are bundle, session, cwd, storage and notes. For a session in memory they
    include `summary`, because `ccb ps` has no file to read it from."""
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
    """Send hello to the first client of a daemon that has just started. `state_directory` is "" for a session in
    memory."""
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
    """Return the highest epoch ever granted in this session, and the name of its driver, "" when the driver has
    left."""
    if not state_directory:
        return 0, ""
    try:
        with open(os.path.join(state_directory, "epoch"), encoding="utf-8") as file:
            epoch, _, driver = file.read().strip().partition(" ")
        return int(epoch or 0), driver
    except (OSError, ValueError):
        return 0, ""


def _last_seq(journal: str) -> int:
    """Return the number of the last whole record. Only the end of the file is read, unless the last record is huge."""
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
