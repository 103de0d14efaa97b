"""The half on the host: a program that carries out one order of the laptop."""

from __future__ import annotations

import json
import os
import select
import stat
import sys
import threading
import time

from .copy_channel import MAX_PIECE, CannotCopy, CopyChannel, CopyProgress, OtherEndFailed, StreamEnded, write_all
from .receiver import Receiver
from .sender import Sender

NO_INPUT_STATUS = 96
BEAT_S = 5.0


def failure(error: Exception) -> dict[str, object]:
    if isinstance(error, OSError):
        path = error.filename if isinstance(error.filename, str) else ""
        return {"path": path[:4096], "why": error.strerror or type(error).__name__, "code": error.errno or 0}
    if isinstance(error, CannotCopy):
        return {"path": error.path[:4096], "why": error.why, "code": 0}
    return {"path": "", "why": f"{type(error).__name__}: {error}"[:1000], "code": 0}


def serve(marker: str, *, wait: bool) -> None:
    """Say that the program runs, read one order from stdin, and carry it out. With `wait`, a byte comes first."""
    for fd in (0, 1):
        os.set_blocking(fd, True)  # a start-up file may have changed it
    if wait and not os.read(0, 1):
        sys.exit(NO_INPUT_STATUS)
    closed = _input_is_closed()
    write_all(1, f"\n{marker} {json.dumps({'input': not closed})}\n".encode())
    if closed:
        return
    channel = CopyChannel(lambda: os.read(0, MAX_PIECE), lambda data: write_all(1, data))
    threading.Thread(target=_beat, args=(channel,), daemon=True).start()
    try:
        order = channel.message("get", "put")
        if order["is"] == "get":
            Sender(channel, CopyProgress()).send(order.text("path"))
        else:
            Receiver(channel, CopyProgress()).receive(order.text("path"), order.text("name"))
    except (StreamEnded, OtherEndFailed):
        return
    except Exception as error:  # noqa: BLE001 - the laptop shows it
        channel.say("failed", **failure(error))
        while os.read(0, 65536):  # the laptop may still be writing; it closes the stream once it has read this
            pass


def _beat(channel: CopyChannel) -> None:
    try:
        while True:
            time.sleep(BEAT_S)
            channel.alive()
    except StreamEnded:
        return


def _input_is_closed() -> bool:
    try:
        if stat.S_ISREG(os.fstat(0).st_mode):
            return True
        return not os.isatty(0) and bool(select.select([0], [], [], 0)[0])
    except OSError:
        return True
