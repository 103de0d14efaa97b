"""Starts caged commands for a worker, through a zygote that is started with the first of them."""

from __future__ import annotations

import array
import contextlib
import enum
import errno
import functools
import importlib.util
import logging
import marshal
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Callable, cast

from ccb.tunnel.wire.dataclass import dataclass

from .placeholders import Placeholders, mounted_anywhere
from .rules import CageKind, CageRules
from .start_request import start_request
from .temporary import TemporaryDirectories

if TYPE_CHECKING:  # the first imports much, and the second is needed only where commands change the workspace
    from importlib.abc import InspectLoader

    from .guard import Guard

_log = logging.getLogger(__name__)

_MODULES = (
    "syscalls",
    "landlock",
    "seccomp",
    "mounts",
    "namespaces",
    "cage",
    "probe",
    "zygote",
)  # in the order of their imports
_BOOT = """
import marshal, os, sys
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
    made = module("kernel." + name)
    made.__package__ = "kernel"
    sys.modules["kernel." + name] = made
    setattr(package, name, made)
    same = magic == MAGIC_NUMBER  # another Python may be in the place of the worker's by now
    exec(marshal.loads(code) if same else compile(text, "<kernel>/" + name + ".py", "exec"), made.__dict__)
sys.modules["kernel.zygote"].main(0)
"""
_ANSWER_S = 20.0
_MAX_REPORT = 4096
_MAX_TRIES = 20


class CageUnavailable(OSError):
    """The cage cannot be made, so the command was not run."""


class PathVanished(CageUnavailable):
    """Another command has removed a path after the look at the project and before the cage protected it. A new look
    helps. To leave the path out does not: the command could make it."""


class Mechanism(enum.Enum):
    """The part of the kernel that limits files in a cage."""

    LANDLOCK = "Landlock"
    NAMESPACES = "namespaces"
    NONE = "none"


@dataclass(frozen=True)
class Availability:
    """Which cages this machine offers. `abi` is the version of Landlock (0: none), `workspace` whether the cage for the
    workspace can be made, and `why` what keeps the cage that is missing from being made."""

    mechanism: Mechanism
    abi: int
    workspace: bool
    why: str = ""


class CagedChild:
    """A running caged command, as a child of this process. `wait` reaps it, once; call `finish` after it."""

    def __init__(self, pid: int, output: IO[bytes], on_end: Callable[[int], list[str]]) -> None:
        self.pid = pid
        self.stdout: IO[bytes] | None = output
        self._on_end = on_end

    def wait(self) -> int:
        """Wait for the end of the command. Return the exit code, negative for a signal."""
        try:
            _, status = os.waitpid(self.pid, 0)
        except ChildProcessError:
            return 255  # something else in this process has reaped it
        return os.waitstatus_to_exitcode(status)

    def finish(self) -> list[str]:
        """Remove what was made for the command, and set aside what it may not leave behind. Return a line about each
        such file. This takes a while: call it from any thread, and again when processes that were left have ended."""
        return self._on_end(self.pid)


class CageServer:
    """Starts caged commands, from any thread. Close it at the end. `most_abi` makes the kernel look older, for tests: 0
    stands for a kernel without Landlock."""

    def __init__(self, most_abi: int = 99) -> None:
        self._most_abi = most_abi
        self._workspace = threading.Lock()  # held before the other one
        self._guard: Guard | None = None  # made with the first command in the cage for the workspace
        self._unchecked: set[int] = set()  # commands in that cage whose end was not looked at
        self._placeholders = Placeholders()
        self._lock = threading.RLock()
        self._closed = False
        self._zygote: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._available: Availability | None = None
        self._directories = TemporaryDirectories()

    def availability(self) -> Availability:
        """Return which cages hold here. The first call starts the zygote, which takes about 50 ms. It never fails:
        where a trial fails, there is no cage."""
        if self._available is not None:  # without the lock, which a start may hold for long
            return self._available
        with self._lock:
            return self._availability()

    @property
    def known(self) -> Availability | None:
        """What `availability` has returned; None before it was asked."""
        return self._available

    def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str], rules: CageRules) -> CagedChild:
        """Start `argv` in its own session with stdin from /dev/null and its output in a pipe. TMPDIR in the cage is a
        new directory. Raise CageUnavailable if it cannot be caged, or another OSError if it cannot be started."""
        available = self.availability()
        if rules.kind is CageKind.READ_ONLY:
            if available.mechanism is Mechanism.NONE:
                raise CageUnavailable(f"there is no read-only cage on this host: {available.why}")
            return self._start(argv, cwd, env, rules)
        if not available.workspace:
            raise CageUnavailable(f"there is no workspace cage on this host: {available.why}")
        with self._workspace:
            for _ in range(_MAX_TRIES - 1):
                with contextlib.suppress(PathVanished):
                    return self._start_for_workspace(argv, cwd, env, rules)
            return self._start_for_workspace(argv, cwd, env, rules)

    @property
    def watches(self) -> bool:
        """Whether a command has run in the cage for the workspace."""
        return self._guard is not None

    def check(self) -> list[str]:
        """Set aside what commands in the cage for the workspace may not leave behind. Return a line about each file."""
        with self._workspace:
            return self._guard.check(self._placeholders.held) if self._guard is not None else []

    def accept(self) -> list[str]:
        """Leave all that is there now where it is: a person has allowed what made it. Return no notes."""
        with self._workspace:
            if self._guard is not None:
                self._guard.accept()
        return []

    def accept_path(self, path: str) -> None:
        """Leave a file where it is that a person has allowed to be written."""
        with self._workspace:
            if self._guard is not None:
                self._guard.accept_path(path)

    def close(self) -> None:
        """End the zygote, for good. Commands that run go on."""
        self.check()
        with self._workspace:
            with self._lock:
                self._closed = True
                self._end_zygote()
                self._directories.close()
            self._placeholders.sweep()

    def _availability(self) -> Availability:
        if self._closed:
            return Availability(Mechanism.NONE, 0, False, "the session has ended")
        if self._available is None:
            temporary = self._directories.make()
            try:
                asked = {"ask": "probe", "abi": self._most_abi, "temporary": os.fsencode(temporary)}
                self._available = _available(self._ask(asked, ()))
            except OSError as error:
                self._available = Availability(Mechanism.NONE, 0, False, str(error))
            finally:
                self._directories.remove(temporary)
        return self._available

    def _begin(self, rules: CageRules) -> list[str]:
        """Return what a command that is about to start in the cage for the workspace may neither change nor make."""
        from .census import TooLarge
        from .guard import Guard

        alone = self._guard is None or not (self._unchecked or self._lives())
        self._guard = self._guard or Guard()
        try:
            return self._guard.begin(rules.write, alone)
        except TooLarge as error:
            raise CageUnavailable(f"there is no workspace cage here: {error}") from None

    def _start_for_workspace(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], rules: CageRules
    ) -> CagedChild:
        paths = self._begin(rules)
        try:
            protected = tuple(self._placeholders.make([*paths, *rules.protected]))
            child = self._start(argv, cwd, env, replace(rules, protected=protected))
            self._unchecked.add(child.pid)
            return child
        finally:
            self._placeholders.started()

    def _lives(self) -> bool:
        """Return whether a process of a command in the cage for the workspace lives: each has the mark of this server
        among its mounts."""
        mark = self._directories.mark
        return not mark or mark in mounted_anywhere()

    def _start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str], rules: CageRules) -> CagedChild:
        with self._lock:
            if self._closed:
                raise CageUnavailable("the session has ended")
            temporary, mark = self._directories.make(), self._directories.mark
            if rules.kind is CageKind.WORKSPACE and mark:
                rules = replace(rules, protected=(*rules.protected, mark))
            try:
                fields = start_request(argv, cwd, env, rules, temporary, self.availability().abi)
                return self._fork(fields, lambda pid: self._ended(pid, rules, temporary))
            except BaseException:
                self._directories.remove(temporary)
                raise

    def _fork(self, fields: dict[str, object], on_end: Callable[[int], list[str]]) -> CagedChild:
        with contextlib.ExitStack() as ends:
            output, output_end = _pipe(ends)
            report, report_end = _pipe(ends)
            pid = self._ask(fields, (output_end.fileno(), report_end.fileno())).get("pid")
            output_end.close()
            report_end.close()
            if not isinstance(pid, int):
                raise CageUnavailable("the process that starts caged commands could not fork")
            failure = report.read(_MAX_REPORT)
            report.close()
            child = CagedChild(pid, output, on_end)
            if failure:
                child.wait()
                raise _start_error(failure, fields)
            ends.pop_all()
            return child

    def _ended(self, pid: int, rules: CageRules, temporary: str) -> list[str]:
        with self._lock:
            self._directories.remove(temporary)
        if rules.kind is CageKind.READ_ONLY:
            return []
        set_aside = self.check()
        with self._workspace:
            self._unchecked.discard(pid)
            self._placeholders.sweep()
        return set_aside

    def _ask(self, fields: dict[str, object], descriptors: Sequence[int]) -> dict[str, object]:
        """Return the zygote's answer; start the zygote if there is none. Raise CageUnavailable."""
        packed = marshal.dumps(fields)
        try:
            connection = self._connected()
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            connection.sendmsg([len(packed).to_bytes(4, "little")], ancillary)
            connection.sendall(packed)
            size = int.from_bytes(_read(connection, 4), "little")
            answer = marshal.loads(_read(connection, size))  # noqa: S302 - from our own child
        except (OSError, ValueError, EOFError) as error:
            self._end_zygote()
            raise CageUnavailable(f"the process that starts caged commands has failed: {error}") from None
        return cast("dict[str, object]", answer)

    def _connected(self) -> socket.socket:
        if self._zygote is not None and self._zygote.poll() is not None:
            _log.warning("the process that starts caged commands has ended with %s", self._zygote.returncode)
            self._end_zygote()
        if self._connection is not None:
            return self._connection
        if not sys.executable:
            raise OSError("the path of the Python interpreter is not known")
        ours, theirs = socket.socketpair()
        with theirs:
            libraries = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
            argv = [sys.executable, "-I", "-S", "-c", _BOOT]
            try:
                self._zygote = subprocess.Popen(
                    argv,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env=libraries,
                    cwd="/",
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        ours.settimeout(_ANSWER_S)
        self._connection = ours
        ours.sendall(load_modules())
        return ours

    def _end_zygote(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._zygote is not None:
            self._zygote.kill()
            self._zygote.wait()
            self._zygote = None


@functools.lru_cache(maxsize=1)
def load_modules() -> bytes:
    """Return the modules of the zygote as it takes them: compiled, and as sources for another Python than this one."""
    modules = []
    for name in _MODULES:
        full_name = f"{__package__}.kernel.{name}"
        spec = importlib.util.find_spec(full_name)
        assert spec is not None
        loader = cast("InspectLoader", spec.loader)
        modules.append((name, marshal.dumps(loader.get_code(full_name)), loader.get_source(full_name)))
    packed = marshal.dumps((importlib.util.MAGIC_NUMBER, modules))
    return len(packed).to_bytes(4, "little") + packed


def _available(answer: Mapping[str, object]) -> Availability:
    abi = answer.get("abi")
    abi = abi if isinstance(abi, int) else 0
    mechanism = Mechanism.NONE
    if abi or answer.get("namespaces"):
        mechanism = Mechanism.LANDLOCK if abi else Mechanism.NAMESPACES
    return Availability(
        mechanism, abi, bool(answer.get("workspace")), str(answer.get("why") or answer.get("error") or "")
    )


def _start_error(report: bytes, fields: dict[str, object]) -> OSError:
    """Return the error for a command that did not start, from the report of its process."""
    step, number, text = marshal.loads(report)  # noqa: S302 - from our own child
    if step == "cage":
        kind = PathVanished if number == errno.ENOENT else CageUnavailable
        return kind(f"the cage could not be made: {text}")
    named = fields[step]
    assert isinstance(named, bytes)
    return OSError(number, os.strerror(number), os.fsdecode(named))


def _pipe(ends: contextlib.ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    """Return the reading and the writing end of a new pipe, which `ends` closes."""
    reader, writer = os.pipe()
    reading = ends.enter_context(os.fdopen(reader, "rb", 0))
    return reading, ends.enter_context(os.fdopen(writer, "wb", 0))


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError("it has ended")
        data += more
    return bytes(data)
