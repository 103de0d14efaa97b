"""Compaction over a real sshd whose worker is killed: neither lost nor made twice."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.faults.play.host import kill_worker, left_by
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import Recorded
from tests.support.network.relay import relay
from tests.support.person.laptop import make_laptop

pytestmark = pytest.mark.visited

Json = dict[str, Any]

LAST = 20
SETTINGS = json.dumps({"env": {"CCB_MAX_CONTEXT_TOKENS": "30000"}})
STREAMS = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]


def is_summary(request: Recorded) -> bool:
    return "Answer with the summary alone" in request.last_user_text


def model(request: Recorded) -> Json:
    """Counts to LAST in a file, one command at a time, with many words. It goes on from what the history says,
    or from what it wrote into its own summary."""
    history = json.dumps(request.messages)
    found = re.findall(r"echo (\d+) >> count|done up to (\d+)", history)
    done = max((int(called or told) for called, told in found), default=0)
    if is_summary(request):
        return {"text": f"done up to {done}", "first_delay": 0.4, "delay": 0.02}
    if done == LAST:
        return {"text": "Counted."}
    call = {"type": "tool_use", "name": "Bash", "input": {"command": f"echo {done + 1} >> count"}}
    return {"blocks": [{"type": "text", "text": "I count on. " * 500}, call], "pieces": [3000]}


def said(text: str) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}


def counted(messages: list[Json]) -> tuple[int, int]:
    """How many boundaries and summaries the client was shown."""
    boundaries = sum(1 for each in messages if each.get("subtype") == "compact_boundary")
    return boundaries, sum(1 for each in messages if each.get("isCompactSummary"))


async def test_a_compaction_whose_worker_is_killed_is_made_once(
    tmp_path: Path, sshd: Sshd, host_user: HostUser
) -> None:
    async with FakeModel([model]) as fake, relay(sshd.port) as between:
        where = ["ssh", f"{host_user.name}@127.0.0.1:~", *sshd.client_options(between.port)]
        flags = ["--allowedTools", "Bash", "--reconnect-timeout", "60", "--settings", SETTINGS]
        async with make_laptop(tmp_path, fake.url).start([*where, *STREAMS, *flags]) as run:
            await run.send(said("count in the file"))
            await fake.until(lambda seen: any(map(is_summary, seen.requests)), 60)
            kill_worker(host_user)
            assert (await run.until("result"))["is_error"]
            await run.send(said("go on"))
            result = await run.until("result")
            run.end_input()
            done = await run.done()
        assert (done.code, result["result"]) == (0, "Counted."), done.stderr
        assert (host_user.home / "count").read_text().split() == [str(n) for n in range(1, LAST + 1)]
        boundaries, summaries = counted(done.messages)
        asked = sum(map(is_summary, fake.requests))
        assert boundaries == summaries >= 1
        assert asked == boundaries + 1, "only the call that died was made again"
    assert await left_by(host_user) == []
