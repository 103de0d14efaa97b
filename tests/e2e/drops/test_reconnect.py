"""Sessions over a real OpenSSH server whose connections are lost: nothing is paid, run or shown twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import HostUser
from tests.support.machine.processes import name_of, processes_of
from tests.support.machine.waiting import until
from tests.support.model.model_script import uses
from tests.support.network.relay import relay
from tests.support.person.laptop import STDIO, STREAM, Running, user_message

pytestmark = pytest.mark.visited


def daemon_of(user: HostUser) -> psutil.Process:
    (daemon,) = [p for p in processes_of(user) if name_of(p) == "ccb"]
    return daemon


async def test_a_cut_in_the_middle_of_an_answer_is_neither_paid_nor_shown_twice(host: Host) -> None:
    host.model.add({"text": "A long answer that is cut in the middle.", "stall_after": 4})
    async with relay(host.server.port) as between:
        argv = host.ssh("-p", "hi", *STREAM, "--include-partial-messages", port=between.port)
        async with host.laptop.start(argv, piped=False) as running:
            await running.until("system", "init")
            await host.model.until(lambda model: len(model.requests) == 1)
            await running.until("stream_event")
            between.cut()
            await until(lambda: between.connections == 2)
            host.model.release()
            done = await running.done()
    assert done.code == 0
    assert done.texts == ["A long answer that is cut in the middle."] * 2
    streamed = [message["event"] for message in done.messages if message["type"] == "stream_event"]
    (start,) = [each for each in done.messages if each["type"] == "stream_event" and "ttft_ms" in each]
    assert start["event"]["type"] == "message_start" and start["ttft_ms"] > 0
    assert [event["type"] for event in streamed].count("message_start") == 1
    grown = "".join(event["delta"]["text"] for event in streamed if event["type"] == "content_block_delta")
    assert grown == "A long answer that is cut in the middle."
    assert len(host.model.requests) == 1
    assert "reconnecting" in done.stderr and "connected again" in done.stderr
    await until(lambda: not processes_of(host.user))


@asynccontextmanager
async def taken_over(host: Host) -> AsyncIterator[tuple[Running, Running, bytes]]:
    """A run whose answer streams, another run that takes over from it, and the first line on stderr of the first."""
    async with host.start("-p", *STDIO) as running:
        await running.send(user_message("go"))
        session = (await running.until("system", "init"))["session_id"]
        await host.model.until(lambda model: len(model.requests) == 1)
        async with host.start("--resume", session, "-p", "mine", *STREAM, piped=False) as second:
            assert running.process.stderr is not None
            async with asyncio.timeout(60):
                said = await running.process.stderr.readline()
            yield running, second, said


@pytest.mark.parametrize("leaves", [False, True], ids=["it stays", "it is killed"])
async def test_the_answer_that_streams_at_a_take_over_is_read_by_who_asked_for_it(host: Host, leaves: bool) -> None:
    long = {"text": "A long answer that somebody else comes in the middle of.", "stall_after": 4}
    host.model.add(long, *([{**long, "stall_after": None}] if leaves else []), {"text": "second"})
    async with taken_over(host) as (running, second, said):
        assert b"this ccb ends when it has read the answer that it asked for" in said
        if leaves:
            running.process.kill()
        host.model.release()
        done = await second.done()
        first = await running.done()
    assert done.code == 0, done.stderr
    assert done.results[-1]["result"] == "second"
    assert len(host.model.requests) == (3 if leaves else 2), "paid twice only when who asked is gone"
    history = host.model.requests[-1].messages
    assert [message["role"] for message in history] == ["user", "assistant", "user"]
    assert history[1]["content"][0]["text"] == long["text"]
    assert first.code == (-9 if leaves else 75)


async def test_who_was_taken_over_from_may_leave_in_the_middle_of_the_answer(host: Host) -> None:
    host.model.add({"text": "An answer in two parts.", "stall_after": 2}, {"text": "again"}, {"text": "second"})
    async with taken_over(host) as (running, second, _):
        running.process.send_signal(signal.SIGINT)
        first = await running.done()
        done = await second.done()
    assert first.code == 130
    assert "the client that drives now asks for it again" in first.stderr
    assert "not stopped" not in first.stderr
    assert (done.code, done.results[-1]["result"]) == (0, "second"), done.stderr


LONG = "echo run >> count; touch started; while [ ! -e go ]; do sleep 0.05; done"


@pytest.mark.parametrize("damage", ["zeros", "lines removed"])
@pytest.mark.quick_rows(1)
async def test_a_run_whose_last_events_a_power_cut_took_from_the_host_ends_and_says_so(host: Host, damage: str) -> None:
    host.model.add(uses("Bash", command=LONG), {"text": "never asked for"})
    async with relay(host.server.port) as between:
        argv = host.ssh("-p", "go", "--allowedTools", "Bash", *STREAM, port=between.port)
        async with host.laptop.start(argv, piped=False) as running:
            await running.until("assistant")
            await until((host.home / "started").exists)
            (journal,) = host.home.glob(".local/state/ccb/sessions/*/journal.jsonl")
            between.freeze()
            os.kill(daemon_of(host.user).pid, signal.SIGKILL)
            lines = journal.read_bytes().splitlines(keepends=True)
            seen = max(at for at, line in enumerate(lines) if b'"type":"assistant"' in line)
            kept, gone = b"".join(lines[:seen]), b"".join(lines[seen:])
            journal.write_bytes(kept + b"\0" * len(gone) if damage == "zeros" else kept)
            between.cut()
            between.thaw()
            done = await running.done()
    assert done.code == 75
    assert "the host has lost the last" in done.stderr
    (result,) = done.results
    assert result["is_error"] and "the host has lost the last" in result["errors"][0]
    assert len(host.model.requests) == 1
    await until(lambda: not processes_of(host.user))
