"""Sessions over a real OpenSSH server whose connections are lost: nothing is paid, run or shown twice."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.machine.processes import name_of, processes_of
from tests.support.machine.waiting import until
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import Relay, relay
from tests.support.person.laptop import Laptop, Running, make_laptop

pytestmark = pytest.mark.visited

STREAM = ["--output-format", "stream-json", "--verbose"]
STDIO = [*STREAM, "--input-format", "stream-json", "--permission-prompt-tool", "stdio"]


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Laptop:
    return make_laptop(tmp_path, fake_model.url)


def where(user: HostUser, sshd: Sshd, between: Relay) -> list[str]:
    return ["ssh", f"{user.name}@127.0.0.1:~", *sshd.client_options(between.port)]


def user_message(text: str) -> dict[str, object]:
    return {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None, "session_id": ""}


def daemon_of(user: HostUser) -> psutil.Process:
    (daemon,) = [p for p in processes_of(user) if name_of(p) == "ccb"]
    return daemon


async def test_a_cut_in_the_middle_of_an_answer_is_neither_paid_nor_shown_twice(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    fake_model.add({"text": "A long answer that is cut in the middle.", "stall_after": 4})
    async with relay(sshd.port) as between:
        argv = [*where(host_user, sshd, between), "-p", "hi", *STREAM, "--include-partial-messages"]
        async with laptop.start(argv, piped=False) as running:
            await running.until("system", "init")
            await fake_model.until(lambda model: len(model.requests) == 1)
            await running.until("stream_event")
            between.cut()
            await until(lambda: between.connections == 2)
            fake_model.release()
            done = await running.done()
    assert done.code == 0
    assert done.texts == ["A long answer that is cut in the middle."] * 2
    streamed = [message["event"] for message in done.messages if message["type"] == "stream_event"]
    assert [event["type"] for event in streamed].count("message_start") == 1
    grown = "".join(event["delta"]["text"] for event in streamed if event["type"] == "content_block_delta")
    assert grown == "A long answer that is cut in the middle."
    assert len(fake_model.requests) == 1
    assert "reconnecting" in done.stderr and "connected again" in done.stderr
    await until(lambda: not processes_of(host_user))


async def test_a_tool_runs_to_its_end_while_the_link_is_down_and_runs_once(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    command = "echo run >> count; touch started; while [ ! -e go ]; do sleep 0.05; done; echo finished >> count"
    fake_model.add({"blocks": [{"type": "tool_use", "name": "Bash", "input": {"command": command}}]}, {"text": "done"})
    home = host_user.home
    async with relay(sshd.port) as between:
        argv = [*where(host_user, sshd, between), "-p", "go", "--allowedTools", "Bash", *STREAM]
        async with laptop.start(argv, piped=False) as running:
            await until((home / "started").exists)
            between.freeze()
            between.cut()
            (home / "go").touch()
            await until(lambda: "finished" in (home / "count").read_text())
            assert len(fake_model.requests) == 1, "the next model call waits for the laptop"
            between.thaw()
            done = await running.done()
    assert (done.code, done.results[0]["result"]) == (0, "done")
    assert (home / "count").read_text() == "run\nfinished\n"
    assert len(fake_model.requests) == 2


async def test_an_approval_waits_for_the_laptop_and_is_asked_under_the_same_id(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    call = {"type": "tool_use", "name": "Bash", "input": {"command": "echo run >> count"}}
    fake_model.add({"blocks": [call]}, {"text": "done"})
    async with relay(sshd.port) as between:
        argv = [*where(host_user, sshd, between), "-p", *STDIO]
        async with laptop.start(argv) as running:
            await running.send(user_message("go"))
            asked = await running.until("control_request")
            between.freeze()
            between.cut()
            allow = {"behavior": "allow", "updatedInput": call["input"]}
            await running.send(
                {
                    "type": "control_response",
                    "response": {"subtype": "success", "request_id": asked["request_id"], "response": allow},
                }
            )
            between.thaw()
            await running.until("result")
            running.end_input()
            done = await running.done()
    assert done.code == 0
    assert (host_user.home / "count").read_text() == "run\n"
    asks = [message for message in done.messages if message["type"] == "control_request"]
    assert len(asks) == 1
    assert done.results[0]["permission_denials"] == []


@pytest.mark.parametrize("victim", ["bridge", "sshd"])
@pytest.mark.quick_rows(1)
async def test_killing_what_carries_the_link_costs_nothing(
    victim: str, laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    fake_model.add({"text": "Half of it, and the other half.", "stall_after": 4})
    async with relay(sshd.port) as between:
        argv = [*where(host_user, sshd, between), "-p", "hi", *STREAM]
        async with laptop.start(argv, piped=False) as running:
            await running.until("system", "init")
            await fake_model.until(lambda model: len(model.requests) == 1)
            daemon = daemon_of(host_user)
            carriers = [p for p in processes_of(host_user) if p.pid != daemon.pid]
            for process in carriers:
                if (name := name_of(process)) and (name == "sshd") == (victim == "sshd"):
                    process.send_signal(signal.SIGKILL)
            await until(
                lambda: any(p.pid not in {daemon.pid, *(c.pid for c in carriers)} for p in processes_of(host_user))
            )
            fake_model.release()
            done = await running.done()
    assert done.code == 0
    assert done.texts == ["Half of it, and the other half."] * 2
    assert len(fake_model.requests) == 1
    assert between.connections == (2 if victim == "sshd" else 1), "a living connection is used again"


async def test_after_kill_9_of_ccb_the_session_is_resumed_and_no_tool_runs_again(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    command = "echo run >> count; touch started; while [ ! -e go ]; do sleep 0.05; done; echo finished >> count"
    fake_model.add({"blocks": [{"type": "tool_use", "name": "Bash", "input": {"command": command}}]}, {"text": "done"})
    home = host_user.home
    async with relay(sshd.port) as between:
        argv = where(host_user, sshd, between)
        async with laptop.start([*argv, "-p", "go", "--allowedTools", "Bash", *STREAM], piped=False) as running:
            session = (await running.until("system", "init"))["session_id"]
            await until((home / "started").exists)
            running.process.kill()
        (home / "go").touch()
        await until(lambda: "finished" in (home / "count").read_text())
        fake_model.add({"text": "second answer"})
        done = await laptop.run([*argv, "--resume", session[:8], "-p", "and now?", *STREAM])
    assert done.code == 0, done.stderr
    assert done.results[-1]["result"] == "second answer"
    assert done.results[-1]["session_id"] == session
    assert (home / "count").read_text() == "run\nfinished\n"
    assert [len(r.tool_results) for r in fake_model.requests] == [0, 1, 0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "the host goes down"])
async def test_the_daemon_killed_ends_its_turn_once_and_the_session_goes_on(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser, number: signal.Signals
) -> None:
    command = "echo run >> count; touch started; sleep 600"
    fake_model.add({"blocks": [{"type": "tool_use", "name": "Bash", "input": {"command": command}}]}, {"text": "after"})
    home = host_user.home
    async with relay(sshd.port) as between:
        argv = [*where(host_user, sshd, between), "-p", *STDIO, "--allowedTools", "Bash"]
        async with laptop.start(argv) as running:
            await running.send(user_message("go"))
            await until((home / "started").exists)
            daemon_of(host_user).send_signal(number)
            cut_off = await running.until("result")
            assert cut_off["is_error"]
            await running.send(user_message("and now?"))
            await running.until("result")
            running.end_input()
            done = await running.done()
    assert done.code == 0, done.stderr
    assert [result["is_error"] for result in done.results] == [True, False]
    assert (home / "count").read_text() == "run\n"
    assert "may have run" in fake_model.requests[-1].messages[2]["content"][0]["content"]
    await until(lambda: not processes_of(host_user))


async def test_continue_finds_the_latest_session_of_the_path(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    fake_model.add({"text": "one"}, {"text": "two"}, {"text": "three"})
    async with relay(sshd.port) as between:
        argv = where(host_user, sshd, between)
        first = await laptop.run([*argv, "-p", "first", *STREAM])
        other = await laptop.run([argv[0], f"{host_user.name}@127.0.0.1:/", *argv[2:], "-p", "elsewhere", *STREAM])
        again = await laptop.run([*argv, "--continue", "-p", "second", *STREAM])
    assert [run.code for run in (first, other, again)] == [0, 0, 0], again.stderr
    ids = [run.results[0]["session_id"] for run in (first, other, again)]
    assert ids[0] == ids[2] != ids[1]
    assert len(fake_model.requests[2].messages) == 3


async def test_a_second_client_takes_over_and_the_first_says_who_did(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    fake_model.add({"text": "first"}, {"text": "second"})
    async with relay(sshd.port) as between:
        argv = where(host_user, sshd, between)
        async with laptop.start([*argv, "-p", *STDIO]) as running:
            await running.send(user_message("go"))
            session = (await running.until("result"))["session_id"]
            second = await laptop.run([*argv, "--resume", session, "-p", "mine", *STREAM])
            done = await running.done()
    assert second.code == 0, second.stderr
    assert done.code == 75
    assert "drives this session now" in done.stderr and "--resume" in done.stderr


@asynccontextmanager
async def taken_over(
    laptop: Laptop, fake_model: FakeModel, argv: Sequence[str]
) -> AsyncIterator[tuple[Running, Running, bytes]]:
    """A run whose answer streams, another run that takes over from it, and the first line on stderr of the first."""
    async with laptop.start([*argv, "-p", *STDIO]) as running:
        await running.send(user_message("go"))
        session = (await running.until("system", "init"))["session_id"]
        await fake_model.until(lambda model: len(model.requests) == 1)
        async with laptop.start([*argv, "--resume", session, "-p", "mine", *STREAM], piped=False) as second:
            assert running.process.stderr is not None
            async with asyncio.timeout(60):
                said = await running.process.stderr.readline()
            yield running, second, said


@pytest.mark.parametrize("leaves", [False, True], ids=["it stays", "it is killed"])
async def test_the_answer_that_streams_at_a_take_over_is_read_to_its_end_by_who_asked_for_it(
    leaves: bool, laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    long = {"text": "A long answer that somebody else comes in the middle of.", "stall_after": 4}
    fake_model.add(long, *([{**long, "stall_after": None}] if leaves else []), {"text": "second"})
    async with (
        relay(sshd.port) as between,
        taken_over(laptop, fake_model, where(host_user, sshd, between)) as (running, second, said),
    ):
        assert b"this ccb ends when it has read the answer that it asked for" in said
        if leaves:
            running.process.kill()
        fake_model.release()
        done = await second.done()
        first = await running.done()
    assert done.code == 0, done.stderr
    assert done.results[-1]["result"] == "second"
    assert len(fake_model.requests) == (3 if leaves else 2), "paid twice only when who asked is gone"
    history = fake_model.requests[-1].messages
    assert [message["role"] for message in history] == ["user", "assistant", "user"]
    assert history[1]["content"][0]["text"] == long["text"]
    assert first.code == (-9 if leaves else 75)


async def test_who_was_taken_over_from_may_leave_in_the_middle_of_the_answer(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    fake_model.add({"text": "An answer in two parts.", "stall_after": 2}, {"text": "again"}, {"text": "second"})
    async with (
        relay(sshd.port) as between,
        taken_over(laptop, fake_model, where(host_user, sshd, between)) as (running, second, _),
    ):
        running.process.send_signal(signal.SIGINT)
        first = await running.done()
        done = await second.done()
    assert first.code == 130
    assert "the client that drives now asks for it again" in first.stderr
    assert "not stopped" not in first.stderr
    assert (done.code, done.results[-1]["result"]) == (0, "second"), done.stderr
