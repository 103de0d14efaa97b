"""The supervisor of one command: a process that adopts everything the command starts, and can end all of it.

It is the parent of the command and the subreaper of what the command starts. So a process that forks twice, leaves its
session and empties its environment is still a descendant of this one. The worker tells it a signal as one byte, and
hears the end of the command and, when the socket is closed, the end of all it has started.

This module runs in the zygote.
"""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Iterable
    from typing import NoReturn
else:
    import _signal  # without the enums of `signal`, whose import takes long

_TERM, _KILL = 15, 9
_AGAIN_MS = 10
_MAX_NAMED = 8
_MAX_ROUNDS = 100
_ENVIRONMENT = 1 << 20


def supervise(control: int, command: int, adopts: bool, bounded: bool, mark: bytes) -> NoReturn:
    """Serve the worker at the other end of `control` until nothing of the command lives. If the kernel does not let
    this process adopt others, the command's process group stands for what it has started. If the signals of this
    process are `bounded`, one `kill(-1)` reaches everything below it, and nothing that forks meanwhile escapes. If the
    worker is killed, end what has not the `mark` (`NAME=value`) in its environment, as nobody could find it later, and
    leave the rest to the next worker. With the mark b"", end all."""
    try:
        _Supervisor(control, command, adopts, bounded, mark).serve()
    finally:
        os._exit(0)


class _Supervisor:
    def __init__(self, control: int, command: int, adopts: bool, bounded: bool, mark: bytes) -> None:
        self._control = control
        self._command = command
        self._adopts = adopts
        self._bounded = bounded
        self._mark = mark
        self._killing = False
        self._ended = False

    def serve(self) -> None:
        awake, wakes = os.pipe()
        os.set_blocking(awake, False)
        os.set_blocking(wakes, False)
        _signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda number, frame: None)
        for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):  # as when the host goes down
            _signal.signal(number, _signal.SIG_IGN)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(awake, select.POLLIN)
        while self._lives():
            if self._killing:
                self._send(_KILL)
                if self._ended and not self._adopts:
                    return  # the group may have zombies that nobody reaps
            for ready, _ in poll.poll(_AGAIN_MS if self._killing or not self._adopts else None):
                if ready == awake:
                    os.read(awake, 4096)
                elif not self._obey():
                    return

    def _lives(self) -> bool:
        """Reap what has ended, and tell the worker about the command. Return whether anything is left."""
        told = b""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                left = not self._adopts and _group_lives(self._command)
                break
            if not pid:
                left = True
                break
            if pid == self._command:
                told = status.to_bytes(4, "little")
        if told:
            self._ended = True
            me = os.getpid()  # a look may miss a process that is given to this one meanwhile
            pids = (descendants(me) or descendants(me)) if left else []
            told += b"".join(each.to_bytes(4, "little") for each in [len(pids[:_MAX_NAMED]), *pids[:_MAX_NAMED]])
            try:
                os.write(self._control, told)
            except OSError:
                pass  # the worker has ended, which `_obey` sees
        return left

    def _obey(self) -> bool:
        """Do what the worker says. Return False if it has ended."""
        try:
            said = os.read(self._control, 64)
        except OSError:
            said = b""
        if not said and self._bounded and not self._mark:
            self._send(_KILL)
            return False
        if not said:
            for _ in range(_MAX_ROUNDS):  # a process may start another one between being listed and being killed
                lost = [pid for pid in descendants(os.getpid()) if not _has_mark(pid, self._mark)]
                send(lost, _KILL)
                if not lost:
                    break
            return False
        if _KILL in said:
            self._killing = True
        else:
            self._send(_TERM)
        return True

    def _send(self, number: int) -> None:
        if self._bounded:
            send([-1], number)
            return
        send(descendants(os.getpid()), number)
        if not self._adopts:
            try:
                os.killpg(self._command, number)
            except OSError:
                pass  # none of the group is left
            names = os.listdir("/proc") if os.path.isdir("/proc") else []
            send([int(name) for name in names if name.isdigit() and _has_mark(int(name), self._mark)], number)


def descendants(top: int) -> list[int]:
    """Return the processes below this one; none where there is no /proc."""
    try:
        below = _Children() if os.path.exists("/proc/self/task/%d/children" % os.getpid()) else _all_parents()
    except OSError:
        return []
    found = [top]
    for pid in found:
        found += below.get(pid, ())
    return found[1:]


class _Children:
    """The children of processes, as the kernel tells them: without a look at any other process."""

    def get(self, pid: int, default: tuple[int, ...]) -> list[int]:
        found: list[int] = []
        try:
            for task in os.listdir("/proc/%d/task" % pid):
                with open("/proc/%d/task/%s/children" % (pid, task), "rb", 0) as file:
                    found += map(int, file.readall().split())
        except OSError:
            pass  # it has ended
        return found


def _all_parents() -> dict[int, list[int]]:
    """Return the children of all processes. Raise OSError."""
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb", 0) as file:
                    fields = file.read(1024).rpartition(b")")[2].split(None, 2)
                below.setdefault(int(fields[1]), []).append(int(name))
            except (OSError, IndexError, ValueError):
                pass  # it has ended
    return below


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass  # it has ended, or belongs to another user, as after sudo


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        with open("/proc/%d/environ" % pid, "rb", 0) as file:
            return bool(mark) and mark in file.read(_ENVIRONMENT).split(b"\0")
    except OSError:
        return False
