"""What a burst of requests has used goes back to the system."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_BURST = """
import asyncio, sys
from pathlib import Path
from ccb.tunnel.heap import FreedMemory

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

async def main():
    kept, bodies = [], []
    for number in range(100):
        bodies.append(b"x" * (200_000 + number))
        kept.append([number] * 100)
    del bodies
    before = resident_mb()
    freed = FreedMemory()
    for _ in range(100):
        freed.add(200_000)
    await freed.close()
    print(before - resident_mb())

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc keeps it")
def test_memory_of_many_requests_is_given_back() -> None:
    # Blocks of this size are in its heap, and nothing of that is given back by itself, wherever it lies.
    keeps = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_TRIM_THRESHOLD_": "1000000000"}
    assert float(ran(keeps, _BURST)) > 10


def ran(environ: dict[str, str], *program: str) -> str:
    """What a program printed whose glibc is set in this way."""
    argv, env = [sys.executable, "-c", *program], {**os.environ, **environ}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60).stdout


_READS = """
import resource, socket
from ccb.tunnel.heap import keep_receive_buffers

keep_receive_buffers()
near, far = socket.socketpair()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(1000):
    near.send(b"event")
    far.recv(256 * 1024)  # as asyncio does
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc is told")
def test_a_read_from_a_socket_needs_no_new_memory() -> None:
    """Without the function there are 1,000 to 2,000 faults, unless the program has left that much memory free."""
    assert int(ran({"MALLOC_MMAP_THRESHOLD_": "131072"}, _READS)) <= 100
