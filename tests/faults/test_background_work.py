"""Background commands and queued prompts over a real sshd whose worker is killed: each is told, taken and run once, and
no process stays."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.faults.play.host import kill_worker, left_by
from tests.faults.test_sub_agents import argv, laptop_of, said
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import Recorded
from tests.support.network.relay import relay

pytestmark = pytest.mark.visited

Json = dict[str, Any]

_TASK = "echo began >> count; while [ ! -e go ]; do sleep 0.05; done; echo ended >> count"
_WAIT = "echo waits >> count; touch waiting; sleep 60; echo never >> count"


def answer(request: Recorded) -> Json:
    """Starts the task when it is told to; waits in the foreground when it is told to; else says what it has heard."""
    last = request.messages[-1]["content"]
    told = json.dumps([block for block in last if block["type"] == "text"])
    if any(block["type"] == "tool_result" for block in last):
        return {"text": "It runs."}
    if "start it" in told:
        return {"blocks": [_bash(_TASK, run_in_background=True)]}
    return {"blocks": [_bash(_WAIT)]} if "wait for it" in told else {"text": "Heard."}


def _bash(command: str, **more: object) -> Json:
    return {"type": "tool_use", "name": "Bash", "input": {"command": command, **more}}


def times(fake: FakeModel, text: str) -> int:
    """How often the newest history has a text."""
    return json.dumps(fake.requests[-1].messages).count(text)


async def made(file: Path) -> None:
    async with asyncio.timeout(40):
        while not file.exists():
            await asyncio.sleep(0.02)


async def test_a_killed_worker_loses_no_prompt_and_tells_once_what_ended_with_it(
    tmp_path: Path, sshd: Sshd, host_user: HostUser
) -> None:
    home = host_user.home
    async with FakeModel([answer]) as fake, relay(sshd.port) as between:
        async with laptop_of(tmp_path, fake).start(argv(host_user, sshd, between.port)) as run:
            await run.send(said("start it"))
            await run.until("result")
            await run.send(said("wait for it"))
            await made(home / "waiting")
            await run.send({**said("queued words"), "uuid": "11111111-2222-4333-8444-555555555555"})
            await run.until("command_lifecycle")
            kill_worker(host_user)
            assert (await run.until("result"))["is_error"]
            while not (times(fake, "queued words") and times(fake, "<task-notification>")):
                await run.until("result")
            run.end_input()
            done = await run.done()
        assert done.code == 0, done.stderr
        assert [times(fake, each) for each in ("<task-notification>", "queued words", "<status>killed")] == [1, 1, 1]
        assert (home / "count").read_text() == "began\nwaits\n"
        ended = [each for each in done.messages if each.get("subtype") == "task_notification"]
        assert [each["status"] for each in ended] == ["stopped"]
    assert await left_by(host_user) == []
