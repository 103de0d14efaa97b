"""Sub-agents over a real sshd whose worker is killed: nothing runs twice, and one goes on when it is asked to."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.faults.play.host import kill_worker, left_by
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import Recorded
from tests.support.network.relay import relay
from tests.support.person.laptop import Laptop, make_laptop

pytestmark = pytest.mark.visited

Json = dict[str, Any]

PARTS = ("a", "b")
STREAMS = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]


def model(seconds: float) -> Any:
    """A main agent that hands its work to two agents, each of which counts in a file and then takes its time. Asked to
    go on, it lets the first one go on."""

    def answer(request: Recorded) -> Json:
        first, last = json.dumps(request.messages[0]), json.dumps(request.messages[-1])
        part = next((part for part in PARTS if f"part {part}" in first), "")
        called = json.dumps(request.messages).count('"tool_use_id"')
        if part:
            if "go on with it" in last:
                return {"text": f"{part} went on."}
            command = f"echo {part} >> count; touch started-{part}; sleep {seconds}; echo {part} ended >> count"
            return {"text": f"{part} is done."} if called else {"blocks": [_call("Bash", command=command)]}
        if "please go on" in last:
            given = {"description": "Go on", "prompt": "go on with it", "resume": "toolu_a"}
            return {"blocks": [_call("Task", "toolu_again", **given)]}
        if called:
            return {"text": "All is done."}
        tasks = ({"description": f"Do {part}", "prompt": f"part {part}: count"} for part in PARTS)
        return {"blocks": [_call("Task", f"toolu_{part}", **given) for part, given in zip(PARTS, tasks, strict=True)]}

    return answer


def _call(name: str, call_id: str = "", **given: str) -> Json:
    return {"type": "tool_use", "name": name, "input": given, **({"id": call_id} if call_id else {})}


def said(text: str) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None}


def argv(user: HostUser, sshd: Sshd, port: int) -> list[str]:
    allowed = ["--allowedTools", "Bash", "--reconnect-timeout", "60"]
    return ["ssh", f"{user.name}@127.0.0.1:~", *sshd.client_options(port), *STREAMS, *allowed]


def results(messages: list[Json]) -> dict[str, list[str]]:
    """The texts of the results of tool calls that the client was shown, by the id of the call."""
    found: dict[str, list[str]] = {}
    for message in messages:
        content = message["message"]["content"] if message["type"] == "user" else []
        for block in content if isinstance(content, list) else []:
            if block["type"] == "tool_result":
                found.setdefault(block["tool_use_id"], []).append(str(block["content"]))
    return found


async def both_work(home: Path) -> None:
    async with asyncio.timeout(40):
        while not all((home / f"started-{part}").exists() for part in PARTS):
            await asyncio.sleep(0.02)


def laptop_of(directory: Path, fake: FakeModel) -> Laptop:
    return make_laptop(directory, fake.url)


async def test_agents_of_a_worker_that_was_killed_end_clearly_and_one_goes_on(
    tmp_path: Path, sshd: Sshd, host_user: HostUser
) -> None:
    async with FakeModel([model(60)]) as fake, relay(sshd.port) as between:
        async with laptop_of(tmp_path, fake).start(argv(host_user, sshd, between.port)) as run:
            await run.send(said("delegate it"))
            await both_work(host_user.home)
            kill_worker(host_user)
            cut = await run.until("result")
            await run.send(said("please go on"))
            result = await run.until("result")
            run.end_input()
            done = await run.done()
        assert cut["is_error"] and result["result"] == "All is done.", done.stderr
        shown = results(done.messages)
        assert all(len(texts) == 1 for texts in shown.values()), shown
        assert "resume: 'toolu_a'" in shown["toolu_a"][0] and shown["toolu_again"][0].startswith("a went on.")
        counted = (host_user.home / "count").read_text().split()
        assert sorted(counted) == ["a", "b"], "no call runs again"
    assert await left_by(host_user) == []
