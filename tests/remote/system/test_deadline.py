"""Waits with a deadline, and threads where the host limits them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import subprocess
import sys
import time

import pytest
from tests.support.machine.programs import with_sources

from ccb.remote.system.deadline import Threads, within


async def test_work_gives_its_result_or_its_error_or_is_cancelled_when_it_is_late() -> None:
    async def fail() -> None:
        raise OSError("no")

    assert await within(5, asyncio.sleep(0, 7)) == 7
    with pytest.raises(asyncio.TimeoutError):
        await within(0, asyncio.Event().wait())
    with pytest.raises(OSError, match="no"):
        await within(5, fail())


async def test_what_late_work_raises_when_it_is_cancelled_is_not_reported_as_lost() -> None:
    lost: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    with pytest.raises(asyncio.TimeoutError):
        await within(0.001, asyncio.gather(asyncio.Event().wait(), asyncio.Event().wait()))
    gc.collect()
    assert not lost


async def test_a_cancellation_counts_also_when_the_result_is_there() -> None:
    set_now = asyncio.Event()
    waiting = asyncio.ensure_future(within(5, set_now.wait()))
    for _ in range(3):
        await asyncio.sleep(0)
    set_now.set()
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


SOMEBODY = 100_000 + os.getpid()  # who owns no process, nor does that of another run


def done_at_the_limit() -> int:
    """Return how many of eight parallel jobs get done for a user who may have one thread beside the first."""
    resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
    os.setuid(SOMEBODY)
    done: list[None] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(Threads())
        done.extend(await asyncio.gather(*(loop.run_in_executor(None, time.sleep, 0.01) for _ in range(8))))

    with contextlib.suppress(RuntimeError):  # closing the loop takes a thread of its own
        asyncio.run(work())
    return len(done)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_work_waits_for_the_threads_that_there_may_be() -> None:
    child = os.fork()
    if child == 0:
        os._exit(done_at_the_limit())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 8


DEEP = """
from ccb.remote.system.deadline import Threads
def deep(left): return 0 if left == 0 else max([left], key=lambda _: deep(left - 1))
print(Threads().submit(deep, 300).result())
"""


def test_a_recursion_that_python_allows_fits_on_the_stack_of_a_thread() -> None:
    argv = ["sh", "-c", 'ulimit -s 160; exec "$@"', "sh", sys.executable, "-c", DEEP]
    given = subprocess.run(argv, env=with_sources(), capture_output=True, text=True, check=False)
    assert (given.returncode, given.stdout) == (0, "300\n"), given.stderr
