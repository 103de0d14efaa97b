"""Forks caged commands, and finds out which cages hold, for a worker whose threads let no Python code run safely after
a fork. The zygote forks a supervisor, and that the command. It ends with the worker, and runs in a bare interpreter,
which loads the modules of this room by their sources (see `cage_server`)."""

from __future__ import annotations

import _socket
import array
import gc
import marshal
import os
import resource
import sys

from . import landlock
from .cage import CageRequest, enter
from .seccomp import filter_code
from .supervisor import CommandSupervisor
from .syscalls import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, Kernel

TYPE_CHECKING = False

if TYPE_CHECKING:
    import signal as _signal  # importing these takes longer than all the rest
    from typing import Any, Callable, NoReturn

    Main = Callable[[str], None]
else:
    import _signal


def probe(kernel: Kernel, most: int, temporary: bytes) -> dict[str, object]:
    """Return which cages hold: the `abi` of Landlock (0: none), whether `namespaces` replace it, whether there is one
    for the `workspace`, and `why` not. `temporary` is an empty directory."""
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
    request = CageRequest({"temporary": temporary, **more})
    enter(kernel, request, filter_code(kernel.machine, request.abi, request.workspace))
    outside = os.path.dirname(temporary)
    if _works(lambda: os.mkdir(os.path.join(outside, b"made-by-a-probe"))):
        return "the cage does not stop writing here"
    if _works(lambda: _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM).close()):
        return "the cage does not stop sockets here"
    inside = os.path.join(temporary, b"made-by-a-probe")
    if temporary and not (_works(lambda: os.mkdir(inside)) and _works(lambda: os.rmdir(inside))):
        return "the cage stops writing where it must not"
    return ""


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


def _works(attempt: Callable[[], object]) -> bool:
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


_MAX_DESCRIPTORS = 8
_MAX_BYTES = 16 << 20
_REPORT = _CONTROL = 3
_FAILED = 126


class Zygote:
    """Answers the requests of one worker. Filters are kept, so that no child has to make one."""

    def __init__(self) -> None:
        self._kernel = Kernel()
        _works(lambda: self._kernel.prctl(PR_SET_DUMPABLE, 0))  # without ctypes, and not on Linux, it does not
        self._filters: dict[tuple[int, bool], bytes] = {}
        self._programs: dict[bytes, Main] = {}

    def serve(self, connection: _socket.socket) -> None:
        while True:
            fields, descriptors = _receive(connection)
            if not fields:
                return
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # a trial of a cage waits for its own children
            try:
                answer = self._answer(fields, descriptors)
            except OSError as error:
                answer = {"error": str(error)}
            for each in descriptors:
                os.close(each)
            packed = marshal.dumps(answer)
            connection.sendall(len(packed).to_bytes(4, "little") + packed)
            _signal.signal(_signal.SIGCHLD, lambda number, frame: _reap())
            _reap()

    def _answer(self, fields: dict[str, Any], descriptors: list[int]) -> dict[str, object]:
        if fields["ask"] == "probe":
            return probe(self._kernel, fields["abi"], fields["temporary"])
        request = CageRequest(fields)
        key = request.abi, request.workspace
        if request.caged and key not in self._filters:
            self._filters[key] = filter_code(self._kernel.machine, *key)
        main = self._loaded(request) if request.own else None
        pid = os.fork()
        if pid == 0:
            self._become_supervisor(request, descriptors, main)
        return {"pid": pid}

    def _become_supervisor(self, request: CageRequest, descriptors: list[int], main: Main | None) -> NoReturn:
        try:
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            adopts = _works(lambda: self._kernel.prctl(PR_SET_CHILD_SUBREAPER, 1))
            bounded = request.caged and request.abi >= 6 and landlock.bound_signals(self._kernel)
            control, *streams = descriptors
            gate, opens = os.pipe()
            command = os.fork()
            if command == 0:
                os.close(opens)
                if not os.read(gate, 1):  # the supervisor was killed: nobody would watch the command
                    os._exit(_FAILED)
                _run(self._kernel, request, self._filters.get((request.abi, request.workspace)), streams, main)
            os.write(control, command.to_bytes(4, "little"))
            os.write(opens, b"+")
            os.dup2(control, _CONTROL)
            self._kernel.close_from(_CONTROL + 1)
            found_by = b"" if request.caged else request.environment.get(b"CCB_MARK", b"")
            CommandSupervisor(_CONTROL, command, adopts, bounded, found_by and b"CCB_MARK=" + found_by).run()
        finally:
            os._exit(_FAILED)

    def _loaded(self, request: CageRequest) -> Main:
        """Return `main` of a program of ccb. It is loaded once, as a new Python would load it from this command."""
        boot, program = request.argv[4:6]
        if program not in self._programs:
            sys.argv = ["-c", program.decode()]
            made: dict[str, Any] = {}
            exec(boot, made)  # noqa: S102 - from the process that started this one
            self._programs[program] = made["module"].main
            gc.freeze()
        return self._programs[program]


def main(descriptor: int) -> None:
    """Serve the worker at the other end of this socket, until it ends."""
    os.setpgid(0, 0)  # in the session of the worker, where no command is: see `..running`
    connection = _socket.socket(fileno=os.dup(descriptor))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write("ccb-zygote")
    except OSError:
        pass  # only the name in ps is lost
    zygote = Zygote()
    gc.disable()
    gc.freeze()  # a collection in a child would copy all the pages that it shares with this process
    zygote.serve(connection)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass  # none is left


def _receive(connection: _socket.socket) -> tuple[dict[str, Any], list[int]]:
    descriptors = array.array("i")
    head, ancillary, _, _ = connection.recvmsg(4, _socket.CMSG_SPACE(_MAX_DESCRIPTORS * descriptors.itemsize))
    for level, kind, data in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    left = int.from_bytes(head, "little") if len(head) == 4 else 0
    body = bytearray()
    while 0 < left < _MAX_BYTES:
        data = connection.recv(left)
        if not data:
            return {}, []
        body += data
        left -= len(data)
    fields = marshal.loads(body) if body else {}  # noqa: S302 - from the process that started this one
    return fields, descriptors.tolist()


def _run(kernel: Kernel, request: CageRequest, code: bytes | None, files: list[int], main: Main | None) -> NoReturn:
    """Become the command, or run `main` in its place. If it fails, report the step and end: nothing runs uncaged."""
    step = "cage"
    try:
        os.setsid()
        output, report, *redirected = files
        stdin, error = redirected or (0, output)
        for descriptor, number in ((stdin, 0), (error, 2), (output, 1)):
            os.dup2(descriptor, number)
        os.dup2(report, _REPORT, inheritable=False)
        kernel.close_from(_REPORT + 1)
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        step = "cwd"
        os.chdir(request.cwd)
        if code is not None:
            step = "cage"
            # No core dump is written. 1, unlike 0, also keeps the kernel from a program that it pipes dumps to.
            _, most = resource.getrlimit(resource.RLIMIT_CORE)
            least = 1 if most == resource.RLIM_INFINITY else min(1, most)
            resource.setrlimit(resource.RLIMIT_CORE, (least, least))
            enter(kernel, request, code)
        step = "program"
        if main is not None:
            _call(main, request)
        os.execve(request.program, request.argv, request.environment)  # noqa: S606 - argv is the command
    except BaseException as error:  # noqa: BLE001 - the top of a process: nothing else of the zygote may run in it
        number = error.errno if isinstance(error, OSError) and error.errno else 0
        os.write(_REPORT, marshal.dumps((step, number, str(error))))
    finally:
        os._exit(_FAILED)


def _call(main: Main, request: CageRequest) -> NoReturn:
    """Do what a new Python would do with the rest of the command, but in this process, which is caged."""
    status = 1
    try:
        os.close(_REPORT)  # the worker takes it for the start
        os.environb.clear()
        os.environb.update(request.environment)
        gc.enable()
        main(os.fsdecode(request.argv[6]))
        status = 0
    except BaseException:  # noqa: BLE001 - the top of a process, as in `_run`
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)
