"""A scripted turn of 20 tool calls at 100 ms round trip against the same turn at 0 ms.

It may cost 2 round trips more, plus one for each model call. The peer is a design that runs each tool from the laptop:
one round trip a tool call at the least (figures.md).
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.ratio import single
from benchmarks.session_run import run_ccb
from tests.support.hosts.sshd import host_user, sshd
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import relay

RUNS = 3
DELAY_S = 0.05
TOOLS = 20


def _tool(number: int) -> dict[str, Any]:
    return {"type": "tool_use", "name": "Bash", "input": {"command": f"echo {number}"}}


ONE_CALL: list[dict[str, Any]] = [{"blocks": [_tool(number) for number in range(TOOLS)]}, {"text": "done"}]
EACH: list[dict[str, Any]] = [*({"blocks": [_tool(number)]} for number in range(TOOLS)), {"text": "done"}]


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        top = Path(name)
        with host_user(top) as user:
            async with sshd(top / "sshd") as server, relay(server.port) as link, FakeModel() as model:
                target = ["ssh", f"{user.name}@127.0.0.1:~", *server.client_options(link.port)]
                for what, script in (("in 1 model message", ONE_CALL), ("in 20 model messages", EACH)):
                    took: dict[float, list[float]] = {0.0: [], DELAY_S: []}
                    for _ in range(RUNS):
                        for delay, values in took.items():
                            link.delay_s = delay
                            model.add(*script)
                            run = await run_ccb(target, model, top / "laptop")
                            values.append(run.result_s - run.hello_s)
                    near, far = statistics.median(took[0.0]), statistics.median(took[DELAY_S])
                    trips = (far - near) / (2 * DELAY_S)
                    single(f"20 tool calls {what}: round trips", trips, len(script) + 2, unit="trips")
