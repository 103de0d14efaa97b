"""A large /get beside a streaming answer, against scp of the same file beside the same session: how long it takes, and
what a key takes until it is on the screen meanwhile.

An argument is the size of the file in MB (1,000 without one).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.ratio import compare, in_turn
from tests.support.hosts.sshd import HostUser, Sshd, host_user, sshd
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.person.terminal import Terminal, terminal

RUNS = 3
MAX_TIMES = 1 / 0.8
MAX_KEY_TIMES = 1.25
LETTERS = "бгджзилпфцчшщэюя"  # none of them is in the answer
ANSWER = "".join(f"Line {number} of an answer that goes on for a while.\n\n" for number in range(8_000))
PIECE, PAUSE_S = 24, 0.06  # characters: 100 tokens a second
REST_S = 0.1
SIZE = (120, 40)


@dataclass
class Person:
    """Types letters into the session and looks how soon each is there."""

    screen: Terminal
    letters: itertools.cycle[str] = field(default_factory=lambda: itertools.cycle(LETTERS))

    async def type_while(self, work: Awaitable[object], waits: list[float]) -> float:
        """Type until `work` is done. Return its seconds, and add to `waits` what each letter has taken."""
        working = asyncio.ensure_future(_seconds(work))
        while not (await asyncio.wait({working}, timeout=REST_S))[0]:
            waits.append(await self._letter())
        return await working

    async def _letter(self) -> float:
        letter, seen, began = next(self.letters), len(self.screen.written), time.monotonic()
        self.screen.type(letter)
        await self.screen.until(lambda: letter.encode() in self.screen.written[seen:])
        took = time.monotonic() - began
        self.screen.type("\x7f")
        return took


async def _seconds(work: Awaitable[object]) -> float:
    began = time.monotonic()
    await work
    return time.monotonic() - began


@asynccontextmanager
async def _session(server: Sshd, user: HostUser, model: FakeModel, top: Path) -> AsyncIterator[Terminal]:
    """A REPL on a pseudo terminal in which an answer streams."""
    home = top / "laptop"
    home.mkdir()
    env = {
        "PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8",
        "ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": model.url,
    }  # fmt: skip
    argv = [sys.executable, "-m", "ccb", "ssh", f"{user.name}@127.0.0.1:~", *server.client_options(), "go"]
    async with terminal(argv, env, str(top), SIZE) as screen:
        await screen.until(lambda: b"Line 20 of" in screen.written)
        yield screen


def _scp(server: Sshd, user: HostUser, source: Path, target: Path) -> Callable[[], Awaitable[None]]:
    options = [
        "-o",
        f"UserKnownHostsFile={server.trust(server.port)}",
        "-o",
        "IdentitiesOnly=yes",
        "-o",
        "BatchMode=yes",
    ]
    argv = ["scp", "-q", "-P", str(server.port), "-i", str(server.identity), *options]

    async def run() -> None:
        process = await asyncio.create_subprocess_exec(*argv, f"{user.name}@127.0.0.1:{source}", str(target))
        assert await process.wait() == 0
        target.unlink()

    return run


def _get(screen: Terminal, source: Path, target: Path) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        screen.type(f"/get {source} {target}\r")
        while not target.exists():
            await asyncio.sleep(0.01)
        target.unlink()

    return run


def _print_keys(what: str, ours: list[float], theirs: list[float]) -> None:
    compare(f"a key beside {what}, median", ours, "beside scp", theirs, MAX_KEY_TIMES)
    late, base = statistics.quantiles(ours, n=100)[98], statistics.quantiles(theirs, n=100)[98]
    compare(f"a key beside {what}, p99", [late], "beside scp", [base], None)


async def main() -> None:
    """Print how /get compares with scp."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name, host_user(Path(name)) as user:
        top, source = Path(name), user.home / "large"
        command = f"head -c {size}M /dev/urandom > {source} && chmod 644 {source}"
        subprocess.run(["sh", "-c", command], check=True)
        async with sshd(top / "sshd") as server, FakeModel() as model:
            model.add({"text": ANSWER, "pieces": [PIECE], "delay": PAUSE_S})
            async with _session(server, user, model, top) as screen:
                person, beside_get, beside_scp = Person(screen), list[float](), list[float]()
                get, scp = _get(screen, source, top / "got"), _scp(server, user, source, top / "copied")
                ours, theirs = await in_turn(
                    lambda: person.type_while(get(), beside_get),
                    lambda: person.type_while(scp(), beside_scp),
                    runs=RUNS,
                )
        compare(f"/get of {size:,} MB beside a streaming answer", ours, "scp", theirs, MAX_TIMES)
        _print_keys("/get", beside_get, beside_scp)
