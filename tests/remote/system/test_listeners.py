"""Which ports count as those of the session: what its own processes listen on, where the loopback reaches it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ccb.remote.system.listeners import listeners_below, listeners_named

_LISTEN = """
import os, socket, sys, time
if sys.argv[2] == "apart": os.setsid()
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.socket(family)
server.bind((sys.argv[1], 0))
server.listen()
print(server.getsockname()[1], flush=True)
time.sleep(600)
"""


@asynccontextmanager
async def listener(address: str, how: str = "") -> AsyncIterator[tuple[int, int]]:
    """A child that listens. Yields its port and its pid."""
    words = [sys.executable, "-c", _LISTEN, address, how]
    child = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    try:
        yield int(await child.stdout.readline()), child.pid
    finally:
        child.kill()
        await child.wait()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
@pytest.mark.parametrize("how", ["", "apart"])
async def test_a_child_that_listens_is_found_with_its_program_also_in_a_session_of_its_own(
    address: str, how: str
) -> None:
    async with listener(address, how) as (port, _):
        assert listeners_below(os.getpid())[port].startswith("python")


async def test_ports_of_other_processes_and_own_connections_are_not_looked_at() -> None:
    async with listener("127.0.0.1") as (port, pid):
        with socket.create_connection(("127.0.0.1", port)):
            assert port not in listeners_below(pid), "it is no child of itself"
            assert port in listeners_below(os.getpid())


@pytest.mark.parametrize(
    "printed, ports",
    [
        ("  VITE v6 ready\n  Local: http://localhost:5173/\n  Network: http://192.168.1.2:5173/", [5173]),
        ("Serving on http://0.0.0.0:8000 and https://[::1]:8443/x", [8000, 8443]),
        ("http://[::]:9000 http://127.0.0.1:9000", [9000]),
        ("http://localhost:0 http://localhost:70000 http://localhost http://localhost.example.org:80", []),
        (" ".join(f"http://localhost:{port}" for port in range(1, 60_000)), [*range(1, 101)]),
    ],
)
def test_urls_in_the_output_of_commands_name_ports_where_the_system_does_not(printed: str, ports: list[int]) -> None:
    assert listeners_named([("npm run dev", printed)]) == dict.fromkeys(ports, "npm run dev")
