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

from tests.support.model.model_script import Json

KEPT = Path(".make/faults")  # what is known of each session that came out differently


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
        said = Path(directory) / "pytest"
        started = time.monotonic()
        tests = ["tests/faults" if given.count > 1 else "tests/faults/test_faults.py"]
        command = [
            sys.executable, "-m", "pytest", *tests, "-q", "-n", str(min(given.jobs, given.count)),
            "--dist", "worksteal", "--basetemp", f"{directory}/base", "-p", "no:cacheprovider", "--tb=short",
            "--show-capture=no", "-o", "tmp_path_retention_policy=none",
        ]  # fmt: skip
        env = {**os.environ, "CCB_FAULT_SEEDS": f"{given.seed}:{given.count}", "CCB_FAULT_LOG": str(log)}
        with said.open("w") as output:
            running = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT)
            _follow(log, running, given.count, started)
        sessions = [json.loads(line) for line in log.read_text().splitlines()]
        report(sessions, time.monotonic() - started)
        if running.returncode and not any(session["wrong"] for session in sessions):
            sys.stdout.write(said.read_text()[-8000:])
    return 1 if running.returncode or len(sessions) != given.count else 0


def _follow(log: Path, running: subprocess.Popen[bytes], count: int, started: float) -> None:
    """Say what goes wrong when it does, and every hundred sessions how far it is."""
    seen = 0
    while True:
        ended = running.poll() is not None
        lines = [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        for place, session in enumerate(lines[seen:], seen + 1):
            if session["wrong"]:
                what = session["wrong"].splitlines()[0][:200]
                KEPT.mkdir(parents=True, exist_ok=True)
                (KEPT / f"seed-{session['seed']}.txt").write_text(f"{session['wrong']}\n\n{session['evidence']}\n")
                _say(
                    f"FAILED {session['plan']}: {what}\n"
                    f"    again: make faults N=1 SEED={session['seed']}; more in {KEPT}"
                )
            if place % 100 == 0:
                _say(f"{place} of {count} after {(time.monotonic() - started) / 60:.1f} min")
        seen = len(lines)
        if ended:
            return
        time.sleep(1.0)


def report(sessions: list[Json], seconds: float) -> None:
    kinds = Counter(kind for session in sessions for kind in session["happened"])
    recovered = sorted(took for session in sessions for took in session["recovered_s"])
    failed = [session for session in sessions if session["wrong"]]
    _say(f"{len(sessions)} sessions in {seconds / 60:.1f} min, {len(failed)} came out differently")
    for kind, count in kinds.most_common():
        _say(f"  {kind:16} {count:6}")
    _say(f"  {'SSH connections':16} {sum(session['connections'] for session in sessions):6}")
    _say(f"  {'reconnects':16} {len(recovered):6}")
    if recovered:
        median = statistics.median(recovered)
        _say(f"  connected again {median:.2f} s (median), {recovered[-1]:.1f} s (longest) after a loss was known")
    for session in failed:
        what = session["wrong"].splitlines()[0][:160]
        _say(f"FAILED seed {session['seed']}: {what} (make faults N=1 SEED={session['seed']})")
        if len(sessions) == 1:
            _say(session["wrong"])


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
