"""Grep over a git repository of 100,000 files: against `rg` where that is installed, and without it against
`git grep`."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ccb.remote.tools.search_tools import Grep
from ccb.remote.tools.tool_contract import ToolContext
from ccb.remote.tools.toolset import close_context, make_context

from .ratio import Measure, PeerMissing, compare, in_turn

FILES = 100_000
MATCHING = 200
RUNS = 15
WITH_RIPGREP = 1.2
WITHOUT = 2.0
PATTERNS = {"a word": "needle_[0-9]+", "words in a line": "needle.*haystack"}


_OF_A_HOST = "/usr/bin/python3"
"""Search programs start with the Python of a host, which is quicker than one that a developer compiled."""


async def main() -> None:
    if os.path.exists(_OF_A_HOST) and os.path.realpath(sys.executable) != os.path.realpath(_OF_A_HOST):
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
        os.execve(_OF_A_HOST, [_OF_A_HOST, "-m", "benchmarks", "grep"], environment)
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as directory:
        root = Path(directory)
        _make_project(root)
        await _measure(root)


def _make_project(root: Path) -> None:
    for number in range(FILES):
        path = root / f"p{number % 50}" / f"d{number // 50 % 40}" / f"file_{number}.py"
        if number < 2000:
            path.parent.mkdir(parents=True, exist_ok=True)
        found = f"    needle_{number} = haystack\n" if number % (FILES // MATCHING) == 0 else ""
        path.write_text(f"def function_{number}(value):\n    return value + {number}\n\n" * 12 + found)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", *who, *arguments], cwd=root, check=True)


async def _measure(root: Path) -> None:
    path = os.environ["PATH"]
    for peer, search_path in (("rg", path), ("git grep", str(_without_ripgrep(root)))):
        if not shutil.which(peer.split()[0]):
            raise PeerMissing(f"`{peer}` is not installed here")
        os.environ["PATH"] = search_path
        context = make_context(str(root), "")
        os.environ["PATH"] = path
        for name, pattern in PATTERNS.items():
            argv = [*peer.split(), "-l", "-E" if peer == "git grep" else "-e", pattern]
            ours, theirs = await in_turn(_grep(context, pattern), _program(argv, root), runs=RUNS)
            limit = WITH_RIPGREP if peer == "rg" else WITHOUT
            compare(f"Grep over {FILES:,} files, {name}", ours, peer, theirs, limit)
        await close_context(context)


def _without_ripgrep(root: Path) -> Path:
    """Return a directory of programs, as on a host where nobody has installed ripgrep."""
    programs = root / ".git" / "programs"
    programs.mkdir()
    for name in ("git", "grep", "sh"):
        (programs / name).symlink_to(shutil.which(name) or name)
    return programs


def _grep(context: ToolContext, pattern: str) -> Measure:
    async def measure() -> float:
        began = time.perf_counter()
        result = await Grep().run({"pattern": pattern}, context)
        taken = time.perf_counter() - began
        assert str(result.content).startswith(f"Found {MATCHING} files"), result.content
        return taken

    return measure


def _program(argv: list[str], root: Path) -> Measure:
    async def measure() -> float:
        began = time.perf_counter()
        found = await asyncio.to_thread(subprocess.run, argv, cwd=root, check=True, capture_output=True)
        taken = time.perf_counter() - began
        assert found.stdout.count(b"\n") == MATCHING
        return taken

    return measure
