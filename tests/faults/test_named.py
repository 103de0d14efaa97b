"""The faults that every seed may miss, one by one: each in the middle of the same session, before one has begun, and in
ten at once. A laptop that dies early leaves no process, no socket and no half file on the host."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.faults.conftest import Reference
from tests.faults.play.check import check
from tests.faults.play.host import kept_by, left_by
from tests.faults.play.outcome import Outcome
from tests.faults.play.plan import DEAD_S, Plan, Step
from tests.faults.play.runner import play
from tests.faults.work.work import SUMMARY
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.machine.processes import name_of, processes_of
from tests.support.machine.waiting import until
from tests.support.model.model_script import Recorded, uses
from tests.support.network.relay import Fault, Relay, relay
from tests.support.person.laptop import STREAM, STREAMS, user_message

from ccb.deploy.bundle import load

NAMED = {
    "kill -9 of ccb while a tool runs": Plan(0, ending="kill ccb", ending_turn=2),
    "kill -9 of the daemon": Plan(0, ending="kill daemon", ending_turn=1),
    "kill -9 of sshd's process": Plan(0, (Step("kill sshd", 20_000, upward=False),)),
    "a link frozen for longer than it is believed in": Plan(0, (Step("freeze", 20_000, upward=False, seconds=DEAD_S),)),
    "a cut while the bundle is sent": Plan(0, (Step("reset", 90_000, upward=True),), cold=True),
    "cuts in hello, attach and replay": Plan(
        0,
        (
            Step("reset", 20_000, upward=False),
            Step("reset", 5_000, upward=False, connection=2),
            Step("close", 7_000, upward=False, connection=3),
            Step("reset", 6_000, upward=True, connection=4),
        ),
    ),
    "a connection that a middlebox repeats": Plan(0, (Step("double", 15_000, upward=True),)),
    "a prompt that is sent while the link is down": Plan(0, offline=2),
    "a cut while two agents run": Plan(0, ending="cut link", moment="right-runs", work="agents"),
    "a cut while a server on the laptop works": Plan(0, ending="cut link", moment="spent-runs", work="background"),
    "kill -9 of the bridge": Plan(0, (Step("kill bridge", 20_000, upward=False),)),
    "the laptop stopped for longer than the host's patience": Plan(0, ending="stop ccb", ending_turn=1, stopped_s=20.0),
    "a cut in the handshake": Plan(0, (Step("reset", 1_000, upward=True), Step("close", 500, True, connection=2))),
    "clocks that jump by two seconds": Plan(0, ending="clocks jump", ending_turn=1),
    "a cut while a summary is made": Plan(0, ending="cut link", moment=SUMMARY, work="compaction"),
    "a cut while a task runs": Plan(0, ending="cut link", moment="task-runs", work="background"),
    "a cut while a prompt is queued": Plan(0, ending="cut link", moment="busy-runs", work="background"),
    "a cut while a hook runs": Plan(0, ending="cut link", moment="hooked", work="agents"),
    "a cut while agents work in worktrees": Plan(0, ending="cut link", moment="leaves-runs", work="agents"),
    "kill -9 of ccb while a server of it works": Plan(0, ending="kill ccb", moment="spent-runs", work="background"),
    "kill -9 of the daemon while a summary is made": Plan(0, ending="kill daemon", moment=SUMMARY, work="compaction"),
    "kill -9 of the daemon while a task runs": Plan(0, ending="kill daemon", moment="task-runs", work="background"),
    "kill -9 of the daemon while a prompt is queued": Plan(
        0, ending="kill daemon", moment="busy-runs", work="background"
    ),
    "kill -9 of the daemon while a server works": Plan(
        0, ending="kill daemon", moment="served-runs", work="background"
    ),
    "kill -9 of the daemon while two agents run": Plan(0, ending="kill daemon", moment="right-runs", work="agents"),
    "a cut while a server of the project works": Plan(0, ending="cut link", moment="served-runs", work="background"),
}

if os.environ.get("CCB_FAULT_LOG"):
    NAMED["the laptop stopped for two minutes"] = Plan(0, ending="stop ccb", ending_turn=1, stopped_s=120.0)


@pytest.mark.quick_rows(2)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NAMED)
async def test_a_session_survives(
    name: str, reference: Reference, tmp_path: Path, sshd: Sshd, host_user: HostUser
) -> None:
    outcome = await play(NAMED[name], tmp_path, host_user, sshd)
    assert not (wrong := check(NAMED[name], outcome, await reference(NAMED[name].work))), wrong
    if NAMED[name].ending == "cut link":
        assert outcome.connections == 2
    if NAMED[name].moment == "spent-runs":
        told = {str(given.get("word")): result for given, result in outcome.told}
        killed = NAMED[name].ending == "kill ccb"
        assert ("had any effect is not known" if killed else "counted spent") in told["spent"]
    if NAMED[name].ending == "kill daemon" and NAMED[name].moment not in ("", "task-runs"):
        ends = [each.get("subtype") for each in outcome.messages if each["type"] == "result"]
        assert "error_during_execution" in ends, "the turn that was cut has its result"
    if NAMED[name].moment == "task-runs":
        ended = [each["status"] for each in outcome.messages if each.get("subtype") == "task_notification"]
        assert ended == ["stopped" if NAMED[name].ending == "kill daemon" else "completed"]
    if NAMED[name].moment == "right-runs" and NAMED[name].ending == "kill daemon":
        assert any("resume: '" in result for _, result in outcome.told), "the model knows how an agent goes on"
    if NAMED[name].moment == SUMMARY:
        boundaries = sum(each.get("subtype") == "compact_boundary" for each in outcome.messages)
        assert boundaries == sum(bool(each.get("isCompactSummary")) for each in outcome.messages) >= 1
    if name == "kill -9 of the bridge":
        assert outcome.connections == 1, "a living connection is used again"
    if NAMED[name].ending == "clocks jump":
        (journal,) = host_user.home.rglob("journal.jsonl")
        times = [json.loads(line)["time"] for line in journal.read_text().splitlines() if '"time"' in line]
        steps = [later - earlier for earlier, later in pairwise(times)]
        assert max(steps) > 1.9 and min(steps) < -3.0, "the worker saw it"
    if NAMED[name].steps:
        assert all(kind in outcome.happened for kind in (step.kind for step in NAMED[name].steps))


@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.quick_rows(1)
async def test_a_client_that_takes_over_finishes_the_work(
    turn: int, undisturbed: Outcome, tmp_path: Path, sshd: Sshd, host_user: HostUser
) -> None:
    outcome = await play(Plan(0, ending="take over", ending_turn=turn), tmp_path, host_user, sshd)
    assert outcome.code == 0, outcome.stderr
    assert outcome.first_code == 75, outcome.stderr
    assert "drives this session now" in outcome.stderr and "--resume" in outcome.stderr
    assert outcome.counts == undisturbed.counts
    assert outcome.requests == undisturbed.requests, "what the first one was reading is not asked for again"
    assert outcome.files == undisturbed.files
    assert outcome.left == []


async def test_when_the_link_stays_away_the_printed_command_finishes_the_work(host: Host) -> None:
    command = "echo run >> count; touch started; while [ ! -e go ]; do sleep 0.05; done; echo finished >> count"
    host.model.add(uses("Bash", command=command), {"text": "done"})
    async with relay(host.server.port) as between:
        words = ["-p", *STREAMS, "--allowedTools", "Bash", "--reconnect-timeout", "2"]
        async with host.start(*words, port=between.port) as run:
            await run.send(user_message("go"))
            await until((host.home / "started").exists)
            between.freeze()
            between.cut()
            away = await run.done()
        assert away.code == 75, away.stderr
        assert [(each["is_error"], each["terminal_reason"]) for each in away.results] == [(True, "link_lost")]
        between.thaw()
        (host.home / "go").touch()
        printed = re.search(r"ccb (ssh .*--resume \S+)", away.stderr)
        assert printed, away.stderr
        async with host.laptop.start([*shlex.split(printed[1]), "-p", *STREAMS]) as run:
            result = await run.until("result")
            back = await run.finish()
    assert (back.code, result["result"]) == (0, "done"), back.stderr
    assert (host.home / "count").read_text() == "run\nfinished\n"
    assert len(host.model.requests) == 2
    assert await left_by(host.user) == []


MARKS = {
    "handshake": (1_500, 0.0),
    "login": (4_500, 0.0),
    "deploy": (12_000, 0.0),
    "in the bundle": (12_000, 0.5),
    "end of the bundle": (0, 1.0),  # login and command line take 10 KB before it
}  # bytes that were sent when ccb is killed, and shares of the bundle

WHOLE = (
    "worker/*.bundle",
    "worker/login.json",
    "/.made",
    "/journal.jsonl",
    "/daemon.log",
    "/epoch",
    "/summary.json",
    "/owner.*",
)


def partial(kept: set[str]) -> list[str]:
    return sorted(name for name in kept if not name.endswith(WHOLE))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("where", MARKS)
@pytest.mark.quick_rows(2)
async def test_nothing_is_left_of_a_ccb_that_is_killed_on_its_way(host: Host, where: str) -> None:
    async with relay(host.server.port) as between:
        async with host.start("-p", *STREAMS, port=between.port) as run:

            async def kill() -> None:
                run.process.kill()

            sent, share = MARKS[where]
            at = sent + int(share * len(load().packed("xz")))
            fault = Fault("call", at, upward=True, act=kill)
            between.faults.append(fault)
            async with asyncio.timeout(30):
                await run.process.wait()
            assert fault.happened
        assert await left_by(host.user) == []
        assert partial(kept_by(host.user)) == []


@pytest.mark.timeout(120)
@pytest.mark.thorough
async def test_nothing_is_left_of_a_ccb_that_vanishes_without_a_word(host: Host) -> None:
    """The laptop loses its power: nobody closes the connection. The system's sshd waits for its own time-out."""
    async with relay(host.server.port) as between:
        async with host.start("-p", *STREAMS, port=between.port) as run:
            await until(lambda: any(name_of(process) == "ccb" for process in processes_of(host.user)))
            between.freeze()
            run.process.kill()
            await until(lambda: {name_of(process) for process in processes_of(host.user)} <= {"sshd", ""})
        assert partial(kept_by(host.user)) == []


SESSIONS = 10
LONG = bool(os.environ.get("CCB_FAULT_LOG"))
EVERY_S, FOR_S = (5.0, 60.0) if LONG else (2.0, 12.0)
ROUNDS = int(FOR_S) if LONG else 8
"""Tool calls of each session, a second each: it is at work as long as connections are dropped."""


def _work_of_ten(request: Recorded) -> Mapping[str, Any]:
    text = str(request.messages[0]["content"])
    number = next(n for n in range(SESSIONS) if f"<{n}>" in text)
    done = sum(message["role"] == "assistant" for message in request.messages)
    if done == ROUNDS:
        return {"text": f"session {number} is done", "delay": 0.02}
    call = uses("Bash", command=f"echo {done} >> count{number}; sleep 1")
    return {**call, "text": "Now the next.", "delay": 0.01}


async def _drop_all(between: Relay) -> None:
    async with asyncio.timeout(FOR_S):
        while True:
            await asyncio.sleep(EVERY_S)
            between.cut()


@pytest.mark.timeout(240)
@pytest.mark.visited
@pytest.mark.thorough
async def test_ten_sessions_finish_over_a_link_that_drops_them_all(host: Host) -> None:
    host.model.add(_work_of_ten)
    async with relay(host.server.port) as between:
        how = [*STREAM, "--allowedTools", "Bash", "--reconnect-timeout", "120"]

        async def session(number: int) -> tuple[int, str, str]:
            async with host.start("-p", f"work <{number}>", *how, port=between.port, piped=False) as running:
                done = await running.done(timeout=200)
            return done.code, "".join(str(result.get("result")) for result in done.results), done.stderr

        dropping = asyncio.create_task(_drop_all(between))
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
