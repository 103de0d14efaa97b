"""Memory of the worker: idle under 30 MB, and under 60 MB while Bash runs `yes | head -c 1G`.

The peer is the shell command alone.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks.session_run import run_ccb
from tests.support.fake_model import FakeModel

COMMAND = "yes | head -c 1G"


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        home = Path(name)
        start = time.monotonic()
        alone = await asyncio.create_subprocess_shell(f"{COMMAND} | cat > /dev/null")
        await alone.wait()
        base = time.monotonic() - start
        call = {"type": "tool_use", "name": "Bash", "input": {"command": COMMAND}}
        async with FakeModel([{"blocks": [call]}, {"text": "done"}]) as model:
            run = await run_ccb([str(home)], model, home, watch=True)
            sent = len(model.requests[1].tool_result_text)
        print(f"worker idle {run.worker_idle_mb:.0f} MB (limit 30)")
        print(
            f"{COMMAND}: worker at most {run.worker_peak_mb:.0f} MB (limit 60), "
            f"{sent} characters to the model (limit 30000), "
            f"{(run.result_s - run.hello_s) / base:.1f} times the command into cat"
        )


if __name__ == "__main__":
    asyncio.run(main())
