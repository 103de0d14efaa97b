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
