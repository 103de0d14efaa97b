"""Ten sessions to one host through one relay that drops all of them, again and again: all of them finish."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import pytest
from tests.faults.play.host import left_by
from tests.support.hosts.reached_host import Host
from tests.support.model.model_script import Recorded, uses
from tests.support.network.relay import Relay, relay
from tests.support.person.laptop import STREAM

pytestmark = pytest.mark.visited

SESSIONS = 10
LONG = bool(os.environ.get("CCB_FAULT_LOG"))
EVERY_S, FOR_S = (5.0, 60.0) if LONG else (2.0, 12.0)
ROUNDS = int(FOR_S) if LONG else 8
"""Tool calls of each session, a second each: it is at work as long as connections are dropped."""


def _model(request: Recorded) -> Mapping[str, Any]:
    text = str(request.messages[0]["content"])
    number = next(n for n in range(SESSIONS) if f"<{n}>" in text)
    done = sum(message["role"] == "assistant" for message in request.messages)
    if done == ROUNDS:
        return {"text": f"session {number} is done", "delay": 0.02}
    call = uses("Bash", command=f"echo {done} >> count{number}; sleep 1")
    return {**call, "text": "Now the next.", "delay": 0.01}


async def _drop(between: Relay) -> None:
    async with asyncio.timeout(FOR_S):
        while True:
            await asyncio.sleep(EVERY_S)
            between.cut()


@pytest.mark.timeout(240)
@pytest.mark.thorough
async def test_ten_sessions_finish_over_a_link_that_drops_them_all(host: Host) -> None:
    host.model.add(_model)
    async with relay(host.server.port) as between:
        how = [*STREAM, "--allowedTools", "Bash", "--reconnect-timeout", "120"]

        async def session(number: int) -> tuple[int, str, str]:
            async with host.start("-p", f"work <{number}>", *how, port=between.port, piped=False) as running:
                done = await running.done(timeout=200)
            return done.code, "".join(str(result.get("result")) for result in done.results), done.stderr

        dropping = asyncio.create_task(_drop(between))
        try:
            outcomes = await asyncio.gather(*map(session, range(SESSIONS)))
        finally:
            dropping.cancel()
            await asyncio.gather(dropping, return_exceptions=True)
        assert [(code, result) for code, result, _ in outcomes] == [
            (0, f"session {number} is done") for number in range(SESSIONS)
        ], "\n".join(stderr[-500:] for code, _, stderr in outcomes if code)
        assert [(host.home / f"count{number}").read_text().split() for number in range(SESSIONS)] == [
            [str(done) for done in range(ROUNDS)]
        ] * SESSIONS
        assert len(host.model.requests) == SESSIONS * (ROUNDS + 1)
        assert between.connections >= SESSIONS * 2
    assert await left_by(host.user) == []
