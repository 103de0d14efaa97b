"""Clients of the Agent Client Protocol that other people make, unmodified, drive ccb over a real sshd. Every line both
ways fits the schema of the protocol."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conformance.acp_clients import Acpx, RecordedAgent, client, recorded
from tests.conformance.official_sdks import CCB, asked
from tests.faults.play.host import kill_worker
from tests.support.acp_schema import said, updates
from tests.support.hosts.reached_host import Host
from tests.support.machine.waiting import until
from tests.support.model.model_script import uses
from tests.support.network.relay import relay
from tests.support.person.laptop import Here

pytestmark = pytest.mark.visited

LONG = "an answer that takes its time to come " * 20
COUNT = "echo run >> count; echo counted"
WAIT = f"touch started; while [ ! -e go ]; do sleep 0.05; done; {COUNT}"


def ccb_acp(directory: Path, host: Host, port: int | None = None) -> RecordedAgent:
    return recorded(directory, [*CCB, "acp", f"{host.login}:~", *host.server.client_options(port)])


@pytest.mark.parametrize("language", ["python", "npm"])
@pytest.mark.quick_rows(1)
async def test_a_lost_connection_in_a_question_and_in_an_answer_loses_nothing(
    language: str, here: Here, host: Host, tmp_path: Path
) -> None:
    here.model.add(uses("Bash", command=COUNT), {"text": LONG, "delay": 0.01}, {"text": "the second answer"})
    async with relay(host.server.port) as between:
        agent = ccb_acp(tmp_path, host, between.port)
        async with client(language, here, agent, "count", "again", cut_in=["question"]) as program:
            await program.until("waits", where="question")
            between.cut()
            program.go_on()
            await here.model.until(asked(2))
            between.cut()
            await program.end()
        first = agent.take()
        here.model.add({"text": "the third answer"})
        (session,) = program.of("session")
        async with client(language, here, agent, "more", load=session["id"]) as loaded:
            await loaded.end()
    assert [each["reason"] for each in program.of("stop")] == ["end_turn", "end_turn"] and not program.of("error")
    assert (host.home / "count").read_text() == "run\n" and len(program.of("asked")) == 1
    assert said(first) == LONG + "the second answer"
    (call,) = updates(first, "tool_call")
    assert call["kind"] == "execute" and COUNT in json.dumps(call)
    again = agent.take()
    assert said(again) == LONG + "the second answer" + "the third answer"
    prompts = [each["content"]["text"] for each in updates(again, "user_message_chunk")]
    assert prompts[:2] == ["count", "again"] and len(updates(again, "tool_call")) == 1
    assert len(here.model.requests) == 4 and not loaded.of("asked")


@pytest.mark.parametrize("language", ["npm", "python"])
@pytest.mark.quick_rows(1)
async def test_a_worker_that_is_killed_in_a_turn_ends_it_once_and_the_next_prompt_goes_on(
    language: str, here: Here, host: Host, tmp_path: Path
) -> None:
    here.model.add(uses("Bash", command=WAIT), {"text": "it was cut off"})
    agent = ccb_acp(tmp_path, host)
    async with client(language, here, agent, "wait", "and now?") as program:
        await until((host.home / "started").exists)
        kill_worker(host.user)
        await program.end()
    ends = [each for each in program.events if each["kind"] in ("stop", "error")]
    assert [each["kind"] for each in ends] == ["error", "stop"], ends
    lines = agent.take()
    assert said(lines) == "it was cut off"
    assert updates(lines, "tool_call_update")[-1]["status"] == "failed"
    assert not (host.home / "count").exists() and len(here.model.requests) == 2


async def test_acpx_asks_single_prompts_with_and_without_permission(here: Here, host: Host, tmp_path: Path) -> None:
    agent = ccb_acp(tmp_path, host)
    acpx = Acpx(here, agent)
    here.model.add(uses("Bash", command=COUNT), {"text": "counted"}, uses("Bash", command=COUNT), {"text": "denied"})
    await acpx.run("exec", "count", flags=["--approve-all"])
    assert (host.home / "count").read_text() == "run\n"
    assert said(agent.take()) == "counted"
    await acpx.run("exec", "count", flags=["--deny-all"], code=5)
    assert (host.home / "count").read_text() == "run\n"
    agent.take()


@pytest.mark.thorough
async def test_acpx_keeps_a_session_over_its_commands(here: Here, host: Host, tmp_path: Path) -> None:
    agent = ccb_acp(tmp_path, host)
    acpx = Acpx(here, agent)
    here.model.add({"text": "the plan"}, {"text": LONG, "stall_after": 20})
    (begun,) = await acpx.run("sessions", "new")
    session = begun["acpxSessionId"]
    await acpx.run("set-mode", "plan")
    await acpx.run("prompt", "make a plan")
    await acpx.run("prompt", "--no-wait", "talk")
    await here.model.until(asked(2))
    await acpx.run("cancel")
    (listed,) = await acpx.run("sessions", "list")
    await acpx.run("sessions", "close")
    lines = agent.take()
    (row,) = listed["sessions"]
    assert row["sessionId"] == session and "make a plan" in row["title"]
    assert updates(lines, "current_mode_update")[-1]["currentModeId"] == "plan"
    assert said(lines).startswith("the plan" + LONG[:10])
    ends = [line.body["result"] for line in lines if line.by == "agent" and "stopReason" in line.body.get("result", ())]
    assert [each["stopReason"] for each in ends] == ["end_turn", "cancelled"]
