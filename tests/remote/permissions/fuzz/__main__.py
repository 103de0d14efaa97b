"""Fuzzes the permission engine and the cage for a while, with a new seed: `make fuzz MINUTES=10`."""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from contextlib import closing

from tests.remote.permissions.fuzz.rounds import caged_round, denied_round, judged_round

from ccb.remote.sandbox.cage_server import CageServer

_LINES, _CAGED_LINES, _DENIED_LINES = 20_000, 1_000, 4_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeats a run")
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.minutes * 60
    with closing(CageServer()) as cages:
        for seed in itertools.takewhile(lambda _: time.monotonic() < until, itertools.count(arguments.seed)):
            rounds = {
                "judged": judged_round(seed, _LINES),
                "judged by rules that deny": denied_round(seed, _DENIED_LINES),
            }
            if cages.availability().mechanism:
                rounds["in the cage"] = caged_round(seed, _CAGED_LINES, cages, corpus=seed == arguments.seed)
            for name, done in rounds.items():
                sys.stdout.write(f"seed {seed}, {name}: {done}\n")
            sys.stdout.flush()
            if any(done.trouble for done in rounds.values()):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
