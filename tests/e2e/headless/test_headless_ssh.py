"""Headless sessions over real OpenSSH servers, and what goes wrong on the way there."""

from __future__ import annotations

import json

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.model.fake_model import API_KEY
from tests.support.model.model_script import uses
from tests.support.person.laptop import STREAM

pytestmark = pytest.mark.visited


async def test_the_main_job(host: Host) -> None:
    path = f"{host.home}/app.py"
    host.model.add(
        uses("Write", file_path=path, content="print(6 * 7)\n"),
        uses("Bash", command="python3 app.py; id -un"),
        {"text": "It prints 42."},
    )
    allowed = ["--permission-mode", "acceptEdits", "--allowedTools", "Bash(python3 *),Bash(id *)"]
    done = await host.run("-p", "write app.py", *STREAM, *allowed)
    assert (done.code, done.stderr) == (0, "")
    assert done.results[0]["result"] == "It prints 42."
    assert host.model.requests[2].tool_result_text.split() == ["42", host.user.name]
    assert (host.home / "app.py").owner() == host.user.name
    assert {request.headers["x-api-key"] for request in host.model.requests} == {API_KEY}
    for file in host.home.rglob("*"):
        assert not file.is_file() or API_KEY.encode() not in file.read_bytes()


async def test_a_model_that_says_nothing_is_given_up_and_asked_once_more(host: Host) -> None:
    host.model.add({"text": "It would be the", "stall_after": 3}, {"text": "It is there."})
    limit = json.dumps({"env": {"CCB_STREAM_IDLE_TIMEOUT_MS": "1500"}})
    done = await host.run("-p", "hi", "--settings", limit)
    assert (done.code, done.stdout) == (0, "It is there.\n")
    told = done.stderr.splitlines()
    assert "The model has said nothing for" in told[0] and "it is asked again in 1 s" in told[0]
    assert "The model said nothing for 2 s in the middle of an answer; last try 1 of 1" in told[-1]
    await host.model.until(lambda model: model.aborted == [1])  # it stops writing, and charging for it
