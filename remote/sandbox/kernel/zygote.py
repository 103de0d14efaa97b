"""The zygote: a process with one thread that forks the commands of a worker, caged or not.

The worker has threads, so after a fork of it no Python code may run safely. It asks this process instead, over a
socket, and passes the descriptors of the command. The zygote forks a supervisor, and that forks the command. The zygote
ends with the worker, because its socket is closed then.

This module runs in a bare interpreter, which loads the modules of this room by their sources (see `..server`).
"""

from __future__ import annotations

import _socket
import array
import gc
import marshal
import os
import resource
import sys

from . import landlock
from .cage import CageRequest, enter, filter_code
from .probe import probe
from .supervisor import supervise
from .syscalls import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal  # importing these takes longer than all the rest
    from typing import Any, Callable, NoReturn

    Main = Callable[[str], None]
else:
    import _signal

_MAX_DESCRIPTORS = 8
_MAX_BYTES = 16 << 20
_REPORT = _CONTROL = 3
_FAILED = 126


class Zygote:
    """Answers the requests of one worker. Filters are kept, so that no child has to make one."""

    def __init__(self) -> None:
        self._kernel = Kernel()
        try:
            self._kernel.prctl(PR_SET_DUMPABLE, 0)
        except OSError:
            pass  # no ctypes, or not Linux
        self._filters: dict[tuple[bool, int], bytes] = {}
        self._programs: dict[bytes, Main] = {}

    def serve(self, connection: _socket.socket) -> None:
        """Answer requests until the other end is closed."""
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

    def _answer(self, fields: dict[str, object], descriptors: list[int]) -> dict[str, object]:
        if fields["ask"] == "probe":
            most, temporary = fields["abi"], fields["temporary"]
            assert isinstance(most, int)
            assert isinstance(temporary, bytes)
            return probe(self._kernel, most, temporary)
        request = CageRequest(fields)
        key = request.workspace, request.abi
        if request.caged and key not in self._filters:
            self._filters[key] = filter_code(self._kernel, request)
        main = self._loaded(request) if request.own else None
        pid = os.fork()
        if pid == 0:
            self._become_supervisor(request, descriptors, main)
        return {"pid": pid}

    def _become_supervisor(self, request: CageRequest, descriptors: list[int], main: Main | None) -> NoReturn:
        try:
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            adopts = True
            try:
                self._kernel.prctl(PR_SET_CHILD_SUBREAPER, 1)
            except OSError:
                adopts = False
            bounded = request.caged and request.abi >= 6 and landlock.bound_signals(self._kernel)
            control, *streams = descriptors
            command = os.fork()
            if command == 0:
                _run(self._kernel, request, self._filters.get((request.workspace, request.abi)), streams, main)
            os.dup2(control, _CONTROL)
            self._kernel.close_from(_CONTROL + 1)
            os.write(_CONTROL, command.to_bytes(4, "little"))
            found_by = b"" if request.caged else request.environment.get(b"CCB_MARK", b"")
            supervise(_CONTROL, command, adopts, bounded, found_by and b"CCB_MARK=" + found_by)
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
    """Reap the supervisors that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass  # none is left


def _receive(connection: _socket.socket) -> tuple[dict[str, object], list[int]]:
    """Return the next request and the descriptors that came with it; {} at the end."""
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


def _run(
    kernel: Kernel, request: CageRequest, code: bytes | None, descriptors: list[int], main: Main | None
) -> NoReturn:
    """Become the command, or run `main` in its place. If that fails, report the step and the error, and end: nothing
    runs without its cage."""
    step = "cage"
    try:
        os.setsid()
        output, report, *redirected = descriptors
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
            _leave_no_core()
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


def _leave_no_core() -> None:
    """Let no core dump of this process be written. 1 also keeps the kernel from a program that it pipes dumps to, which
    0 does not."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    least = 1 if most == resource.RLIM_INFINITY else min(1, most)
    resource.setrlimit(resource.RLIMIT_CORE, (least, least))


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
