"""A key in `ccb shell` until its echo is there, and 10 MB of output, beside `ssh -t`, at 50 and 0 ms one way."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from benchmarks.ratio import compare, in_turn, versus
from tests.support.hosts.sshd import HostUser, Sshd, host_user, sshd
from tests.support.network.relay import Relay, relay
from tests.support.person.terminal import Terminal, terminal

MOST = 1.1
RUNS = 9
_FLOODS = 3
_BYTES = 10_000_000
_LETTERS = itertools.cycle("abcdefghijklm")


def _key(screen: Terminal) -> Callable[[], Awaitable[float]]:
    async def run() -> float:
        letter, seen, began = next(_LETTERS), len(screen.written), time.monotonic()
        screen.type(letter)
        await screen.until(lambda: letter.encode() in screen.written[seen:])
        took = time.monotonic() - began
        seen = len(screen.written)
        screen.type("\x7f")
        await screen.until(lambda: len(screen.written) > seen)
        return took

    return run


def _flood(screen: Terminal, way: Relay, crossed: list[int]) -> Callable[[], Awaitable[float]]:
    async def run() -> float:
        screen.written.clear()
        began, before = time.monotonic(), way.down
        screen.type(f"seq 1000000 {1000000 + _BYTES // 8}; echo 'the 'end\r")
        await screen.until(lambda: b"the end" in screen.written[-4096:])
        crossed.append(way.down - before)
        return time.monotonic() - began

    return run


def _ssh(server: Sshd, user: HostUser, between: int, env: dict[str, str]) -> AbstractAsyncContextManager[Terminal]:
    options = [f"UserKnownHostsFile={server.trust(between)}", "IdentitiesOnly=yes"]
    words = [word for option in options for word in ("-o", option)]
    argv = ["ssh", "-t", "-p", str(between), "-i", str(server.identity), *words, f"{user.name}@127.0.0.1"]
    return terminal(argv, env, "/", (120, 40))


@asynccontextmanager
async def _both(server: Sshd, user: HostUser, between: int, top: Path) -> AsyncIterator[tuple[Terminal, Terminal]]:
    home = top / f"laptop-{between}"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    words = ["shell", f"{user.name}@127.0.0.1:~", *server.client_options(between)]
    async with (
        terminal([sys.executable, "-m", "ccb", *words], env, str(top), (120, 40)) as ours,
        _ssh(server, user, between, env) as theirs,
    ):
        for screen in (ours, theirs):
            await screen.shows("$ ")
        yield ours, theirs


async def main() -> None:
    """Print how a shell compares with `ssh -t`."""
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name, host_user(Path(name)) as user:
        top = Path(name)
        async with sshd(top / "sshd") as server:
            for delay_s in (0.05, 0.0):
                async with (
                    relay(server.port, delay_s=delay_s) as between,
                    _both(server, user, between.port, top) as (ours, theirs),
                ):
                    way = f"{delay_s * 1000:.0f} ms one way"
                    mine, others = await in_turn(_key(ours), _key(theirs), runs=RUNS)
                    compare(f"echo of a key, {way}", mine, "ssh -t", others, MOST if delay_s else None)
                    bytes_of: tuple[list[int], list[int]] = [], []
                    floods = _flood(ours, between, bytes_of[0]), _flood(theirs, between, bytes_of[1])
                    mine, others = await in_turn(*floods, runs=_FLOODS)
                    compare(f"{_BYTES // 1_000_000} MB of output, {way}", mine, "ssh -t", others, None)
                    sent = [min(each) / 1e6 for each in bytes_of]
                    versus(f"the same in bytes, {way}", sent[0], "ssh -t", sent[1], MOST, unit="MB")
