"""Headless sessions over real OpenSSH servers, and what goes wrong on the way there."""

from __future__ import annotations

import json
import shlex

import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.hosts.whole_session import STREAM
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Laptop

pytestmark = pytest.mark.visited


async def test_the_main_job(laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser) -> None:
    path = f"{host_user.home}/app.py"
    fake_model.add(
        uses("Write", file_path=path, content="print(6 * 7)\n"),
        uses("Bash", command="python3 app.py; id -un"),
        {"text": "It prints 42."},
    )
    argv = ["ssh", f"{host_user.name}@127.0.0.1:~", *sshd.client_options(), "-p", "write app.py", *STREAM]
    done = await laptop.run([*argv, "--permission-mode", "acceptEdits", "--allowedTools", "Bash(python3 *),Bash(id *)"])
    assert (done.code, done.stderr) == (0, "")
    assert done.results[0]["result"] == "It prints 42."
    assert fake_model.requests[2].tool_result_text.split() == ["42", host_user.name]
    assert (host_user.home / "app.py").owner() == host_user.name
    assert {request.headers["x-api-key"] for request in fake_model.requests} == {API_KEY}
    for file in host_user.home.rglob("*"):
        assert not file.is_file() or API_KEY.encode() not in file.read_bytes()


async def test_a_model_that_says_nothing_is_given_up_and_asked_once_more(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    fake_model.add({"text": "It would be the", "stall_after": 3}, {"text": "It is there."})
    limit = json.dumps({"env": {"CCB_STREAM_IDLE_TIMEOUT_MS": "1500"}})
    argv = ["ssh", f"{host_user.name}@127.0.0.1:", *sshd.client_options(), "-p", "hi", "--settings", limit]
    done = await laptop.run(argv)
    assert (done.code, done.stdout) == (0, "It is there.\n")
    told = done.stderr.splitlines()
    assert "The model has said nothing for" in told[0] and "it is asked again in 1 s" in told[0]
    assert "The model said nothing for 2 s in the middle of an answer; last try 1 of 1" in told[-1]
    await fake_model.until(lambda model: model.aborted == [1])  # it stops writing, and charging for it


async def test_a_link_that_breaks_in_a_turn_is_code_75_with_one_result(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    from tests.support.network.relay import relay

    async with relay(sshd.port) as between:
        fake_model.add({"text": "A long answer that stops in the middle.", "stall_after": 3})
        where = ["ssh", f"{host_user.name}@127.0.0.1:/", *sshd.client_options(between.port)]
        async with laptop.start([*where, "-p", "hi", *STREAM, "--reconnect-timeout", "0"], piped=False) as running:
            session = (await running.until("system", "init"))["session_id"]
            await fake_model.until(lambda model: len(model.requests) == 1)
            between.cut()
            done = await running.done()
    assert done.code == 75
    come_back = next(line for line in done.stderr.splitlines() if "Come back with: " in line).partition("with: ")[2]
    assert sorted(shlex.split(come_back)) == sorted(["ccb", *where, "--resume", session])
    assert [result["terminal_reason"] for result in done.results] == ["link_lost"]
