"""A container without an engine: namespaces, entered by programs called docker, kubectl and srun. Root only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.support.machine.programs import shell_script

_ENTER = (
    "nsenter --target {pid} --mount --pid --uts --ipc --wd=/root -- env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root"
)

_DOCKER = """#!/bin/sh
case "$1 $2" in
  "container inspect") [ "$3" = web ] && echo "[]" && exit 0; echo "Error: No such container: $3" >&2; exit 1;;
  "exec -i")
    [ "$3" = web ] || {{ echo "Error response from daemon: No such container: $3" >&2; exit 1; }}
    shift 3; exec {enter} "$@";;
esac
echo "unknown command: docker $*" >&2; exit 125
"""

_KUBECTL = """#!/bin/sh
[ "$1 $2" = "exec -i" ] || exit 2
[ "$3" = web ] || {{ echo "Error from server (NotFound): pods \\"$3\\" not found" >&2; exit 1; }}
[ "$4" = "--" ] || exit 2
shift 4; exec {enter} "$@"
"""

_SRUN = """#!{python}
import os, pty, sys, threading
if sys.argv[1] != "--pty":
    sys.exit(2)
pid, terminal = pty.fork()
if pid == 0:
    words = "{enter}".split() + sys.argv[2:]
    os.execvp(words[0], words)

def feed():
    while data := os.read(0, 65536):
        while data:
            data = data[os.write(terminal, data):]

threading.Thread(target=feed, daemon=True).start()
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:
        break
    if not data:
        break
    while data:
        data = data[os.write(1, data):]
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
"""


@dataclass(frozen=True)
class Container:
    """A running one. `bin` holds docker, kubectl and srun, which enter it."""

    pid: int
    bin: Path

    def path(self, inside: str) -> Path:
        return Path(f"/proc/{self.pid}/root{inside}")

    def processes(self) -> list[psutil.Process]:
        here = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = []
        for process in psutil.process_iter():
            try:
                inside = process.pid != self.pid and os.readlink(f"/proc/{process.pid}/ns/pid") == here
                if inside and process.status() != psutil.STATUS_ZOMBIE:  # its first process waits for none
                    found.append(process)
            except (OSError, psutil.NoSuchProcess):
                continue
        return found


@contextmanager
def container(directory: Path) -> Iterator[Container]:
    """A container called `web` with its own /root, /tmp, processes and host name."""
    start = (
        "hostname web && mount -t tmpfs -o mode=700 tmpfs /root && mount -t tmpfs -o mode=1777 tmpfs /tmp && "
        "mkdir /root/app && echo ready && exec sleep infinity"
    )
    process = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc", "sh", "-c", start],
        stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        (first,) = psutil.Process(process.pid).children()
        programs = directory / "engines"
        programs.mkdir()
        enter = _ENTER.format(pid=first.pid)
        for program, text in (("docker", _DOCKER), ("kubectl", _KUBECTL), ("srun", _SRUN)):
            shell_script(programs / program, text.format(enter=enter, python=sys.executable))
        yield Container(first.pid, programs)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
