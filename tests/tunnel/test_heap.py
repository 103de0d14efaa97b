"""What a burst of requests has used goes back to the system."""

from __future__ import annotations

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
    bytes(1_000_000)  # from now on glibc takes blocks of this size from its heap
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
    ran = subprocess.run([sys.executable, "-c", _BURST], capture_output=True, text=True, check=True, timeout=60)
    assert float(ran.stdout) > 10


_READS = """
import resource, socket, sys
from ccb.tunnel.heap import keep_receive_buffers

if sys.argv[1] == "kept":
    keep_receive_buffers()
near, far = socket.socketpair()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(1000):
    near.send(b"event")
    far.recv(256 * 1024)  # as asyncio does
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc is told")
@pytest.mark.parametrize(("how", "least", "most"), [("asked for each time", 1000, None), ("kept", 0, 100)])
def test_a_read_from_a_socket_needs_no_new_memory(how: str, least: int, most: int | None) -> None:
    ran = subprocess.run([sys.executable, "-c", _READS, how], capture_output=True, text=True, check=True, timeout=60)
    faults = int(ran.stdout)
    assert faults >= least and (most is None or faults <= most)
