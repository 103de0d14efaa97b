"""Compaction over a real worker, and in a session that is longer than any window."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.remote.agent_kit import Reply, assert_valid, calls, content, error_reply, make_world, says
from tests.remote.tools_kit import opened_context
from tests.remote.worker_process import Laptop, WorkerHost
from tests.support.model.model_script import Json

from ccb.remote.agent.conversation import Conversation
from ccb.remote.agent.turn_state import Prompt
from ccb.remote.tools.read import Read
from ccb.remote.tools.toolset import Toolset
from ccb.tunnel.wire.frames import Event


def summaries(host: WorkerHost, session: str) -> int:
    return sum(1 for record in host.journal(session) if record["body"].get("isCompactSummary"))


async def told(laptop: Laptop, prompt: str, text: str, message_id: str) -> str:
    """Run a turn that the model answers. Return what it was told."""
    return json.dumps(await laptop.sent(prompt, says(text, message_id)))


async def test_a_cleared_conversation_is_forgotten_after_kills_and_by_a_summary(host: WorkerHost, session: str) -> None:
    first = await host.drive(session)
    await first.turn("the word is XYZZY", says("hello", "msg_1"))
    await first.say("/clear")
    reset = await first.message("conversation_reset")
    assert (reset["trigger"], reset["new_conversation_id"]) == ("clear", session)
    assert (await first.message("result"))["subtype"] == "success"
    seen = await told(first, "anew", "yes", "msg_2")
    assert "anew" in seen and "XYZZY" not in seen and "hello" not in seen
    await first.kill()
    second = await host.drive(session, have=first.last_seq)
    assert "XYZZY" not in await told(second, "/compact", "SUMMARY", "msg_3")
    seen = await told(second, "go on", "fine", "msg_4")
    assert "SUMMARY" in seen and "anew" in seen and "XYZZY" not in seen


async def test_a_compaction_that_is_killed_is_made_once_and_kept(host: WorkerHost, session: str) -> None:
    first = await host.drive(session)
    await first.turn("the word is XYZZY", says("hello", "msg_1"))
    await first.say("/compact keep the colours")
    _, asked = await first.call()
    assert b"keep the colours" in asked
    await first.kill()
    second = await host.drive(session, have=first.last_seq)
    assert (await second.message("result"))["subtype"] == "error_during_execution"
    await second.say("go on")
    assert "keep the colours" in json.dumps(await second.tell(says("SUMMARY", "msg_2")))
    assert (await second.message("system", "compact_boundary"))["compact_metadata"]["trigger"] == "manual"
    seen = json.dumps(await second.tell(says("I go on", "msg_3")))
    assert "SUMMARY" in seen and "XYZZY" in seen and "hello" not in seen
    await second.message("result")
    await second.kill()
    third = await host.drive(session, have=second.last_seq)
    await third.say("/context")
    shown = await third.next(Event, lambda event: event.body.get("type") == "result" and "tokens" in str(event.body))
    assert "Kept free for compaction" in shown.body["result"]
    seen = await told(third, "and now?", "done", "msg_4")
    assert "SUMMARY" in seen and "keep the colours" not in seen
    assert summaries(host, session) == 1


async def test_a_lost_connection_does_not_repeat_a_compaction(host: WorkerHost, session: str) -> None:
    first = await host.drive(session)
    await first.turn("hello", says("hello", "msg_1"))
    opened = await first.opened("/compact")
    reply = content(says("SUMMARY", "msg_2"))
    await first.answer(opened, reply[:200], end=False)
    await first.drop()
    second = await host.drive(session, have=first.last_seq)
    again, _ = await second.call()
    assert again.id == opened.id, "the call goes on where it was"
    await second.answer(again, reply[again.offset :], offset=again.offset)
    assert "Compacted" in (await second.message("result"))["result"]
    assert summaries(host, session) == 1


def said(request: Json) -> list[tuple[str, list[str]]]:
    """What stands in a request: the role and the texts of each message."""
    return [(each["role"], [block["text"] for block in each["content"]]) for each in request["messages"]]


@pytest.mark.parametrize("part", ["from", "up-to"])
async def test_a_part_becomes_a_summary_and_the_rest_stays_also_after_a_kill(
    host: WorkerHost, session: str, part: str
) -> None:
    first = await host.drive(session)
    for word in ("first", "second", "third"):
        before = said(await first.sent(f"the {word} word", says(f"heard {word}", f"msg_{word}")))
    points = (await first.request("rewind_points"))["response"]["points"]
    last, middle = points[0]["id"], points[1]["id"]
    wanted = f"/compact --{part} {middle} keep the colours"
    await first.say(wanted)
    refused = error_reply(401)
    await first.answer((await first.call())[0], content(refused), status=refused.status)
    assert (await first.message("result"))["is_error"]
    failed = said(await first.sent("still here?", says("yes", "msg_yes")))
    assert failed[: len(before)] == before, "a summary that fails changes nothing"
    asked = await first.sent(wanted, says("SUMMARY", "msg_s"))
    assert "keep the colours" in said(asked)[-1][1][-1]
    assert (
        said(asked)[: 2 if part == "up-to" else len(before) - 1] == before[: 2 if part == "up-to" else len(before) - 1]
    )
    request = said(await first.sent("go on", says("fine", "msg_4")))
    if part == "from":
        assert request[:2] == before[:2] and len(request) == 3
        assert "SUMMARY" in request[2][1][0] and "the second word" in request[2][1][0]
        assert "the first word" not in request[2][1][0] and request[2][1][-1] == "go on"
    else:
        assert "SUMMARY" in request[0][1][0] and "the first word" in request[0][1][0]
        assert request[0][1][-1] == "the second word" and request[1:3] == failed[3:5]
        assert [texts[-1] for _, texts in request[3:]] == ["heard third", "still here?", "yes", "go on"]
    await first.kill()
    second = await host.drive(session, have=first.last_seq)
    again = said(await second.sent("and now?", says("done", "msg_5")))
    assert again[: len(request)] == request and summaries(host, session) == 1
    await second.say(f"/compact --{part} {middle if part == 'from' else last[:1] + 'zz'}")
    refusal = {"from": "part of a summary already", "up-to": "No prompt, or more than one"}[part]
    assert refusal in (await second.message("result"))["result"]
    await second.request("rewind_conversation", user_message_id=last)
    assert said(await second.sent("other", says("ok", "msg_6")))[:4] == before[:4], "it is as it was before that prompt"
    first_of_all = (await second.request("rewind_points"))["response"]["points"][-1]["id"]
    await second.say(f"/compact --{part} {first_of_all}")
    if part == "from":
        await second.tell(says("ALL", "msg_7"))
    told = {"from": "Compacted: about", "up-to": "nothing is before that prompt"}[part]
    assert told in (await second.message("result"))["result"]


class LongModel:
    """Plays the model of a very long session: reads files in rounds, writes down the facts it sees when it is asked for
    a summary, and in the end says what it knows. Counts as the real one does, and refuses what does not fit."""

    def __init__(self, files: Sequence[str], rounds: int, window: int) -> None:
        self.files, self.rounds, self.window = files, rounds, window
        self.round = self.summaries = self.largest = 0

    def resume(self, call_id: str) -> float:
        """It is never silent."""
        return 0.0

    @asynccontextmanager
    async def request(
        self, call_id: str, method: str, path: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> AsyncIterator[Reply]:
        whole = b"".join(body)
        tokens = len(whole) // 4
        self.largest = max(self.largest, tokens)
        assert tokens < self.window, "the provider would refuse this"
        yield self._counted(self._reply(whole), tokens)

    def _reply(self, whole: bytes) -> Reply:
        facts = sorted(set(re.findall(rb"FACT-\d+", whole)))
        if b"Answer with the summary alone" in whole:
            self.summaries += 1
            return says(f"Facts: {' '.join(each.decode() for each in facts)}", f"msg_s{self.summaries}")
        if self.round == self.rounds:
            word = re.search(rb"the word is ([A-Z]+)", whole)
            return says(f"{word[1].decode() if word else '?'} {facts[0].decode() if facts else '?'}", "msg_end")
        self.round += 1
        start = self.round * 10
        tools = [
            (f"t{start + i}", "Read", {"file_path": self.files[(start + i) % len(self.files)], "limit": self.round + 9})
            for i in range(10)
        ]
        return calls(*tools, message_id=f"msg_{self.round}")

    @staticmethod
    def _counted(reply: Reply, tokens: int) -> Reply:
        first, *rest = reply.chunks
        assert isinstance(first, bytes)
        return replace(reply, chunks=[first.replace(b'"input_tokens": 100', b'"input_tokens": %d' % tokens), *rest])


async def test_three_thousand_tool_calls_stay_in_the_window(tmp_path: Path) -> None:
    files = []
    for number in range(40):
        path = tmp_path / f"{number}.txt"
        path.write_text("".join(f"line {n} of file {number}: {'x' * 500}\n" for n in range(8)))
        files.append(str(path))
    (tmp_path / "10.txt").write_text("FACT-1\n")
    model = LongModel(files, 300, 200_000)
    world = make_world()
    agent = world.agent
    async with opened_context(tmp_path, tmp_path / "out") as tools:
        agent.configure(replace(agent.config, context=tools, tools=Toolset([Read()])))
        agent._deps = replace(agent._deps, transport=model)  # the only part that is not real
        prompt = {"type": "text", "text": "The word is: the word is XYZZY. Read everything."}
        result = await agent.run_turn([Prompt([prompt])])
    assert result["result"] == "XYZZY FACT-1"
    records = world.journal.records
    assert sum(1 for record in records if record.kind == "tool_start") == 3000
    assert 1 <= model.summaries <= 40 and model.largest < 185_000
    again = Conversation.from_records(records)
    assert [message.encoded() for message in again.messages] == [m.encoded() for m in world.conversation.messages]
    assert again.size.tokens(0) == world.conversation.size.tokens(0)
    assert_valid(world.history())
