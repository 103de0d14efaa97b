"""The parent of one command and the subreaper of what it starts: what forks twice, leaves its session and empties its
environment is still its descendant. The worker sends a signal as one byte, and hears the end of the command and, when
the socket is closed, that of all. Runs in the zygote."""

from __future__ import annotations

import os
import select
import time

from ccb.tunnel.wire.process_tree import descendants, group_lives, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn
else:
    import _signal  # without the enums of `signal`, whose import takes long

_TERM, _KILL = 15, 9
_FAILED = 126
_AGAIN_MS, _MOST_MS = 10, 1000  # between two signals; a process of another user may take none, and live for long
_LAST_S = 5.0  # for what has lost its worker
_MAX_NAMED = 8
END = b"\0"  # what the worker hears last, behind words of four bytes: nothing is left. Else this process was killed
_ENVIRONMENT = 1 << 20


class CommandSupervisor:
    """Serves the worker until nothing of the command lives. Unless it `adopts`, the process group stands for that. If
    its signals are `bounded`, `kill(-1)` reaches everything below it. If the worker is killed, it kills what has no
    `mark` (`NAME=value`), by which the next worker finds the others; with b"", all."""

    def __init__(self, control: int, command: int, adopts: bool, bounded: bool, mark: bytes) -> None:
        self._control = control
        self._command = command  # 0 once its end was told: another process may get its number
        self._group = command  # 0 once another group may have its number
        self._adopts = adopts
        self._bounded = bounded
        self._mark = mark
        self._killing = False

    def run(self) -> NoReturn:
        try:
            self._serve()
        except BaseException:  # noqa: BLE001 - the top of a process
            os._exit(_FAILED)
        self._tell(END)
        os._exit(0)

    def _tell(self, said: bytes) -> None:
        try:
            os.write(self._control, said)
        except OSError:
            pass  # the worker has ended, which `_obey` sees

    def _serve(self) -> None:
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
        pause = _AGAIN_MS
        while self._lives():
            if self._killing:
                self._send(_KILL)
                if not self._command and not self._adopts:
                    return  # the group may have zombies that nobody reaps
            events = poll.poll(pause if self._killing or not self._adopts else None)
            pause = _AGAIN_MS if events else min(2 * pause, _MOST_MS)
            for ready, _ in events:
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
                left = not self._adopts and group_lives(self._group)
                break
            if not pid:
                left = True
                break
            if pid == self._command:
                told = status.to_bytes(4, "little")
        if told:
            self._command = 0
            if self._adopts:
                self._group = 0
            me = os.getpid()  # a look may miss a process that is given to this one meanwhile
            pids = (descendants(me) or descendants(me)) if left else []
            told += b"".join(each.to_bytes(4, "little") for each in [len(pids[:_MAX_NAMED]), *pids[:_MAX_NAMED]])
            self._tell(told)
        return left

    def _obey(self) -> bool:
        try:
            said = os.read(self._control, 64)
        except OSError:
            said = b""
        if not said:
            self._end_unmarked()
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
        pids = descendants(os.getpid())
        send(pids, number)
        if self._group and not (pids and self._adopts):  # without /proc, there are no pids
            try:
                os.killpg(self._group, number)
            except OSError:
                pass  # none of the group is left
        if not self._adopts:
            names = os.listdir("/proc") if os.path.isdir("/proc") else []
            send([int(name) for name in names if name.isdigit() and _has_mark(int(name), self._mark)], number)

    def _end_unmarked(self) -> None:
        if self._bounded and not self._mark:
            self._send(_KILL)
            return
        until = time.monotonic() + _LAST_S
        while self._lives() and time.monotonic() < until:
            lost = [pid for pid in descendants(os.getpid()) if not _has_mark(pid, self._mark)]
            if not lost:
                return
            send(lost, _KILL)
            time.sleep(0.001)  # a process may start another one between being listed and being killed


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        with open("/proc/%d/environ" % pid, "rb", 0) as file:
            return bool(mark) and mark in file.read(_ENVIRONMENT).split(b"\0")
    except OSError:
        return False
