"""Ten sessions to one host through one relay that drops all of them, again and again: all of them finish."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.faults.play.host import left_by
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import Recorded
from tests.support.network.relay import Relay, relay
from tests.support.person.laptop import make_laptop

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
    command = f"echo {done} >> count{number}; sleep 1"
    blocks = [
        {"type": "text", "text": "Now the next."},
        {"type": "tool_use", "name": "Bash", "input": {"command": command}},
    ]
    return {"blocks": blocks, "delay": 0.01}


async def _drop(between: Relay) -> None:
    async with asyncio.timeout(FOR_S):
        while True:
            await asyncio.sleep(EVERY_S)
            between.cut()


@pytest.mark.timeout(240)
@pytest.mark.thorough
async def test_ten_sessions_finish_over_a_link_that_drops_them_all(
    tmp_path: Path, sshd: Sshd, host_user: HostUser
) -> None:
    async with FakeModel([_model]) as model, relay(sshd.port) as between:
        where = ["ssh", f"{host_user.name}@127.0.0.1:~", *sshd.client_options(between.port)]
        how = ["--output-format", "stream-json", "--verbose", "--allowedTools", "Bash", "--reconnect-timeout", "120"]
        laptop = make_laptop(tmp_path, model.url)

        async def session(number: int) -> tuple[int, str, str]:
            async with laptop.start([*where, "-p", f"work <{number}>", *how], piped=False) as running:
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
        assert [(host_user.home / f"count{number}").read_text().split() for number in range(SESSIONS)] == [
            [str(done) for done in range(ROUNDS)]
        ] * SESSIONS
        assert len(model.requests) == SESSIONS * (ROUNDS + 1)
        assert between.connections >= SESSIONS * 2
    assert await left_by(host_user) == []
