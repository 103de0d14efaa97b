"""Finds out which cage holds on this machine, by trying it in a child of the zygote.

This module runs in the zygote.
"""

from __future__ import annotations

import _socket
import os

from . import landlock
from .cage import EMPTY, CageRequest, enter, filter_code
from .syscalls import Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable


def probe(kernel: Kernel, most: int, temporary: bytes) -> dict[str, object]:
    """Return which cages hold: `abi`, the version of Landlock that they use (0: none, at most `most`), whether
    `namespaces` can replace it, whether there is a cage for the `workspace`, and `why` not. `temporary` is an empty
    directory."""
    try:
        abi = min(landlock.version(kernel), landlock.NEWEST_ABI, most)
        why = "" if abi > 0 else "the kernel offers no Landlock"
    except OSError as error:
        abi, why = 0, "the kernel offers no Landlock (%s)" % error.strerror
    if abi > 0:
        why = _in_child(lambda: _try(kernel, temporary, {"abi": abi}))
    if abi > 0 and not why:
        why = _in_child(lambda: _try(kernel, temporary, {"abi": abi, "workspace": True}))
        return {"abi": abi, "namespaces": False, "workspace": not why, "why": _with_hint(why)}
    without = _in_child(lambda: _try(kernel, temporary, {"abi": 0}))
    reasons = "%s, and no namespaces (%s)" % (why, _with_hint(without)) if without else why
    return {"abi": 0, "namespaces": not without, "workspace": False, "why": reasons}


def _try(kernel: Kernel, temporary: bytes, more: dict[str, object]) -> str:
    """Enter a cage in which only a temporary directory may be used. Return how it does not hold, "" if it does."""
    request = CageRequest({**EMPTY, "temporary": temporary, **more})
    enter(kernel, request, filter_code(kernel, request))
    outside = os.path.dirname(temporary)
    if _works(lambda: os.mkdir(os.path.join(outside, b"made-by-a-probe"))):
        return "the cage does not stop writing here"
    if _works(lambda: _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM).close()):
        return "the cage does not stop sockets here"
    if temporary and not _works(lambda: os.rmdir(_made(os.path.join(temporary, b"made-by-a-probe")))):
        return "the cage stops writing where it must not"
    return ""


def _made(path: bytes) -> bytes:
    os.mkdir(path)
    return path


_HINTS = (
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor restricts user namespaces"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "the system forbids user namespaces"),
    ("/proc/sys/user/max_user_namespaces", "0", "the system forbids user namespaces"),
)


def _with_hint(why: str) -> str:
    """Return why a trial failed, with the setting of the system that probably is the reason."""
    for path, value, meaning in _HINTS if why else ():
        try:
            with open(path, encoding="ascii") as file:
                if file.read().strip() == value:
                    return "%s: %s" % (why, meaning)
        except OSError:
            pass
    return why


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
