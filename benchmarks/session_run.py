"""One headless run of the real command against a scripted model, with its times and its memory."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.support.model.fake_model import API_KEY, FakeModel

CCB = str(Path(sys.executable).with_name("ccb"))
"""The program as it is installed beside this interpreter."""

_OUTPUT = ("--output-format", "stream-json", "--verbose", "--allowedTools", "Bash")
_HELLO = re.compile(r"^(\S+ \S+) INFO ccb\.local\.connect\.dialer: hello from worker pid (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """Seconds since the process started: `hello_s` (0 without a log), `init_s`, `result_s` and `end_s`; `result` is
    its message. `worker_idle_mb` is the daemon's memory (RSS) at hello or soon after, `worker_peak_mb` its greatest."""

    hello_s: float
    init_s: float
    result_s: float
    end_s: float
    result: dict[str, Any]
    worker_idle_mb: float
    worker_peak_mb: float


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process in MB; 0 if the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0.0
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


async def run_ccb(
    target: Sequence[str], model: FakeModel, home: Path, prompt: str = "go", *, log: bool = True, watch: bool = False
) -> Run:
    """Run `ccb TARGET… -p PROMPT`; `log` has it write the log that tells when the worker said hello; `watch` samples
    the worker's memory (local sessions)."""
    home.mkdir(exist_ok=True)
    for old in home.rglob("ccb-*.log"):
        old.unlink()
    env = {
        "PATH": os.environ["PATH"], "HOME": str(home), "ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": model.url,
    }  # fmt: skip
    command = [CCB, *target, *(["--debug"] if log else []), "-p", prompt, *_OUTPUT]
    start = time.time()
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, env=env, limit=64 * 1024 * 1024
    )
    samples: list[float] = []
    sampling = asyncio.create_task(_sample(home, samples)) if watch else None
    result: dict[str, Any] = {}
    init_s = result_s = 0.0
    assert process.stdout is not None
    async for line in process.stdout:
        took = time.time() - start
        message = json.loads(line)
        if message["type"] == "result":
            result, result_s = message, took
        elif message.get("subtype") == "init":
            init_s = took
    assert await process.wait() == 0, result
    end_s = time.time() - start
    if sampling is not None:
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
    said = _hello(home) if log else None
    assert said is not None or not log, "the log does not tell when the worker said hello"
    hello_s = said[0] - start if said else 0.0
    return Run(hello_s, init_s, result_s, end_s, result, samples[0] if samples else 0.0, max(samples, default=0.0))


async def _sample(home: Path, samples: list[float]) -> None:
    """Note the worker's memory every 10 ms once its pid is in the log."""
    found = None
    while found is None:
        await asyncio.sleep(0.01)
        found = _hello(home)
    await asyncio.sleep(0.3)  # the agent's modules are loaded after hello
    while True:
        samples.append(rss_mb(found[1]))
        await asyncio.sleep(0.01)


def _hello(home: Path) -> tuple[float, int] | None:
    for log in home.rglob("ccb-*.log"):
        found = _HELLO.search(log.read_text(encoding="utf-8"))
        if found:
            return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").timestamp(), int(found[2])
    return None
