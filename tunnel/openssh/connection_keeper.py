"""Keep one connection: start the ssh that logs in, and end it when its time is over, this machine sleeps, or its screen
is locked. A program of its own (`python -I -S`), standard library only, without any credential. The process that ccb
starts, whose end ends an unfinished login, ends when the login is done; a child keeps the connection. SIGTERM ends it.
SIGUSR1, time, sleep and lock only stop the sharing: what runs on it goes on."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

Facts = dict[str, object]
TAKEN = 98  # the exit code if another keeper has the record
_SLEPT_S = 2.0  # sleep of this many seconds ends a kept connection
_TICK_S = 5.0  # how often the clocks are looked at
_LOGIN_TICK_S = 0.02
_STOP_S = 1.0
_LOGGED_IN = b"in"
ENDING_WITH_STDIN = (
    'exec 3<&0; "$@" </dev/null 3<&- & p=$!; (cat <&3; kill "$p") >/dev/null 2>&1 & w=$!; exec 3<&-;'
    ' wait "$p"; s=$?; kill "$w" 2>/dev/null; exit "$s"'
)
"""Runs ssh, and ends it when stdin ends: whoever started it may be killed. ControlPersist would do that too, after a
minute, but it closes the stderr of jump hosts and ProxyCommands, which they use to say where to log in."""

_ENDS_SHARING = (
    b"org.freedesktop.login1.Session.Lock ",
    b"'LockedHint': <true>",
    b"org.freedesktop.login1.Manager.PrepareForSleep (true",
)
"""What `gdbus monitor` prints when the screen is locked, or this machine goes to sleep."""


def slept_s() -> float:
    """Return the seconds that this machine has slept so far; 0 where that is not known."""
    boot, uptime = getattr(time, "CLOCK_BOOTTIME", None), getattr(time, "CLOCK_UPTIME_RAW", None)
    if boot is not None:
        return time.clock_gettime(boot) - time.clock_gettime(time.CLOCK_MONOTONIC)
    if uptime is not None:
        return time.clock_gettime(time.CLOCK_MONOTONIC) - time.clock_gettime(uptime)
    return 0.0


def has_slept(before: float) -> bool:
    """Return whether this machine has slept since `slept_s` was `before`."""
    return slept_s() - before >= _SLEPT_S


def _locked(record: Path) -> int:
    """Return the open file that tells others of a kept connection. Raise OSError if another keeper has it."""
    fd = os.open(record, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if not os.fstat(fd).st_nlink:
        raise FileExistsError(record)  # its keeper has just removed it
    return fd


class Keeper:
    """Keeps the connection that the ssh in `words` makes at `socket`, for `seconds` after its login. `record` is the
    open file that tells others of it, at `path`."""

    def __init__(self, socket: Path, path: Path, record: int, seconds: float, about: Facts, words: list[str]) -> None:
        self._socket = socket
        self._path = path
        self._record = record
        socket.unlink(missing_ok=True)  # of a keeper that was killed
        self._seconds = seconds
        self._about = about
        self._ssh = words[0]
        null = subprocess.DEVNULL
        argv = ["/bin/sh", "-c", ENDING_WITH_STDIN, "sh", *words]
        self._shell = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=null, stderr=subprocess.PIPE)
        self._desktop: subprocess.Popen[bytes] | None = None
        self._slept = slept_s()
        self._until: float | None = None
        self._sharing = True
        self._over = False

    def keep(self, signals: int) -> int:
        """Keep the connection to its end. Return the exit code of ssh. `signals` gives a byte for each signal."""
        assert self._shell.stderr is not None
        with selectors.DefaultSelector() as ready:
            ready.register(0, selectors.EVENT_READ, self._parent_ended)
            ready.register(self._shell.stderr, selectors.EVENT_READ, _pass_on)
            ready.register(signals, selectors.EVENT_READ, self._signalled)
            while self._shell.poll() is None and not self._over:
                for key, _ in ready.select(_LOGIN_TICK_S if self._until is None else _TICK_S):
                    data = os.read(key.fd, 65536)
                    key.data(data)
                    if not data:
                        ready.unregister(key.fileobj)
                if self._until is None and self._socket.exists():
                    self._logged_in(ready)
                if self._until is not None and (time.monotonic() >= self._until or has_slept(self._slept)):
                    self._stop_sharing()
        return self._shell.returncode or 0

    def end(self) -> None:
        self._remove_record()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGKILL if self._over else signal.SIGTERM)

    def _logged_in(self, ready: selectors.BaseSelector) -> None:
        self._until = time.monotonic() + self._seconds
        times = {"pid": os.getpid(), "until": time.time() + self._seconds, "slept": self._slept}
        os.ftruncate(self._record, 0)
        os.pwrite(self._record, json.dumps({**self._about, **times}).encode(), 0)
        os.write(1, _LOGGED_IN)
        gdbus = shutil.which("gdbus")
        if gdbus is not None:
            words = [gdbus, "monitor", "--system", "--dest", "org.freedesktop.login1"]
            null = subprocess.DEVNULL
            self._desktop = subprocess.Popen(words, stdin=null, stdout=subprocess.PIPE, stderr=null)
            assert self._desktop.stdout is not None
            ready.register(self._desktop.stdout, selectors.EVENT_READ, self._desktop_said)

    def _parent_ended(self, data: bytes) -> None:
        self._over = self._over or (self._until is None and not self._socket.exists())

    def _signalled(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            self._over = True
        elif signal.SIGUSR1 in numbers:
            self._stop_sharing()

    def _desktop_said(self, data: bytes) -> None:
        if not data and self._desktop is not None:
            self._desktop.wait()  # there is no bus to listen to
        if any(sign in data for sign in _ENDS_SHARING):
            self._stop_sharing()

    def _stop_sharing(self) -> None:
        if not self._sharing:
            return
        self._sharing = False
        null = subprocess.DEVNULL
        words = [self._ssh, "-F", "none", "-S", str(self._socket).replace("%", "%%"), "-O", "stop", "--", "host"]
        try:
            stopped = subprocess.run(words, stdin=null, stdout=null, stderr=null, timeout=_STOP_S, check=False)
            self._over = self._over or stopped.returncode != 0
        except (OSError, subprocess.TimeoutExpired):
            self._over = True
        self._remove_record()

    def _remove_record(self) -> None:
        with contextlib.suppress(OSError):
            if os.fstat(self._record).st_nlink:
                self._socket.unlink(missing_ok=True)
                self._path.unlink()
            fcntl.flock(self._record, fcntl.LOCK_UN)


def _pass_on(data: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(2, data)


def main() -> int:
    os.umask(0o077)
    alive, parent = os.pipe()
    report, done = os.pipe()
    child = os.fork()
    if child:
        os.close(alive)
        os.close(done)
        return _await_login(child, report)
    os.setsid()
    for ours, place in ((alive, 0), (done, 1)):
        os.dup2(ours, place)
        os.close(ours)
    os.close(parent)
    os.close(report)
    return _keep()


def _await_login(child: int, report: int) -> int:
    with selectors.DefaultSelector() as ready:
        for fd in (0, report):
            ready.register(fd, selectors.EVENT_READ)
        while report not in [key.fd for key, _ in ready.select()]:
            if not os.read(0, 1):
                return 1  # which ends the pipe that is the child's stdin
    if os.read(report, len(_LOGGED_IN)):
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF


def _keep() -> int:
    socket, record, seconds, about, *words = sys.argv[1:]
    signals, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        locked = _locked(Path(record))
    except OSError:
        return TAKEN
    keeper = Keeper(Path(socket), Path(record), locked, float(seconds), json.loads(about), words)
    try:
        return keeper.keep(signals)
    finally:
        keeper.end()


if __name__ == "__main__":
    sys.exit(main())
