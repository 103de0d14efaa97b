"""Memory of both ends while a command prints 100 MB that scroll by in the REPL, against one that prints a line."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import psutil
from benchmarks.ratio import single
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.person.terminal import Terminal, terminal

MUCH = "for n in 1 2 3 4 5; do seq -f 'line %010g of much output that scrolls by' 450000; sleep 0.2; done"
FIRST, SECOND = "thefirst", "thesecond"
MAX_GROWTH_MB = 25
LOOK_S = 0.02
SIZE = (120, 40)


def _bash(command: str, end: str) -> list[dict[str, object]]:
    return [{"blocks": [{"type": "tool_use", "name": "Bash", "input": {"command": command}}]}, {"text": end}]


def _memory(screen: Terminal) -> tuple[float, float]:
    """Return the megabytes of the REPL and of the worker."""
    sizes = {True: 0.0, False: 0.0}
    own = psutil.Process(screen.process.pid)
    for process in psutil.process_iter(["cmdline", "environ"]):
        environ = process.info["environ"] or {}
        if environ.get("CCB_BENCH") == own.environ().get("CCB_BENCH") and "python" in process.name():
            sizes[process.pid == own.pid] += process.memory_info().rss / 1e6
    return sizes[True], sizes[False]


async def _turn(screen: Terminal, prompt: str, end: str) -> tuple[float, float]:
    """Run a turn. Return the most memory that both ends had meanwhile."""
    most = (0.0, 0.0)
    screen.type(f"{prompt}\r")
    while end.encode() not in screen.written:
        now = _memory(screen)
        most = max(most[0], now[0]), max(most[1], now[1])
        await asyncio.sleep(LOOK_S)
    return most


async def main() -> None:
    """Print what 100 MB of output cost."""
    async with FakeModel() as model:
        with tempfile.TemporaryDirectory(prefix="ccb-bench-") as home:
            env = {
                "PATH": os.environ["PATH"], "HOME": home, "TERM": "xterm-256color", "LANG": "C.UTF-8",
                "ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": model.url, "CCB_BENCH": home,
            }  # fmt: skip
            model.add(*_bash("echo a line", FIRST), *_bash(MUCH, SECOND))
            argv = [sys.executable, "-m", "ccb", "--local", home, "--allowedTools", "Bash"]
            async with terminal(argv, env, str(Path(home)), SIZE) as screen:
                await screen.shows("Ask for a change")
                before = await _turn(screen, "little", FIRST)
                during = await _turn(screen, "much", SECOND)
            assert "much output that scrolls by" in model.requests[-1].tool_result_text
    for end, first, most in zip(("REPL", "worker"), before, during, strict=True):
        single(f"{end}, growth while a command prints 100 MB", most - first, MAX_GROWTH_MB, unit="MB")
