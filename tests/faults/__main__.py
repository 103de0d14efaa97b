"""`make faults`: many seeds in parallel, then what came of them. Exit code 1 when a session came out differently."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--jobs", type=int, default=8)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ccb-faults-") as directory:
        Path(directory).chmod(0o755)
        log = Path(directory) / "log"
        log.touch()
        started = time.monotonic()
        command = [
            sys.executable, "-m", "pytest", "tests/faults", "-q", "-n", str(given.jobs), "--dist", "worksteal",
            "--basetemp", f"{directory}/base", "-p", "no:cacheprovider", "--tb=short", "--show-capture=no",
        ]  # fmt: skip
        env = {**os.environ, "CCB_FAULT_SEEDS": f"{given.seed}:{given.count}", "CCB_FAULT_LOG": str(log)}
        code = subprocess.run(command, env=env, check=False).returncode
        report([json.loads(line) for line in log.read_text().splitlines()], time.monotonic() - started)
    if code:
        print("Repeat one seed with: make faults N=1 SEED=<seed>")
    return 1 if code else 0


def report(sessions: list[dict[str, Any]], seconds: float) -> None:
    """The table at the end."""
    kinds: Counter[str] = Counter()
    for session in sessions:
        kinds.update(step["kind"] for step in session["plan"]["steps"])
        kinds.update(filter(None, [session["plan"]["ending"]]))
    print(f"\n{len(sessions)} sessions in {seconds / 60:.1f} min")
    for kind, count in kinds.most_common():
        print(f"  {kind:12} {count:6} planned")
    if sessions:
        print(f"  {'connections':12} {sum(session['connections'] for session in sessions):6}")
        took = sorted(session["seconds"] for session in sessions)
        print(f"  a session took {statistics.median(took):.1f} s (median), {took[-1]:.1f} s (longest)")


if __name__ == "__main__":
    sys.exit(main())
