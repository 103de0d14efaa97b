"""The fork server: a process that has imported a program and forks for each of its runs.

`python server.py DESCRIPTOR KIND ENVIRONMENT`: a request on the socket DESCRIPTOR is one byte with four descriptors:
the socket for this run, stdin, stdout and stderr. The new process reads its request (JSON) from the socket of the run
and becomes what a new interpreter with these arguments would be. The server writes there its pid and, at its end, its
exit code. KIND says what is imported beforehand. ENVIRONMENT is the JSON of the variables the server was started with.

It runs under every Python that the tests run on, as the only thread and without a signal handler.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import runpy
import select
import socket
import struct
import sys
import time
from importlib.machinery import BuiltinImporter
from types import ModuleType
from typing import Any, Callable, cast

_PROGRAMS = ("ccb.deploy.stub", "ccb.deploy.wheel_hook")
_NOT_IMPORTED = ("ccb.local.mcp", "ccb.local.telemetry", *_PROGRAMS)
_PR_SET_MM, _PR_SET_MM_MAP = 35, 14


def import_worker() -> None:
    """Import what every worker imports until it has said hello, and what it imports after that."""
    from ccb.remote.daemon import daemon_start

    daemon_start._import_what_the_daemon_needs()


def import_ccb() -> None:
    """Import all of ccb but what few runs need: MCP servers of the laptop, telemetry, and the worker."""
    from ccb.tunnel.heavy_imports import load_asyncssh

    load_asyncssh()
    for room in ("local", "tunnel", "deploy"):
        package = importlib.import_module(f"ccb.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"ccb.{room}."):
            if not module.name.startswith(_NOT_IMPORTED):
                importlib.import_module(module.name)


def import_ccb_and_sdks() -> None:
    """Import also what checks keys."""
    import_ccb()
    for name in ("anthropic", "openai"):
        importlib.import_module(name)


KINDS: dict[str, Callable[[], None]] = {"worker": import_worker, "ccb": import_ccb, "ccb and SDKs": import_ccb_and_sdks}


class Run:
    """One run in its own process: `reply` is the socket for it, `streams` are its standard streams."""

    def __init__(self, reply: int, streams: list[int]) -> None:
        self.reply = reply
        self.streams = streams


def serve(control: socket.socket) -> Run:
    """Fork for each request. Return in the new processes only; the server ends with its client."""
    poller = select.poll()
    poller.register(control, select.POLLIN)
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready, _ in poller.poll():
            if ready != control.fileno():
                pid, reply = running.pop(ready)
                poller.unregister(ready)
                os.close(ready)
                _say(reply, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                reply.close()
                continue
            _, descriptors, _, _ = socket.recv_fds(control, 1, 4)
            if not descriptors:
                os._exit(0)
            pid = os.fork()
            if not pid:
                return Run(descriptors[0], descriptors[1:])
            for each in descriptors[1:]:
                os.close(each)
            reply = socket.socket(fileno=descriptors[0])
            _say(reply, pid)
            handle = os.pidfd_open(pid)
            running[handle] = (pid, reply)
            poller.register(handle, select.POLLIN)


def _say(reply: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody waits for this run any more
        reply.sendall(struct.pack("!i", number))


def read_request(run: Run) -> dict[str, Any]:
    for number, stream in enumerate(run.streams):
        os.dup2(stream, number)
    with socket.socket(fileno=os.dup(run.reply)) as reply, reply.makefile("rb") as file:
        request: dict[str, Any] = json.loads(file.readline())
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # it is the one that listed them
                os.close(int(name))
    return request


def become(request: dict[str, Any], added: dict[str, str]) -> None:
    """Make of this process what a new interpreter would be. `added` is what an interpreter adds to its environment."""
    argv, environment = request["argv"], {**request["env"], **added}
    if request["session"]:
        os.setsid()
    if request["terminal"]:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for name, limit in request["limits"].items():
        resource.setrlimit(getattr(resource, name), tuple(limit))
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    show(argv, request["env"])
    streams = (sys.stdin, sys.stdout, sys.stderr)
    for number, (name, old) in enumerate(zip(("stdin", "stdout", "stderr"), streams)):
        setattr(sys, name, standard_stream(number, old))
        setattr(sys, f"__{name}__", getattr(sys, name))
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(argv)
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __loader__=BuiltinImporter, __annotations__={})
    sys.path.insert(0, os.getcwd() if argv[1] == "-m" else "")


def standard_stream(number: int, like: Any) -> io.TextIOWrapper:
    """Return a standard stream as Python opens it, with the encoding of the server's own one."""
    buffered = cast("io.BufferedReader", open(number, "rb" if number == 0 else "wb", closefd=False))  # noqa: SIM115
    lines = number == 2 or buffered.isatty()
    raw: Any = buffered.raw
    raw.name = like.name
    stream = io.TextIOWrapper(buffered, like.encoding, like.errors, "\n", line_buffering=lines)
    stream.mode = like.mode  # type: ignore[misc]
    return stream


def show(argv: list[str], environment: dict[str, str]) -> None:
    """Let /proc show these arguments and this environment for the process. Raise OSError where that is impossible."""
    arguments = b"".join(os.fsencode(each) + b"\0" for each in argv)
    variables = b"".join(os.fsencode("=".join(each)) + b"\0" for each in environment.items())
    shown = ctypes.create_string_buffer(arguments + variables)
    _SHOWN.append(shown)
    place = ctypes.addressof(shown)
    middle, end = place + len(arguments), place + len(arguments) + len(variables)
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = [0, 0, 0, 0, *map(int, file.read().rpartition(")")[2].split()[1:])]  # numbered as in proc(5)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    code, data, heap, stack = fields[26:28], fields[45:47], (fields[47], libc.sbrk(0)), fields[28]
    layout = struct.pack("@12QII", *code, *data, *heap, stack, place, middle, middle, end, 0, 0, 0xFFFFFFFF)
    if libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.c_char_p(layout), ctypes.c_ulong(len(layout)), ctypes.c_ulong(0)):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_MM_MAP)")


_SHOWN: list[Any] = []  # must stay where they are


def run(argv: list[str]) -> None:
    if argv[1] == "-m":
        sys.argv[:] = ["-m", *argv[3:]]
        runpy._run_module_as_main(argv[2])  # type: ignore[attr-defined] # what `python -m` itself calls
    else:
        sys.argv[:] = ["-c", *argv[3:]]
        exec(compile(argv[2], "<string>", "exec", dont_inherit=True), vars(sys.modules["__main__"]))


def main() -> None:
    descriptor, kind, given = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    del sys.path[0]
    added = {name: value for name, value in os.environ.items() if name not in given}
    control = socket.socket(fileno=descriptor)
    KINDS[kind]()
    show([sys.executable, "fork server"], given)  # fails here where it is not allowed
    control.send(b"!")
    gc.collect()
    gc.freeze()
    try:
        mine = serve(control)
    except KeyboardInterrupt:
        os._exit(130)
    control.detach()
    request = read_request(mine)
    become(request, added)
    run(request["argv"])


if __name__ == "__main__":
    main()
