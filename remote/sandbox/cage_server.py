"""Starts commands, in cages and without."""

from __future__ import annotations

import array
import contextlib
import errno
import functools
import importlib.util
import logging
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Callable, cast

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json

from .cage_directories import Placeholders, TemporaryDirectories, mounted_anywhere
from .cage_rules import CageKind, CageRules, found_outside
from .outliving import LIST_SETTINGS, Ask, DirectoryGuard, TooLarge
from .running import RunningCommand

if TYPE_CHECKING:
    from importlib.abc import InspectLoader

_log = logging.getLogger(__name__)

_MODULES = ("ccb.tunnel.wire.process_tree", "syscalls", "landlock", "seccomp", "cage", "supervisor", "zygote")
_BOOT = """
import marshal, os, sys
try:
    import ctypes
except ImportError:  # then there are no cages, but commands without one run
    sys.modules["ctypes"] = type(sys)("ctypes")
def take(left):
    while left:
        data = os.read(0, left)
        if not data:
            sys.exit(1)
        left -= len(data)
        yield data
module = type(sys)
package = sys.modules["kernel"] = module("kernel")
package.__path__ = []
from _frozen_importlib_external import MAGIC_NUMBER
magic, modules = marshal.loads(b"".join(take(int.from_bytes(b"".join(take(4)), "little"))))
for name, code, text in modules:
    full_name = name if "." in name else "kernel." + name
    made = sys.modules[full_name] = module(full_name)
    made.__package__ = "kernel"
    setattr(package, name, made)
    same = magic == MAGIC_NUMBER  # another Python may be in the place of the worker's by now
    exec(marshal.loads(code) if same else compile(text, "<kernel>/" + name + ".py", "exec"), made.__dict__)
sys.modules["kernel.zygote"].main(0)
"""
_ANSWER_S = 20.0
_START_S = 20.0  # from the fork to the program: a home that is mounted when it is used may take long
_LOCK_S = 30.0  # for the start of another command
_MAX_TRIES = 20
_MAX_SETTINGS = 4 << 20
_STOP_FIRST = "a command in the sandbox still runs, so nothing such is kept: stop it first"
_COULD_CHANGE = "a command in the sandbox still runs and could change it later: stop it first (/tasks)"


class CageUnavailable(OSError):
    """The cage cannot be made, so the command was not run."""


class PathVanished(CageUnavailable):
    """A path was removed before it was protected. Look again: it cannot be left out, as the command could make it."""


@dataclass(frozen=True)
class Availability:
    """Which cages hold here, by Landlock (version `abi`), namespaces or "" (`mechanism`); `why` one does not."""

    mechanism: str
    abi: int
    workspace: bool
    why: str = ""


class CageServer:
    """Starts commands, from any thread. Close it at the end. `most_abi` makes the kernel look older, for tests."""

    def __init__(self, most_abi: int = 99) -> None:
        self._most_abi = most_abi
        self._workspace = threading.Lock()  # held before the other one
        self._guard = DirectoryGuard()  # of the directories in which commands in the cage for the workspace have run
        self._unchecked: set[RunningCommand] = set()  # commands in that cage whose end was not looked at
        self._living: set[RunningCommand] = set()  # commands in that cage of which something may live
        self._placeholders = Placeholders()
        self._lock = threading.RLock()
        self._closed = False
        self._zygote: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        # ends the zygote also if nobody closes this server
        self._ending: weakref.finalize[[subprocess.Popen[bytes], socket.socket], CageServer] | None = None
        self.known: Availability | None = None  # what `availability` has returned
        self._directories = TemporaryDirectories()

    def availability(self) -> Availability:
        """Return which cages hold here. The first call starts the zygote, which takes 50 ms."""
        if self.known is not None:  # without the lock, which a start may hold for long
            return self.known
        with self._lock:
            if self._closed:
                return Availability("", 0, False, "the session has ended")
            temporary = self._directories.make()
            try:
                answer = self._ask({"ask": "probe", "abi": self._most_abi, "temporary": os.fsencode(temporary)}, ())
            except OSError as error:
                answer = {"error": str(error)}
            finally:
                self._directories.remove(temporary)
            abi, why = answer.get("abi", 0), str(answer.get("why") or answer.get("error") or "")
            mechanism = "Landlock" if abi else "namespaces" if answer.get("namespaces") else ""
            self.known = Availability(mechanism, abi, bool(answer.get("workspace")), why)
            return self.known

    def start(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        rules: CageRules | None = None,
        redirect: Sequence[int] = (),
        program: str | None = None,
    ) -> RunningCommand:
        """Start `argv` in its own session with its output in a pipe, and stdin from /dev/null or stdin and stderr from
        `redirect`. With rules it is caged, and has a TMPDIR. Raise CageUnavailable, or another OSError."""
        request = _request(argv, cwd, env, program)
        if rules is None:
            try:
                return self._fork(request, redirect, lambda _: self.accept())
            except CageUnavailable as error:
                raise OSError(str(error)) from None
        available = self.availability()
        if rules.kind is CageKind.READ_ONLY:
            if not available.mechanism:
                raise CageUnavailable(f"there is no read-only cage on this host: {available.why}")
            return self._start_caged(request, redirect, rules)
        if not available.workspace:
            raise CageUnavailable(f"there is no workspace cage on this host: {available.why}")
        ask = functools.partial(self._git, env, rules)
        with _held(self._workspace):
            for _ in range(_MAX_TRIES - 1):
                with contextlib.suppress(PathVanished):
                    return self._start_for_workspace(request, redirect, rules, ask)
            return self._start_for_workspace(request, redirect, rules, ask)

    @property
    def watches(self) -> bool:
        """Whether a command has run in the cage for the workspace."""
        return self._guard.watches

    def check(self) -> list[str]:
        """Set aside what commands in the cage for the workspace may not leave behind. Return a line about each file."""
        with _held(self._workspace):
            return self._guard.check(self._placeholders.held)

    def begin_uncaged(self) -> None:
        """Set aside what others have left: what the command makes is accepted. Else, it is a person's."""
        with _held(self._workspace):
            if self._unchecked or self._lives():
                self._guard.check(self._placeholders.held)
            else:
                self._guard.accept()

    def accept(self) -> list[str]:
        """Leave what is there where it is: a person has allowed what made it. But set it aside, with a line about each,
        while a command in the cage for the workspace lives, or its end was not looked at: that may have made it."""
        with _held(self._workspace):
            if self._unchecked or self._lives():
                lines = [*self._guard.check(self._placeholders.held), *self._guard.newly_linked()]
                return [_STOP_FIRST, *lines] if lines else []
            self._guard.accept()
        return []

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[None]:
        """Start no such command meanwhile. Raise OSError if one lives, which could write the new file, too."""
        with contextlib.ExitStack() as stack:
            if self.watches:
                stack.enter_context(_held(self._workspace))
                if not self._guard.acts_later(path):
                    stack.close()
                elif self._unchecked or self._lives():
                    raise OSError(errno.EBUSY, _COULD_CHANGE, path)
            yield

    def close(self) -> None:
        with contextlib.suppress(CageUnavailable), _held(self._workspace):
            if self.watches and (self._unchecked or self._lives()):
                self._guard.check(self._placeholders.held)
            self._guard.release()
        with self._lock:
            self._closed = True
            self._end_zygote()
            self._directories.close()
        with contextlib.suppress(CageUnavailable), _held(self._workspace):
            self._placeholders.sweep()

    def _git(self, env: Mapping[str, str], rules: CageRules, directory: str) -> bytes:
        """Return the settings of git in a directory, b"" without git or directory. Raise CageUnavailable."""
        git = found_outside("git", env, rules.write)
        if git is None:
            return b""
        reads = CageRules(CageKind.READ_ONLY, ("/",), (), rules.execute)
        try:
            command = self._start_caged(_request(["/bin/sh", "-c", LIST_SETTINGS, git], directory, env), (), reads)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        try:
            with contextlib.suppress(socket.timeout):
                told, end, _ = read_report(command.stdout, _START_S, _MAX_SETTINGS).rpartition(b"\0.")
                if end:
                    return told
        finally:
            command.send(signal.SIGKILL)
            command.close()
            command.finish()
        if not os.path.isdir(directory):
            return b""
        raise CageUnavailable(f"git cannot list its settings in {directory} (git config --list)")

    def _start_for_workspace(
        self, request: Json, redirect: Sequence[int], rules: CageRules, ask: Ask
    ) -> RunningCommand:
        alone = not (self._unchecked or self._lives())
        try:
            paths, linked = self._guard.begin(rules.write, alone, ask, rules.protected)
        except TooLarge as error:
            raise CageUnavailable(f"there is no workspace cage here: {error}") from None
        with self._placeholders.made([*paths, *rules.protected]) as protected:
            own = replace(rules, protected=tuple(protected), linked=tuple(linked))
            child = self._start_caged(request, redirect, own)
        self._unchecked.add(child)
        self._living.add(child)
        return child

    def _lives(self) -> bool:
        """Return whether anything of such a command lives, by its supervisor or by the mark among its mounts."""
        self._living = {each for each in self._living if _may_live(each)}
        mark = self._directories.mark
        return bool(self._living) or (bool(mark) and mark in mounted_anywhere())

    def _start_caged(self, request: Json, redirect: Sequence[int], rules: CageRules) -> RunningCommand:
        with contextlib.ExitStack() as on_failure:
            with _held(self._lock):
                temporary, mark = self._directories.make(), self._directories.mark
            on_failure.callback(self._remove, temporary)
            in_workspace, path = rules.kind is CageKind.WORKSPACE, os.fsencode(temporary)
            if in_workspace:
                if not mark:
                    raise CageUnavailable("no temporary directory could be made, by which its processes are known")
                rules = replace(rules, protected=(*rules.protected, mark))
            own = dict.fromkeys((b"TMPDIR", b"TMP", b"TEMP"), path) if path else {}
            fields = {**request, "environment": {**request["environment"], **own}, "temporary": path}
            fields.update({each: list(map(os.fsencode, getattr(rules, each))) for each in _LISTS_OF_PATHS})
            fields.update(caged=True, abi=self.availability().abi, workspace=in_workspace)
            fields.update(network=rules.network, own=rules.own)
            command = self._fork(fields, redirect, functools.partial(self._ended, rules, temporary))
            on_failure.pop_all()
            return command

    def _remove(self, temporary: str) -> None:
        with self._lock:
            self._directories.remove(temporary)

    def _fork(
        self, fields: Json, redirect: Sequence[int], on_end: Callable[[RunningCommand], list[str]]
    ) -> RunningCommand:
        with contextlib.ExitStack() as ends:
            output, output_end = _pipe(ends)
            report, report_end = _pipe(ends)
            control, control_end = map(ends.enter_context, socket.socketpair())
            with _held(self._lock):
                if self._closed:
                    raise CageUnavailable("the session has ended")
                answer = self._ask(fields, (control_end.fileno(), output_end.fileno(), report_end.fileno(), *redirect))
            for end in (output_end, report_end, control_end):
                end.close()
            # from here on without the lock: the program may be on a disk that does not answer
            control.settimeout(_START_S)
            try:
                pid = int.from_bytes(read_exactly(control, 4), "little")
                failure = read_report(report, _START_S)
            except EOFError:
                raise CageUnavailable("the process that starts commands could not fork") from None
            except socket.timeout:
                why = f"it did not start within {_START_S:g} s"
                raise OSError(errno.ETIMEDOUT, why, os.fsdecode(fields["cwd"])) from None
            report.close()
            if failure:
                raise _start_error(failure, fields)
            control.setblocking(False)
            ends.pop_all()
            return RunningCommand(pid, answer["pid"], output, control, on_end)

    def _ended(self, rules: CageRules, temporary: str, command: RunningCommand) -> list[str]:
        self._remove(temporary)
        if rules.kind is CageKind.READ_ONLY:
            return []
        set_aside = self.check()
        with _held(self._workspace):
            if not _may_live(command):
                self._unchecked.discard(command)
            if not (self._unchecked or any(_may_live(each) or each.is_lost for each in self._living)):
                self._guard.release()
            self._placeholders.sweep()
        return set_aside

    def _ask(self, fields: Json, descriptors: Sequence[int]) -> Json:
        """Return the zygote's answer; start the zygote if there is none. Raise CageUnavailable."""
        packed = marshal.dumps(fields)
        try:
            connection = self._connected()
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            connection.sendmsg([len(packed).to_bytes(4, "little")], ancillary)
            connection.sendall(packed)
            size = int.from_bytes(read_exactly(connection, 4), "little")
            answer: Json = marshal.loads(read_exactly(connection, size))  # noqa: S302 - from our own child
            return answer
        except (OSError, ValueError, EOFError) as error:
            self._end_zygote()
            raise CageUnavailable(f"the process that starts commands has failed: {error}") from None

    def _connected(self) -> socket.socket:
        if self._zygote is not None and self._zygote.poll() is not None:
            _log.warning("the process that starts commands has ended with %s", self._zygote.returncode)
            self._end_zygote()
        if self._connection is not None:
            return self._connection
        ours, theirs = socket.socketpair()
        with theirs:
            libraries = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
            argv = [sys.executable, "-I", "-S", "-c", _BOOT]
            null = subprocess.DEVNULL
            try:
                zygote = subprocess.Popen(argv, stdin=theirs.fileno(), stdout=null, env=libraries, cwd="/")
            except OSError:
                ours.close()
                raise
        self._ending = weakref.finalize(self, _end, zygote, ours)
        self._ending.atexit = False
        ours.settimeout(_ANSWER_S)
        self._zygote, self._connection = zygote, ours
        ours.sendall(load_modules())
        return ours

    def _end_zygote(self) -> None:
        if self._ending is not None:
            self._ending()
        self._zygote = self._connection = None


def _end(zygote: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    zygote.kill()
    zygote.wait()


def load_modules() -> bytes:
    """Return the modules of the zygote: compiled, and as sources for another Python than this one."""
    modules = []
    for name in _MODULES:
        full_name = name if "." in name else f"{__package__}.kernel.{name}"
        spec = importlib.util.find_spec(full_name)
        assert spec is not None
        loader = cast("InspectLoader", spec.loader)
        modules.append((name, marshal.dumps(loader.get_code(full_name)), loader.get_source(full_name)))
    packed = marshal.dumps((importlib.util.MAGIC_NUMBER, modules))
    return len(packed).to_bytes(4, "little") + packed


def _start_error(report: bytes, fields: Json) -> OSError:
    step, number, text = marshal.loads(report)  # noqa: S302 - from our own child
    if step == "cage":
        kind = PathVanished if number == errno.ENOENT else CageUnavailable
        return kind(f"the cage could not be made: {text}")
    return OSError(number, os.strerror(number) if number else str(text), os.fsdecode(fields[step]))


def _may_live(command: RunningCommand) -> bool:
    """Return whether something of a command may live, as far as its supervisor has told."""
    return not command.gone and (command.code is None or bool(command.left))


@contextlib.contextmanager
def _held(lock: threading.Lock | threading.RLock) -> Iterator[None]:
    """Hold a lock. Raise CageUnavailable instead of waiting for a command that waits for a disk."""
    if not lock.acquire(timeout=_LOCK_S):
        raise CageUnavailable(f"another command has not started for {_LOCK_S:g} s: a disk may not answer")
    try:
        yield
    finally:
        lock.release()


def _pipe(ends: contextlib.ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    reader, writer = os.pipe()
    reading = ends.enter_context(os.fdopen(reader, "rb", 0))
    return reading, ends.enter_context(os.fdopen(writer, "wb", 0))


_BLOCK = 1 << 16
_MAX_REPORT = 1 << 16
_LISTS_OF_PATHS = ("read", "write", "execute", "protected", "linked")


def _request(argv: Sequence[str], cwd: str, env: Mapping[str, str], program: str | None = None) -> Json:
    """Return the request for a command without a cage."""
    import shutil

    program = program or (argv[0] if "/" in argv[0] else shutil.which(argv[0], path=env.get("PATH", os.defpath)))
    if program is None:
        raise FileNotFoundError(2, os.strerror(2), argv[0])
    return {
        "ask": "start",
        "program": os.fsencode(program),
        "argv": list(map(os.fsencode, argv)),
        "cwd": os.fsencode(cwd),
        "environment": {os.fsencode(key): os.fsencode(value) for key, value in env.items()},
        "caged": False,
    }


def read_report(report: IO[bytes], seconds: float, most: int = _MAX_REPORT) -> bytes:
    """Return why a process could not become the command, b"" if it could. Raise socket.timeout, also for too much."""
    until = time.monotonic() + seconds
    poll = select.poll()
    poll.register(report, select.POLLIN)
    said = b""
    while len(said) <= most and poll.poll(max(0, until - time.monotonic()) * 1000):
        data = report.read(_BLOCK)
        if not data:
            return said
        said += data
    raise socket.timeout


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError("it has ended")
        data += more
    return bytes(data)
