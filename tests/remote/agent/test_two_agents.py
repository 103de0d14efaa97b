"""Two agents in one session: their records interleave in one journal, and a worker that is killed loses nothing of
either."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.remote.agent_kit import OpenPermissions, assert_valid, calls, says
from tests.remote.two_agents import MODELS, SECOND, TOOLS, TwoAgents, afterwards, until_cut
from tests.remote.worker_process import until

from ccb.remote.agent.conversation import Conversation
from ccb.remote.daemon.assembly import INTERRUPTED, NEVER_STARTED
from ccb.remote.permissions.rules import Behavior, Decision
from ccb.tunnel.wire.journal_records import MAIN_AGENT, Record

Json = dict[str, Any]

BOTH = (MAIN_AGENT, SECOND)
TAGS = {MAIN_AGENT: "m", SECOND: "s"}


async def kill_in_the_middle(directory: Path) -> None:
    """Run both agents in a process of its own, and kill it when each is in its second tool."""
    root = Path(__file__).resolve().parents[3]
    environ = {**os.environ, "PYTHONPATH": str(root / "src")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.remote.two_agents", str(directory), cwd=root, env=environ
    )
    try:
        await until(lambda: process.returncode is not None or in_the_middle(directory), "both agents in a tool")
        assert process.returncode is None
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


def in_the_middle(directory: Path) -> bool:
    """Whether the second tool of each agent runs, and the third is in the journal."""
    journal = directory / "journal.jsonl"
    lines = journal.read_bytes() if journal.exists() else b""
    return ran(directory).count("stay") == 2 and b'"id":"m3"' in lines and b'"id":"s3"' in lines


def ran(directory: Path) -> list[str]:
    """The keys of the tool calls that ran, in order."""
    log = directory / "ran"
    return [line.split()[1] for line in log.read_text().splitlines()] if log.exists() else []


def records(agents: TwoAgents) -> list[Record]:
    return list(agents.journal.read(0, agents.journal.seq))


def results(agents: TwoAgents) -> dict[str, list[str]]:
    """The texts of the tool results in the journal, by tool_use id."""
    found: dict[str, list[str]] = {}
    for record in records(agents):
        if record.kind == "message" and record.body["type"] == "user":
            for block in record.body["message"]["content"]:
                if block["type"] == "tool_result":
                    found.setdefault(block["tool_use_id"], []).append(block["content"])
    return found


def history(agents: TwoAgents, agent_id: str) -> list[Json]:
    agent = agents.main if agent_id == MAIN_AGENT else agents.second
    return [message.api() for message in agent.conversation.messages]


def sent(body: bytes) -> list[Json]:
    """The messages of a request, without their cache marks."""
    messages: list[Json] = json.loads(body)["messages"]
    for message in messages:
        for block in message["content"]:
            block.pop("cache_control", None)
    return messages


def tool_use(tag: str, number: int, name: str, key: str) -> Json:
    return {"type": "tool_use", "id": f"{tag}{number}", "name": name, "input": {"key": key}}


def tool_result(tag: str, number: int, text: str, **fields: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": f"{tag}{number}", "content": text, **fields}


def text(text: str) -> Json:
    return {"type": "text", "text": text}


def cut_history(agent_id: str) -> list[Json]:
    """What an agent's history is after the cut."""
    tag, name = TAGS[agent_id], TOOLS[agent_id]
    return [
        {"role": "user", "content": [text("go" if agent_id == MAIN_AGENT else "second: go")]},
        {"role": "assistant", "content": [tool_use(tag, 1, name, "meet")]},
        {"role": "user", "content": [tool_result(tag, 1, "did meet")]},
        {"role": "assistant", "content": [tool_use(tag, 2, name, "stay"), tool_use(tag, 3, name, "after")]},
        {
            "role": "user",
            "content": [
                tool_result(tag, 2, INTERRUPTED, is_error=True),
                tool_result(tag, 3, NEVER_STARTED, is_error=True),
            ],
        },
    ]


async def test_both_histories_survive_a_kill_and_nothing_runs_twice(tmp_path: Path) -> None:
    await kill_in_the_middle(tmp_path)
    before = {agent_id: len(TwoAgents.open(tmp_path, {}).requests(agent_id)) for agent_id in BOTH}
    assert before == {MAIN_AGENT: 2, SECOND: 2}

    agents = TwoAgents.open(tmp_path, {agent_id: afterwards(agent_id, TAGS[agent_id]) for agent_id in BOTH})
    for agent_id in BOTH:
        assert history(agents, agent_id) == cut_history(agent_id)
    await agents.turn("on", "i2")

    assert Counter(ran(tmp_path)) == {"meet": 4, "stay": 2}, "two meetings of both, and no call twice"
    assert {tool_use_id: len(texts) for tool_use_id, texts in results(agents).items()} == {
        f"{tag}{number}": 1 for tag in "ms" for number in (1, 2, 3, 4)
    }
    for agent_id in BOTH:
        bodies = agents.requests(agent_id)
        assert len({body[: body.index(b'"messages":[')] for body in bodies}) == 1, (
            "the prefix is the same after the cut"
        )
        assert sent(bodies[2])[:-1] == [*sent(bodies[1]), *cut_history(agent_id)[3:]][:-1]
        assert [tool["name"] for tool in json.loads(bodies[2])["tools"]] == [TOOLS[agent_id]]
        assert json.loads(bodies[2])["model"] == MODELS[agent_id]
        assert_valid(history(agents, agent_id))
        rebuilt = Conversation.from_records(records(agents), agent_id)
        assert [message.api() for message in rebuilt.messages] == history(agents, agent_id)


async def test_their_records_interleave_and_each_names_its_agent(tmp_path: Path) -> None:
    agents = TwoAgents.open(tmp_path, {agent_id: afterwards(agent_id, TAGS[agent_id]) for agent_id in BOTH})
    result = await agents.turn("go", "i1")
    turns = [agent_id for agent_id, _ in groupby(record.agent_id for record in records(agents))]
    assert len(turns) > 4, turns
    for record in records(agents):
        if record.kind == "message":
            assert record.body.get("parent_tool_use_id") in ((None, "") if record.agent_id == MAIN_AGENT else (SECOND,))
    assert {body.get("parent_tool_use_id") for body in agents.shown.bodies if body["type"] == "tool_progress"} == {
        None,
        SECOND,
    }
    public = [record.body for record in records(agents) if record.kind == "message"]
    ends = [body for body in public if body["type"] == "result"]
    assert [body["result"] for body in ends] == ["m is done"], "only the main agent ends the turn of the session"
    assert ends[0]["usage"]["input_tokens"] == result["usage"]["input_tokens"] == 200, "each counts its own two calls"
    assert [body["subtype"] for body in public if body["type"] == "system"] == ["init"]
    (own,) = [record for record in records(agents) if record.kind == "agent_result"]
    assert own.agent_id == SECOND
    assert own.body["result"] == result
    assert result["result"] == "s is done"
    assert agents.session.log.usage.context_tokens == 135, "that of the main conversation"


async def test_a_second_start_closes_nothing_again(tmp_path: Path) -> None:
    await kill_in_the_middle(tmp_path)
    first = results(TwoAgents.open(tmp_path, {}))
    second = TwoAgents.open(tmp_path, {})
    assert results(second) == first
    assert [history(second, agent_id) for agent_id in BOTH] == [cut_history(agent_id) for agent_id in BOTH]


async def test_an_interrupt_ends_one_of_them(tmp_path: Path) -> None:
    scripts = {
        MAIN_AGENT: until_cut(MAIN_AGENT, "m"),
        SECOND: [calls(("s1", TOOLS[SECOND], {"key": "meet"})), says("s is done", "msg_2")],
    }
    agents = TwoAgents.open(tmp_path, scripts)
    turn = asyncio.ensure_future(agents.turn("go", "i1"))
    await until(lambda: ran(tmp_path).count("stay") == 1 and not agents.second.running, "the second to end")
    agents.main.interrupt()
    assert (await turn)["result"] == "s is done"
    ends = [r.body for r in records(agents) if r.kind == "message" and r.body["type"] == "result"]
    assert [body["terminal_reason"] for body in ends] == ["aborted_tools"]
    assert [len(texts) for texts in results(agents).values()] == [1] * 4


async def test_a_question_of_the_second_names_it_and_its_answer_reaches_it(tmp_path: Path) -> None:
    scripts = {
        MAIN_AGENT: [calls(("m1", TOOLS[MAIN_AGENT], {"key": "meet"})), says("m is done", "msg_2")],
        SECOND: [calls(("s1", TOOLS[SECOND], {"key": "meet"})), says("s is done", "msg_2")],
    }
    agents = TwoAgents.open(tmp_path, scripts)
    permissions = agents.second.config.permissions
    assert isinstance(permissions, OpenPermissions)
    permissions.decisions[TOOLS[SECOND]] = Decision(Behavior.ASK, "it changes something")
    turn = asyncio.ensure_future(agents.turn("go", "i1"))

    def asked() -> list[Record]:
        return [r for r in records(agents) if r.kind == "message" and r.body["type"] == "control_request"]

    await until(lambda: bool(asked()), "a question")
    (question,) = asked()
    assert (question.agent_id, question.body["request"]["tool_use_id"]) == (SECOND, "s1")
    answer = {"subtype": "success", "request_id": question.body["request_id"], "response": {"behavior": "allow"}}
    agents.session.take_input("i2", {"type": "control_response", "response": answer})
    assert (await turn)["result"] == "s is done"
    assert ran(tmp_path) == ["meet", "meet"]
