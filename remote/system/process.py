"""Commands of the worker: each runs in a session of its own, and is killed with everything it has started."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Callable

from ccb.tunnel.wire.process_tree import send

from ..sandbox.running import RunningCommand, name_of
from .deadline import in_thread, to_its_end, within

if TYPE_CHECKING:
    from ..sandbox.cage_rules import CageRules
    from ..sandbox.cage_server import CageServer

_log = logging.getLogger(__name__)

MARK = "CCB_MARK"  # variable with the mark that every child inherits: `<token of the session>.<token of the call>`
TERM_GRACE = 0.1  # seconds between SIGTERM and SIGKILL; an interrupt takes effect within 200 ms
_KILL_WAIT = 1.0  # seconds for SIGKILL to take effect; do not wait longer for a process that is stuck in the kernel
# Limits the memory (KiB) and the computing time (seconds) of each program that the worker runs by itself.
LIMITED = "ulimit -d 1048576 2>/dev/null; ulimit -t 300 2>/dev/null; "

_CHUNK = 65536
_READS_AT_ONCE = 4  # chunks taken from a pipe before other work of the event loop gets its turn
_DRAIN = 0.1  # seconds to wait for more output when the process has ended but another one still holds its pipe
_OURS = ("ANTHROPIC_", "CCB_", "CLAUDE_", "OPENAI_", "PYTHONSTARTUP")
# Left out: variables that change where `cd` leads and what wildcards match (commands are judged without them), screens
# on which a program would ask, and programs that wait for somebody (SUDO_ASKPASS, KUBE_EDITOR, AWS_PAGER).
_OF_SHELLS = ("BASHOPTS", "CDPATH", "GLOBIGNORE", "OLDPWD", "PWD", "SHELLOPTS")
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "GPG_TTY", "SSH_TTY")
_ASKING = ("EDITOR", "ASKPASS", "PAGER")
# How programs are told that nobody can be asked: an editor leaves its file as it is, and a question fails at once.
# SHLVL=1 keeps bash from taking each command for a login over ssh, and reading the start-up files again.
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


def is_of_ccb(name: str) -> bool:
    return name.startswith(_OURS)


def without_ccb(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not is_of_ccb(name)}


def child_environment(environ: Mapping[str, str], mark: str = "") -> dict[str, str]:
    """Return the environment of child processes, with settings that keep programs from asking anybody."""
    kept = without_ccb(environ).items()
    env = {name: value for name, value in kept if name not in (*_OF_SHELLS, *_SCREENS) and not name.endswith(_ASKING)}
    env.update(_NOBODY)
    if mark:
        env[MARK] = mark
    return env


def attended_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of programs on a person's terminal: that of a new login there."""
    left = (*_OF_SHELLS, *_SCREENS, "SHLVL")
    return {name: value for name, value in without_ccb(environ).items() if name not in left}


def new_mark(session: str = "") -> str:
    token = secrets.token_hex(8)
    return f"{session}.{token}" if session else token


class Process:
    """A running command. `stop` it on every path that does not see `wait` return. A thread calls `finish` after its
    end, and after that of what it left behind; what that returns, and what cannot be killed, is in `notes`."""

    def __init__(
        self,
        command: RunningCommand,
        mark: str,
        on_output: Callable[[bytes], None],
        finish: Callable[[], list[str]] | None = None,
    ) -> None:
        self.pid = command.pid
        self.mark = mark
        self.returncode: int | None = None
        self.notes: list[str] = []
        self._finish_child = finish
        self._finishing: asyncio.Future[None] | None = None
        self._command = command
        self._on_output = on_output
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._gone = asyncio.Event()
        self._drained = asyncio.Event()
        self._pipe = command.stdout.fileno()
        self._control = command.control.fileno()
        os.set_blocking(self._pipe, False)
        self._loop.add_reader(self._pipe, self._read)
        self._loop.add_reader(self._control, self._hear)

    async def wait(self) -> int:
        """Return the exit code once the process has ended and its output has arrived, but not that of what it left
        running, which goes to `on_output` until `discard_output` or `stop`."""
        await self._exited.wait()
        if not (self._drained.is_set() and self._gone.is_set()):
            with contextlib.suppress(asyncio.TimeoutError):
                await within(_DRAIN, asyncio.gather(self._drained.wait(), self._gone.wait()))
        await self._finished()
        assert self.returncode is not None
        return self.returncode

    async def gone(self) -> None:
        await self._gone.wait()
        await self._finished()

    async def stop(self) -> None:
        """End the process and all it started: SIGTERM, then SIGKILL. May be called again for what was left."""
        self._command.send(signal.SIGTERM)
        try:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(TERM_GRACE, self._gone.wait())
        finally:
            self._command.send(signal.SIGKILL)
            self._close_pipe()
        with contextlib.suppress(asyncio.TimeoutError):
            await within(_KILL_WAIT, self._gone.wait())
        if not self._gone.is_set():
            self._command.end_supervisor()
            self._settle()
        await self._finished()

    def kill(self) -> None:
        self._command.send(signal.SIGKILL)

    def discard_output(self) -> None:
        """Read and drop all further output, so that no process blocks on writing it."""
        self._on_output = lambda _: None

    def has_leftovers(self) -> bool:
        return self._exited.is_set() and not self._gone.is_set()

    def left(self) -> list[str]:
        """Return what lives on of what the command had started at its end, as `name (pid 1)`; only the first few."""
        return _named(self._command.left)

    def _hear(self) -> None:
        self._command.hear()
        self._settle()

    def _settle(self) -> None:
        command = self._command
        if command.gone and not self._gone.is_set():
            self._loop.remove_reader(self._control)
            command.control.close()
            self._gone.set()
        if command.code is not None:
            later = self._exited.is_set()
            self.returncode = command.code
            self._exited.set()
            again = later and command.gone and bool(command.left or command.is_lost)
            needs = self._finish_child is not None or command.is_lost
            if needs and (again or self._finishing is None):
                self._finishing = asyncio.ensure_future(self._take_notes(self._finishing))

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
        self._command.stdout.close()
        self._drained.set()

    async def _finished(self) -> None:
        if self._finishing is not None:
            await asyncio.shield(self._finishing)

    async def _take_notes(self, earlier: asyncio.Future[None] | None) -> None:
        if earlier is not None:
            await earlier
        try:
            if self._command.is_lost:
                left = await in_thread(self._command.end_lost)
                await stop_marked(self.mark)
                names = _named(left)
                if names:
                    self.notes.append(f"cannot be killed, and lives on: {', '.join(names)}")
            if self._finish_child is not None:
                self.notes += await in_thread(self._finish_child)
        except Exception:  # noqa: BLE001 - the top of a task
            _log.exception("process %d could not be finished", self.pid)


def _named(pids: Iterable[int]) -> list[str]:
    return [f"{name} (pid {pid})" for pid in pids if (name := name_of(pid))]


async def started(
    cages: CageServer,
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    on_output: Callable[[bytes], None],
    rules: CageRules | None = None,
    redirect: Sequence[int] = (),
    program: str | None = None,
    *,
    finishes: bool = False,
) -> Process:
    """Start a command, as `CageServer.start` does. When this is cancelled, nothing runs. Raise OSError."""
    loop = asyncio.get_running_loop()
    starting = loop.run_in_executor(None, cages.start, argv, cwd, env, rules, redirect, program)
    try:
        command = await to_its_end(starting)
    except asyncio.CancelledError:
        if starting.exception() is None:
            await Process(starting.result(), env[MARK], on_output, starting.result().finish).stop()
        raise
    return Process(command, env[MARK], on_output, command.finish if finishes else None)


def marked(mark: str) -> list[int]:
    """Return the pids of live processes with this mark, or with one of this session; [] without /proc."""
    if not mark:
        return []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    return [pid for pid in pids if pid != os.getpid() and _belongs(pid, mark)]


def _belongs(pid: int, mark: str) -> bool:
    return f"{mark_in(pid)}.".startswith(f"{mark}.")


def mark_in(pid: int) -> str:
    """Return the mark in the environment of a process, "" for none."""
    try:
        file = os.open(f"/proc/{pid}/environ", os.O_RDONLY)  # of every process: `open` takes twice as long
        try:
            environ = b"\0" + os.read(file, 1 << 20)
        finally:
            os.close(file)
    except OSError:
        return ""
    return environ.partition(f"\0{MARK}=".encode())[2].partition(b"\0")[0].decode("ascii", "replace")


async def stop_marked(mark: str) -> None:
    """End every process that has this mark or a mark of this session, even one that has left its process group."""
    for number, seconds in ((signal.SIGTERM, TERM_GRACE), (signal.SIGKILL, _KILL_WAIT)):
        if await _end_marked(mark, number, seconds):
            return
    _log.warning("processes with mark %s take no SIGKILL: %s", mark, marked(mark))


async def _end_marked(mark: str, number: int, seconds: float) -> bool:
    """Signal what has the mark and what it starts meanwhile. Return whether all have ended in `seconds`. All processes
    are listed again, which takes long on a large host, only when the known ones have ended."""
    deadline = time.monotonic() + seconds
    again = True  # a process may end before it is looked at, and leave an unlisted child: look twice
    while True:
        left = await in_thread(marked, mark)
        if not left and not again:
            return True
        again = bool(left)
        send(left, number)
        while left:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.01)
            left = [pid for pid in left if _belongs(pid, mark)]
