"""Fuzzes the permission engine and the cage for a while, with a new seed: `make fuzz MINUTES=10`."""

from __future__ import annotations

import argparse
import random
import sys
import time
from contextlib import closing

from tests.remote.permissions.fuzz.rounds import Round, caged_round, denied_round, judged_round

from ccb.remote.sandbox.cage_server import CageServer

_LINES, _CAGED_LINES, _DENIED_LINES = 20_000, 1_000, 4_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeats a run")
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.minutes * 60
    judged, caged, denied, seed = Round(), Round(), Round(), arguments.seed
    with closing(CageServer()) as cages:
        has_cage = cages.availability().mechanism
        while time.monotonic() < until:
            judged += judged_round(seed, _LINES)
            if has_cage and not judged.trouble:
                caged += caged_round(seed, _CAGED_LINES, cages, corpus=seed == arguments.seed)
            if not (judged.trouble or caged.trouble):
                denied += denied_round(seed, _DENIED_LINES)
            _say(f"seed {seed}: {judged.judged:,} lines judged, {judged.let_through:,} of them let through,")
            _say(f"  {judged.ran:,} of these different and run; {caged.ran:,} lines run in the cage;")
            _say(f"  {denied.judged:,} lines judged by rules that deny, {denied.ran:,} of them let through and run")
            trouble = judged.trouble or caged.trouble or denied.trouble
            if trouble:
                _say(f"{trouble.what}, by:", *(repr(line) for line in trouble.lines))
                return 1
            seed += 1
    return 0


def _say(*lines: str) -> None:
    sys.stdout.write("\n  ".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
