"""A run that is forked from a process with its imports behind it is like one of a new interpreter."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.forking.process import fork_server, start_process

pytestmark = pytest.mark.programs
PIPE = asyncio.subprocess.PIPE
SOURCE = Path(__file__).resolve().parents[2] / "src"
LOOK = """
import __main__, asyncio, atexit, gc, json, logging, os, random, resource, signal, sys, tempfile, threading, time
def kept(number):
    return getattr(signal.getsignal(number), "__name__", signal.getsignal(number))
def stream(of):
    return [of.name, of.mode, of.encoding, of.errors, of.newlines, of.line_buffering, of.write_through, of.closed,
            of.isatty(), of.buffer.name, of.buffer.mode, of.buffer.raw.closefd, of.fileno()]
def about(pid, name):
    return open("/proc/%d/%s" % (pid, name), errors="surrogateescape").read().split("\\0")
said = {
    "arguments": [sys.argv, sys.orig_argv, sys.flags, sys.executable, sys.path, sys.prefix, sys.warnoptions],
    "main": sorted(vars(__main__).keys() - {"said", "LOOK"}), "is main": __name__,
    "environment": dict(os.environ), "place": [os.getcwd(), time.tzname, tempfile.gettempdir()],
    "shown": [about(os.getpid(), name) for name in ("cmdline", "environ", "comm")],
    "signals": [kept(number) for number in signal.valid_signals()], "blocked": list(signal.pthread_sigmask(0, [])),
    "limits": [resource.getrlimit(number) for number in range(16)], "masks": [os.umask(0), os.getpriority(0, 0)],
    "descriptors": [name for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)],
    "streams": [stream(sys.stdin), stream(sys.stdout), stream(sys.stderr), sys.stdin is sys.__stdin__],
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid(),
              os.isatty(0) and os.tcgetpgrp(0) == os.getpid()],
    "quiet": [gc.isenabled(), threading.active_count(), logging.getLogger().handlers, sys.gettrace() is None,
              asyncio.events._get_running_loop(), sys.excepthook is sys.__excepthook__],
}
sys.stdout.write(json.dumps(said) + "\\n")
sys.stderr.write(str(random.random()))
"""


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(SOURCE), **more}


async def both(words: list[str], **more: Any) -> list[tuple[int | None, bytes, bytes]]:
    """Return exit code, stdout and stderr of a new interpreter and of a forked run."""
    ended: list[tuple[int | None, bytes, bytes]] = []
    for kind in ("", "worker"):
        process = await start_process(kind, words, stdin=PIPE, stdout=PIPE, stderr=PIPE, **more)
        out, err = await process.communicate(b"given")
        ended.append((process.returncode, out, err))
    return ended


@contextmanager
def unusual() -> Iterator[None]:
    """The process of the test has a mask and a limit of its own, which new processes inherit."""
    mask, (soft, hard) = os.umask(0o027), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        yield
    finally:
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("how", ["-c", "-m"])
async def test_everything_that_a_program_can_see_is_as_in_a_new_interpreter(tmp_path: Path, how: str) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    env = environment(tmp_path, TZ="Asia/Kolkata", TMPDIR=str(tmp_path), ODD="a=b\n\udcff")
    assert fork_server("worker", env) is not None, "this machine has no fork server: the tests are slow"
    with unusual():
        words = [how, LOOK if how == "-c" else "look", "one", "", "ü"]
        anew, forked = await both(words, env=env, cwd=tmp_path, new_session=True)
    assert (forked[0], json.loads(forked[1])) == (0, json.loads(anew[1]))
    assert forked[2] != anew[2]  # random numbers


async def test_on_a_terminal_it_is_the_same_and_the_terminal_is_its_own(tmp_path: Path) -> None:
    said = []
    for kind in ("", "worker"):
        master, slave = pty.openpty()
        process = await start_process(
            kind, ["-c", LOOK], env=environment(tmp_path), cwd=tmp_path, stdin=slave, stdout=PIPE, stderr=slave,
            new_session=True, terminal=True,
        )  # fmt: skip
        os.close(slave)
        said.append(json.loads((await process.communicate())[0]))
        os.close(master)
    assert said[0] == said[1]
    assert said[1]["leads"] == [True, True, True]


ENDS = [
    ("import sys; sys.exit(7)", 7),
    ("import sys; sys.exit('text')", 1),
    ("import os; os._exit(9)", 9),
    ("raise ValueError('bad')", 1),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ("import atexit, threading\natexit.register(print, 'x')\nthreading.Thread(target=print, args='y').start()", 0),
    ("import sys; sys.stdout.write(sys.stdin.read()); print('no newline', end='')", 0),
]


@pytest.mark.parametrize(("program", "code"), ENDS)
async def test_it_ends_as_a_new_interpreter_ends(tmp_path: Path, program: str, code: int) -> None:
    anew, forked = await both(["-c", program], env=environment(tmp_path))
    assert (forked[0], forked[:2], forked[2].splitlines()[-1:]) == (code, anew[:2], anew[2].splitlines()[-1:])


async def test_what_an_interpreter_reads_at_its_start_starts_one(tmp_path: Path) -> None:
    env = environment(tmp_path, PYTHONUTF8="0", PYTHONIOENCODING="koi8-r")
    assert fork_server("worker", environment(tmp_path)) is not None
    assert fork_server("worker", env) is None
    process = await start_process("worker", ["-c", "import sys; print(sys.stdout.encoding)"], env=env, stdout=PIPE)
    assert (await process.communicate())[0] == b"koi8-r\n"
