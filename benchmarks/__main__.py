"""`make bench`: every benchmark, each in processes of its own, as one table. `python -m benchmarks NAME [WORD …]` runs
one of them.

A benchmark whose peer is not installed fails: a figure without its peer says nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.ratio import HEADER, PeerMissing

_SCRIPTS = Path(__file__).parent.glob("[a-z]*.py")
NAMES = sorted(path.stem for path in _SCRIPTS if "async def main(" in path.read_text("utf-8"))


def main() -> int:
    os.environ["CCB_TESTS_FRESH"] = "1"  # a process that is forked from a warm interpreter would start too soon
    if sys.argv[1:]:
        return _one(sys.argv.pop(1))
    print(HEADER, flush=True)
    failed = [name for name in NAMES if subprocess.call([sys.executable, "-m", "benchmarks", name])]
    if failed:
        print(f"did not run to their ends: {', '.join(failed)}")
    return bool(failed)


def _one(name: str) -> int:
    run = importlib.import_module(f"benchmarks.{name}").main
    try:
        asyncio.run(run())
    except PeerMissing as missing:
        print(f"{name}: {missing}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
