"""Finds out which cage holds on this machine, by trying it in a child of the zygote.

This module runs in the zygote.
"""

from __future__ import annotations

import _socket
import os

from . import landlock
from .cage import EMPTY, Request, enter
from .syscalls import Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable


def probe(kernel: Kernel, most: int) -> dict[str, object]:
    """Return the ABI of Landlock that cages can use, at most `most`. It is 0, with the reason, if no cage holds."""
    try:
        abi = min(landlock.version(kernel), landlock.NEWEST_ABI, most)
    except OSError as error:
        return {"abi": 0, "why": "the kernel offers no Landlock (%s)" % error.strerror}
    if abi < 1:
        return {"abi": 0, "why": "the kernel offers no Landlock"}
    why = _in_child(lambda: _try({**EMPTY, "abi": abi}, kernel))
    return {"abi": 0 if why else abi, "why": why}


def _try(fields: dict[str, object], kernel: Kernel) -> str:
    """Enter a cage in which nothing may be opened. Return what is possible in it all the same, "" if nothing is."""
    enter(kernel, Request(fields))
    if _works(lambda: os.close(os.open("/", os.O_RDONLY))):
        return "the cage does not stop files here"
    if _works(lambda: _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM).close()):
        return "the cage does not stop sockets here"
    return ""


def _works(attempt: Callable[[], None]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def _in_child(trial: Callable[[], str]) -> str:
    """Make a trial in a child of this process. Return what it says, or why it failed; "" is success."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                said = trial()
            except OSError as error:
                said = "%s: %s" % (error.filename or "the cage", error.strerror)
            os.write(writer, b"+" + said.encode("utf-8", "replace"))
        finally:
            os._exit(0)
    os.close(writer)
    answer = os.read(reader, 4096)
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    return answer[1:].decode() if answer[:1] == b"+" else "a trial of the cage ended with status %d" % status
