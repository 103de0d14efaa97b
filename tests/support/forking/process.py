"""Runs of a program that are forked from a process with its imports behind it, else as after
`asyncio.create_subprocess_exec`. CCB_TESTS_FRESH=1 in the environment of pytest starts every run anew."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from asyncio import base_subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Optional, Union, cast

_SERVER = Path(__file__).with_name("server.py")
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_", "GLIBC_", "OPENSSL_", "TEXTUAL_")
_KNOWN_AT_START = ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")
_READ_LATER = "PYTHON_KEYRING_BACKEND"  # by keyring, which the fork server has not imported

Stream = Optional[Union[int, IO[bytes]]]


class ForkServer:
    """A fork server of one kind, see `server.KINDS`, for runs in environments like `env`."""

    def __init__(self, kind: str, env: Mapping[str, str]) -> None:
        self.settings = settings_at_start(env)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = {"PATH": os.environ["PATH"], "HOME": "/", **self.settings}  # a test kills what runs with its home
        if "PYTHONPYCACHEPREFIX" in os.environ:  # then the modules are compiled there, and nowhere else
            given.setdefault("PYTHONPYCACHEPREFIX", os.environ["PYTHONPYCACHEPREFIX"])
        words = [sys.executable, str(_SERVER), str(theirs.fileno()), kind, json.dumps(given)]
        with theirs:
            self._process = subprocess.Popen(
                words, env=given, cwd="/", pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        atexit.register(self.close)
        self.works = self.control.recv(1) == b"!"

    def close(self) -> None:
        self.control.close()
        self._process.wait()


_servers: dict[str, ForkServer] = {}


def limits() -> dict[str, tuple[int, int]]:
    """Return the resource limits of this process, which a new one inherits."""
    return {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}


def settings_at_start(env: Mapping[str, str]) -> dict[str, str]:
    """Return what an interpreter and its libraries read from the environment before the program begins."""
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START) and name != _READ_LATER}


def fork_server(kind: str, env: Mapping[str, str]) -> ForkServer | None:
    """Return a server whose processes are like new ones in `env`, None if there is none or `kind` is ""."""
    if not kind or os.environ.get("CCB_TESTS_FRESH") or not hasattr(os, "pidfd_open"):
        return None
    if any(name.startswith("PYTHON") and name not in (*_KNOWN_AT_START, _READ_LATER) for name in env):
        return None
    if kind not in _servers:
        _servers[kind] = ForkServer(kind, env)
    server = _servers[kind]
    return server if server.works and server.settings == settings_at_start(env) else None


async def start_process(
    kind: str, words: Sequence[str], *, env: Mapping[str, str], cwd: str | Path | None = None, limit: int = 2**16,
    stdin: Stream = None, stdout: Stream = None, stderr: Stream = None,
    new_session: bool = False, terminal: bool = False,
) -> asyncio.subprocess.Process:  # fmt: skip
    """Run `python WORDS`, where `words` begin with `-m` or `-c`. With `terminal`, stdin becomes its terminal, too."""
    server = fork_server(kind, env)
    if server is None:
        return await asyncio.create_subprocess_exec(
            sys.executable, *words, env=env, cwd=cwd, limit=limit, stdin=stdin, stdout=stdout, stderr=stderr,
            start_new_session=new_session, preexec_fn=_take_terminal if terminal else None,
        )  # fmt: skip
    mask = os.umask(0)
    os.umask(mask)
    request = {
        "argv": [sys.executable, *words], "env": dict(env), "cwd": os.path.abspath(cwd or os.getcwd()), "umask": mask,
        "session": new_session, "terminal": terminal, "limits": limits(),
    }  # fmt: skip
    loop = asyncio.get_running_loop()
    protocol = asyncio.subprocess.SubprocessStreamProtocol(limit=limit, loop=loop)
    connected = loop.create_future()
    transport = _ForkedTransport(
        loop, protocol, words, False, stdin, stdout, stderr, 0, waiter=connected, server=server, request=request
    )
    await connected
    return asyncio.subprocess.Process(transport, protocol, loop)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class _Forked:
    """A forked process, as a transport of asyncio wants it. The read end of `news` gets its exit code."""

    def __init__(self, server: ForkServer, request: dict[str, Any], streams: list[Stream]) -> None:
        self.returncode: int | None = None
        ours: list[IO[bytes] | None] = []
        theirs: list[int] = []
        for number, stream in enumerate(streams):
            own, given = (None, os.dup(theirs[1])) if stream == subprocess.STDOUT else _ends(number, stream)
            ours.append(own)
            theirs.append(given)
        self.stdin, self.stdout, self.stderr = ours
        self.news, reply = socket.socketpair()
        try:
            socket.send_fds(server.control, [b"+"], [reply.fileno(), *theirs])
        finally:
            reply.close()
            for number in theirs:
                os.close(number)
        self.news.sendall(json.dumps(request).encode() + b"\n")
        self.pid = self._number()
        self.news.setblocking(False)

    def _number(self) -> int:
        data = self.news.recv(4, socket.MSG_WAITALL)
        return struct.unpack("!i", data)[0] if len(data) == 4 else 255

    def poll(self) -> int | None:
        return self.returncode

    def end(self) -> int:
        self.returncode = self._number()
        self.news.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and its exit code is on the way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _ends(number: int, stream: Stream) -> tuple[IO[bytes] | None, int]:
    if stream == subprocess.PIPE:
        if number == 0 and sys.version_info < (3, 12):  # as asyncio does
            one, other = socket.socketpair()
            return open(one.detach(), "wb", 0), other.detach()
        source, sink = os.pipe()
        return (open(sink, "wb", 0), source) if number == 0 else (open(source, "rb", 0), sink)
    if stream == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_RDWR)
    if stream is None:
        return None, os.dup(number)
    return None, os.dup(stream if isinstance(stream, int) else stream.fileno())


class _ForkedTransport(base_subprocess.BaseSubprocessTransport):
    def _start(
        self, args: Any, shell: bool, stdin: Stream, stdout: Stream, stderr: Stream, bufsize: int, **more: Any
    ) -> None:
        forked = _Forked(more["server"], more["request"], [stdin, stdout, stderr])
        self._proc = cast("subprocess.Popen[bytes]", forked)
        self._loop.add_reader(forked.news, self._ended, self._loop, forked)

    def _ended(self, loop: asyncio.AbstractEventLoop, forked: _Forked) -> None:
        loop.remove_reader(forked.news)
        self._process_exited(forked.end())
