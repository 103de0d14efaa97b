"""What the cages cost: `true`, a search and `git status` in each cage against the same without one, by turns in a run.
The cage that only reads may cost 6 ms a command."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.ratio import compare, single

from ccb.remote.sandbox.cage_rules import CageRules, read_only_rules, workspace_rules
from ccb.remote.sandbox.cage_server import CageServer
from ccb.remote.system.host import Host

RUNS = 60
FILES = 3000
LIMIT_MS = 6.0
COMMANDS = {
    "true": ["true"],
    "search in 3,000 files": ["rg", "-c", "needle"],
    "git status of 3,000 files": ["git", "status", "--short"],
}


def _make_project(root: Path) -> None:
    for number in range(FILES):
        path = root / f"d{number % 60}" / f"f{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"line {number}\n" * 40 + ("needle\n" if number % 100 == 0 else ""))
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.fsmonitor=false"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", *who, *arguments], cwd=root, check=True)


async def _once(host: Host, argv: list[str], root: Path, cage: CageRules | None) -> float:
    """Return the seconds until the command has ended."""
    began = time.perf_counter()
    process = await host.start(argv, str(root), lambda data: None, None, cage)
    code = await process.wait()
    assert code == 0, argv
    return time.perf_counter() - began


async def _measure(name: str, root: Path, cages: dict[str, tuple[Host, CageRules | None]]) -> None:
    """Compare a command in each cage with the same command without one."""
    taken: dict[str, list[float]] = {cage: [] for cage in cages}
    for _ in range(RUNS):
        for cage, (host, rules) in cages.items():
            taken[cage].append(await _once(host, COMMANDS[name], root, rules))
    base = taken.pop("no cage")
    for cage, values in taken.items():
        compare(f"{name}, {cage}", values, "no cage", base, None)
        if cage == "read-only":
            more = statistics.median(values) - statistics.median(base)
            single("the same, added", more * 1000, LIMIT_MS, unit="ms")


async def main() -> None:
    host, without_landlock = Host(), Host(cages=CageServer(most_abi=0))
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        root = Path(name)
        _make_project(root)
        where = [name], os.environ, os.path.expanduser("~")
        cages: dict[str, tuple[Host, CageRules | None]] = {"no cage": (host, None)}
        began = time.perf_counter()
        available = host.cages()
        single("the zygote, started and probed", (time.perf_counter() - began) * 1000, unit="ms")
        began = time.perf_counter()
        rules = read_only_rules(*where)
        single("the rules of a cage, made", (time.perf_counter() - began) * 1000, unit="ms")
        if available.mechanism:
            cages["read-only"] = host, rules
        if available.workspace:
            cages["workspace"] = host, workspace_rules(*where)
        if without_landlock.cages().mechanism == "namespaces":
            cages["read-only without Landlock"] = without_landlock, rules
        for command in COMMANDS:
            await _measure(command, root, cages)
        host.close()
        without_landlock.close()
