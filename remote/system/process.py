"""Child processes of the worker: each runs in a session of its own with empty stdin, and is killed with everything it
started."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Callable, Protocol

from .deadline import within

_log = logging.getLogger(__name__)

MARK = "CCB_MARK"
"""The environment variable with the mark that every child inherits: `<token of the session>.<token of the call>`."""

TERM_GRACE = 0.1  # seconds between SIGTERM and SIGKILL; an interrupt takes effect within 200 ms
_KILL_WAIT = 0.06  # seconds for SIGKILL to take effect; do not wait longer for a process that is stuck in the kernel
_CHUNK = 65536
_READS_AT_ONCE = 4  # chunks taken from a pipe before other work of the event loop gets its turn
_DRAIN = 0.1  # seconds to wait for more output when the process has ended but another one still holds its pipe
_OURS = ("ANTHROPIC_", "CCB_", "CLAUDE_", "OPENAI_", "PYTHONSTARTUP")
_OF_SHELLS = ("BASHOPTS", "CDPATH", "GLOBIGNORE", "OLDPWD", "PWD", "SHELLOPTS")
"""Variables that change where `cd` leads and what wildcards match. Commands are judged without them."""
_ASKING = ("EDITOR", "ASKPASS", "PAGER")
"""The ends of names of programs that wait for somebody: SUDO_ASKPASS, KUBE_EDITOR, AWS_PAGER."""
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "GPG_TTY", "SSH_TTY")
"""Where a program would ask, on a screen that nobody watches for it."""
_NOBODY = {
    **dict.fromkeys(("EDITOR", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "VISUAL"), "true"),
    **dict.fromkeys(("PAGER", "GIT_PAGER"), "cat"),
    **dict.fromkeys(("GCM_INTERACTIVE", "SSH_ASKPASS_REQUIRE"), "never"),
    **dict.fromkeys(("PIP_NO_INPUT", "GH_PROMPT_DISABLED", "POETRY_NO_INTERACTION", "COMPOSER_NO_INTERACTION"), "1"),
    **dict.fromkeys(("GIT_TERMINAL_PROMPT", "TF_INPUT"), "0"),
    "DEBIAN_FRONTEND": "noninteractive",
    "TERM": "dumb",
    "SHLVL": "1",
}
"""How programs are told that nobody can be asked: an editor leaves its file as it is, and a question fails at once.
SHLVL=1 keeps bash from taking each command for a login over ssh: it would read the start-up files again, and their
output would mix with the command's."""
QUIET_SSH = {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}
"""Keeps the ssh of git from asking. It stands above the configuration of git, so it is only for those who have no
command of their own."""


def is_of_ccb(name: str) -> bool:
    """Return whether a variable is one of ccb or of a model provider."""
    return name.startswith(_OURS)


def without_ccb(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of ccb and of model providers."""
    return {name: value for name, value in environ.items() if not is_of_ccb(name)}


def child_environment(environ: Mapping[str, str], mark: str = "") -> dict[str, str]:
    """Return the environment of child processes: the worker's own, without the variables of ccb and of model providers,
    and with settings that keep programs from asking anybody."""
    left_out = (*_OF_SHELLS, *_SCREENS)
    env = {
        name: value
        for name, value in without_ccb(environ).items()
        if name not in left_out and not name.endswith(_ASKING)
    }
    env.update(_NOBODY)
    if "GIT_SSH" not in env:
        env = {**QUIET_SSH, **env}
    if mark:
        env[MARK] = mark
    return env


def new_mark(session: str = "") -> str:
    """Return a new mark, with a session's token in front when one is given."""
    token = secrets.token_hex(8)
    return f"{session}.{token}" if session else token


class RunningChild(Protocol):
    """A process that this one has started: a `subprocess.Popen`, or a caged command."""

    pid: int
    stdout: IO[bytes] | None

    def wait(self) -> int:
        """Wait for its end and reap it. Return the exit code, negative for a signal."""


class Process:
    """A running child. Make it with `start`; `stop` it on every path that does not see `wait` return. A thread calls
    `finish` when the child has ended, and when what it left behind was stopped; what it returns adds to `notes`."""

    def __init__(
        self,
        child: RunningChild,
        mark: str,
        on_output: Callable[[bytes], None],
        finish: Callable[[], list[str]] | None = None,
    ) -> None:
        self.pid = child.pid
        self.mark = mark
        self.returncode: int | None = None
        self.notes: list[str] = []
        self._finish_child = finish
        self._finishing: asyncio.Future[None] | None = None
        self._child = child
        self._on_output = on_output
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._drained = asyncio.Event()
        assert child.stdout is not None
        self._pipe = child.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._loop.add_reader(self._pipe, self._read)
        self._pidfd = _pidfd(self.pid)
        if self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._reap)
        else:
            threading.Thread(target=self._wait_in_thread, name=f"wait-{self.pid}", daemon=True).start()

    async def wait(self) -> int:
        """Wait until the process has ended and its output has arrived. Return the exit code (negative: the number of
        the signal). Do not wait for processes left in the background; their output goes to `on_output` until
        `discard_output` or `stop` is called."""
        await self._exited.wait()
        if not self._drained.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await within(_DRAIN, self._drained.wait())
        await self._finished()
        assert self.returncode is not None
        return self.returncode

    async def stop(self) -> None:
        """Send SIGTERM, then SIGKILL, to the process and everything it started. Return when the process is reaped and
        the others are gone. When cancelled, send SIGKILL at once. May be called again, also after the process has
        ended: then it ends the processes left in the background."""
        left = self.has_leftovers()
        self._signal(signal.SIGTERM)
        gone = False
        try:
            gone = await _until(self._is_gone)
        finally:
            if not gone:
                self._signal(signal.SIGKILL)
            self._close_pipe()
        await self._exited.wait()
        if not gone:
            await _killed(self.mark)
        await self._finished(again=left)

    def kill(self) -> None:
        """Send SIGKILL to the process and everything it started, at once."""
        self._signal(signal.SIGKILL)

    def discard_output(self) -> None:
        """Read and drop all further output, so that no process blocks on writing it."""
        self._on_output = _nothing

    def has_leftovers(self) -> bool:
        """Return whether the process has ended but something that it started still lives: a member of its process
        group, or a process that holds its output open."""
        return self._exited.is_set() and not (self._drained.is_set() and self._group_is_gone())

    def _signal(self, number: int) -> None:
        if not self._exited.is_set() or not self._group_is_gone():
            _send_group(self.pid, number)
        _send_all((pid for pid in marked(self.mark) if pid != self.pid), number)

    def _is_gone(self) -> bool:
        return self._exited.is_set() and self._group_is_gone() and not marked(self.mark)

    def _group_is_gone(self) -> bool:
        """Return whether the process group has no members. Call this only after the leader is reaped. A process that
        has the leader's pid by then is unrelated: the kernel reuses a pid only when no group has that number."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            pass
        except PermissionError:
            return True
        else:
            return True
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return not _has_live_member(self.pid)

    def _read(self) -> None:
        for _ in range(_READS_AT_ONCE):
            try:
                data = os.read(self._pipe, _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._close_pipe()
                return
            try:
                self._on_output(data)
            except Exception:  # noqa: BLE001 - top of a callback: an unread pipe would block the child
                _log.exception("output of process %d could not be taken", self.pid)

    def _close_pipe(self) -> None:
        if self._drained.is_set():
            return
        self._loop.remove_reader(self._pipe)
        assert self._child.stdout is not None
        self._child.stdout.close()
        self._drained.set()

    async def _finished(self, again: bool = False) -> None:
        """Wait until `finish` has returned."""
        if self._finish_child is None:
            return
        if self._finishing is None or again:
            if self._finishing is not None:
                await asyncio.wait({self._finishing})
            self._finishing = asyncio.ensure_future(self._loop.run_in_executor(None, self._take_notes))
        await asyncio.shield(self._finishing)

    def _take_notes(self) -> None:
        assert self._finish_child is not None
        try:
            self.notes += self._finish_child()
        except Exception:  # noqa: BLE001 - the top of a thread
            _log.exception("process %d could not be finished", self.pid)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._finish(self._child.wait())

    def _wait_in_thread(self) -> None:
        code = self._child.wait()
        try:
            self._loop.call_soon_threadsafe(self._finish, code)
        except RuntimeError:
            _log.debug("process %d ended after its event loop", self.pid)

    def _finish(self, code: int) -> None:
        self.returncode = code
        self._exited.set()
        if self._finish_child is not None and self._finishing is None:
            self._finishing = asyncio.ensure_future(self._loop.run_in_executor(None, self._take_notes))


def start(
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    on_output: Callable[[bytes], None],
    mark: str = "",
    finish: Callable[[], list[str]] | None = None,
) -> Process:
    """Start `argv` in its own session with stdin from /dev/null. `on_output` is called in the event loop with stdout
    and stderr, merged in order. `env` is the whole environment (see `child_environment`), `finish` as in Process. Raise
    OSError when the program cannot be started."""
    child = spawn(argv, cwd, {**env, MARK: mark} if mark else env)
    return Process(child, mark, on_output, finish)


def spawn(
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    stderr: int = subprocess.STDOUT,
) -> RunningChild:
    """Start `argv` in its own session with exactly this environment, and return it with a pipe from its stdout."""
    return subprocess.Popen(
        list(argv),
        cwd=cwd,
        env=dict(env),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
        close_fds=True,
        bufsize=0,
    )


def _nothing(data: bytes) -> None:
    """Drop output."""


def marked(mark: str) -> list[int]:
    """Return the pids of the live processes whose environment has this mark, or a mark that begins with this session
    token. Return an empty list where there is no /proc; only the process group is known there."""
    if not mark:
        return []
    wanted = f"{MARK}={mark}".encode()
    own = os.getpid()
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    return [int(name) for name in names if name.isdigit() and int(name) != own and _has_mark(name, wanted)]


def _has_live_member(pgid: int) -> bool:
    """Return whether a group has a live process. Zombies do not count: a container without init never reaps them."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return True
    for name in names:
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read(4096).rsplit(b")", 1)[1].split()
                if int(fields[2]) == pgid and fields[0] not in b"ZX":
                    return True
    return not names


def _has_mark(pid: str, wanted: bytes) -> bool:
    with contextlib.suppress(OSError):
        file = os.open(f"/proc/{pid}/environ", os.O_RDONLY)  # of every process: `open` takes twice as long
        try:
            environ = b"\0" + os.read(file, 1 << 20) + b"\0"
        finally:
            os.close(file)
        return any(b"\0" + wanted + end in environ for end in (b"\0", b"."))
    return False


async def stop_marked(mark: str) -> None:
    """End every process that has this mark or a mark of this session, even one that has left its process group."""
    if not marked(mark) and not marked(mark):  # a process may end before it is looked at, and leave an unlisted child
        return
    _send_all(marked(mark), signal.SIGTERM)
    try:
        await _until(lambda: not marked(mark))
    finally:
        _send_all(marked(mark), signal.SIGKILL)
    await _killed(mark)


async def _until(gone: Callable[[], bool], seconds: float = TERM_GRACE) -> bool:
    """Poll until `gone` returns True. Return whether it did within `seconds`."""
    deadline = time.monotonic() + seconds
    while not gone():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(0.01)
    return True


async def _killed(mark: str) -> None:
    """Send SIGKILL until no process has the mark. One round is not enough: a process may start another one between
    being listed and being killed."""

    def none_left() -> bool:
        left = marked(mark)
        _send_all(left, signal.SIGKILL)
        return not left

    if not await _until(none_left, _KILL_WAIT):
        _log.warning("processes with mark %s take no SIGKILL: %s", mark, marked(mark))


def _pidfd(pid: int) -> int:
    opener: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    if opener is None:
        return -1
    try:
        return opener(pid)
    except OSError:
        return -1


def _send_group(pgid: int, number: int) -> None:
    try:
        os.killpg(pgid, number)
    except (ProcessLookupError, PermissionError):
        _log.debug("process group %d takes no signal %d", pgid, number)


def _send_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            _log.debug("process %d takes no signal %d", pid, number)
