"""CPU of `ccb --version` (limit 100 ms) and `ccb --help`, against a bare interpreter in the same run."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

RUNS = 15


def _cpu_ms(*argv: str) -> float:
    """Return the user and system time of a child process, the median of RUNS."""
    taken = []
    for _ in range(RUNS):
        before = os.times()
        subprocess.run(argv, check=True, capture_output=True)
        after = os.times()
        taken.append(
            (after.children_user + after.children_system - before.children_user - before.children_system) * 1000
        )
    return statistics.median(taken)


def main() -> None:
    bare = _cpu_ms(sys.executable, "-c", "pass")
    print(f"python -c pass   {bare:4.0f} ms CPU")
    for flag, limit in (("--version", " (limit 100)"), ("--help", "")):
        taken = _cpu_ms(sys.executable, "-m", "ccb", flag)
        print(f"ccb {flag:<12} {taken:4.0f} ms CPU{limit}, {taken / bare:.1f} times the bare interpreter")


if __name__ == "__main__":
    main()
