"""Several clients at one session: who may answer, what is told to whom, and what outlives whom."""

from __future__ import annotations

import json
import os
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.remote.agent_kit import Json, calls, opening, says
from tests.remote.worker_process import Laptop, WorkerHost, alive, until

from ccb.remote.session_store.session_log import UnfinishedWork
from ccb.tunnel.wire import frames
from ccb.tunnel.wire.journal_records import WithdrawnRecord, record_of
from ccb.tunnel.wire.session_options import SessionOptions

ALICE = SessionOptions(client="alice@laptop pid 1 aa", permission_prompts="stdio")
BOB = SessionOptions(client="bob@desk pid 2 bb", permission_prompts="stdio")


async def turn(laptop: Laptop, prompt: str, answer: str) -> Json:
    return await laptop.sent(prompt, says(answer, "msg_" + uuid.uuid4().hex))


async def ask(laptop: Laptop, command: str, tool_id: str = "toolu_1") -> Json:
    await laptop.begin("go", calls((tool_id, "Bash", {"command": command}), message_id="msg_" + uuid.uuid4().hex))
    return await laptop.message("control_request")


async def answer(laptop: Laptop, asked: Json, word: Json) -> None:
    await laptop.reply(asked["request_id"], word, "answer:" + asked["request_id"])


def allow(asked: Json, **more: Any) -> Json:
    return {"behavior": "allow", "updatedInput": asked["request"]["input"], **more}


async def test_a_question_goes_to_who_takes_over_and_an_old_answer_does_nothing(host: WorkerHost, session: str) -> None:
    alice = await host.drive(session, ALICE)
    asked = await ask(alice, "echo run >> count")
    bob = await host.drive(session, {"client": BOB.client})
    again = await bob.message("control_request")
    assert again["request_id"] == asked["request_id"]
    assert (await alice.next(frames.Fenced)).by == BOB.client
    await answer(alice, asked, {"behavior": "deny", "message": "no"})
    await alice.send(frames.Ping(alice.epoch, 1))
    await alice.next(frames.Pong)
    await answer(bob, asked, allow(asked))
    await bob.answers(says("done"))
    yes = "answer:" + asked["request_id"]
    told = await alice.next(frames.Event, lambda event: event.kind == "input" and event.body["id"] == yes)
    assert told.body["body"]["response"]["response"]["behavior"] == "allow", "the others are told"
    assert not any(isinstance(frame, frames.Applied) and frame.id.startswith("answer:") for frame in alice.frames)
    await bob.message("result")
    back = await host.drive(session, {"client": ALICE.client}, have=alice.last_seq)
    await back.reply(asked["request_id"], {"behavior": "deny"})
    late = await back.next(frames.Event, lambda event: event.kind == "late_answer")
    assert late.body == {"request_id": asked["request_id"]}
    assert (host.project / "count").read_text() == "run\n"


async def test_what_was_allowed_for_the_session_is_not_asked_again_after_a_kill(host: WorkerHost, session: str) -> None:
    alice = await host.drive(session, ALICE)
    asked = await ask(alice, "touch allowed")
    rules = {
        "type": "addRules",
        "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}],
        "behavior": "allow",
        "destination": "session",
    }
    refused = {**rules, "rules": [{"toolName": "Bash", "ruleContent": "mkdir:*"}]}
    await answer(alice, asked, allow(asked, updatedPermissions=[rules]))
    await alice.answers(says("done"))
    await alice.message("result")
    asked = await ask(alice, "mkdir asked", "toolu_2")
    await answer(alice, asked, {"behavior": "deny", "message": "no", "updatedPermissions": [refused]})
    await alice.answers(says("all right", "msg_x"))
    await alice.message("result")
    await host.kill_worker(alice.hello.pid)
    again = await host.drive(session, {"client": ALICE.client}, have=alice.last_seq)
    tools = [("toolu_3", "Bash", {"command": "touch again"}), ("toolu_4", "Bash", {"command": "mkdir asked"})]
    await again.begin("go", calls(*tools, message_id="msg_y"))
    question = await again.message("control_request")
    assert question["request"]["tool_use_id"] == "toolu_4", "a refused rule is none"
    assert (host.project / "again").exists()


async def test_a_new_system_prompt_and_tools_reach_a_running_agent_and_last(host: WorkerHost, session: str) -> None:
    alice = await host.drive(session, ALICE)
    before = await turn(alice, "one", "1")
    plain = await host.drive(session, BOB.to_json(), have=alice.last_seq)
    same = await turn(plain, "two", "2")
    assert (same["system"], same["tools"]) == (before["system"], before["tools"])
    given = BOB.to_json() | {"append_system_prompt": "Speak Latin.", "disallowed_tools": ["Bash"]}
    other = await host.drive(session, given, have=plain.last_seq)
    changed = await turn(other, "three", "3")
    assert changed["system"][-1]["text"] == "Speak Latin."
    assert {t["name"] for t in before["tools"]} - {t["name"] for t in changed["tools"]} == {"Bash"}
    last = await host.drive(session, {"client": BOB.client}, have=other.last_seq)
    assert (await turn(last, "four", "4"))["system"] == changed["system"]


@pytest.mark.parametrize("killed", [False, True])
async def test_who_takes_back_is_asked_again_after_headless_runs(host: WorkerHost, session: str, killed: bool) -> None:
    alice = await host.drive(session, ALICE)
    await turn(alice, "one", "1")
    given = {"client": "a run pid 7", "max_turns": 9, "model": "haiku"}
    other = await host.drive(session, given, have=alice.last_seq)
    chosen = (await turn(other, "two", "2"))["model"]
    if killed:
        await host.kill_worker(alice.hello.pid)
    back = await host.drive(session, {"client": ALICE.client}, have=other.last_seq)
    asked = await ask(back, "touch made")
    await answer(back, asked, allow(asked))
    _, body = await back.call()
    assert (host.project / "made").exists()
    assert json.loads(body)["model"] == chosen, "the model is the session's"


async def test_a_driver_comes_back_and_leaves_for_good_and_viewers_keep_what_they_see(
    host: WorkerHost, session: str
) -> None:
    alice = await host.drive(session, ALICE)
    await turn(alice, "one", "1")
    (host.state(session) / "epoch.new").mkdir()  # what the file is made as
    back = await host.drive(session, {"client": ALICE.client}, have=alice.last_seq)
    assert await turn(back, "two", "2")
    viewer = await host.drive(session, {}, role="viewer")
    await back.send(frames.Detach(back.epoch, done=True))
    await back.rest()
    await viewer.send(frames.Fetch(viewer.epoch, 1, 3, 1000))
    assert (await viewer.next(frames.Past)).body["records"]
    assert alive(back.hello.pid)
    await viewer.drop()
    await until(lambda: not alive(back.hello.pid), "nobody is there any more")
    assert host.runtime_files() == []


async def test_a_viewer_that_asks_for_much_and_takes_nothing_holds_up_nobody(host: WorkerHost, session: str) -> None:
    alice = await host.drive(session, ALICE)
    for number in range(4):
        await turn(alice, f"prompt {number}", "v" * 400_000)
    stuck = await host.drive(session, {}, tail=1, role="viewer")
    os.kill(stuck.process.pid, signal.SIGSTOP)
    try:
        other = await host.drive(session, {}, tail=1, role="viewer")
        for number in range(30):
            await stuck.send(frames.Fetch(stuck.epoch, number, alice.last_seq, 512 * 1024))
        await other.send(frames.Fetch(other.epoch, 1, alice.last_seq, 512 * 1024))
        assert (await other.next(frames.Past)).body["records"]
        await turn(alice, "more", "w")
        resident = int(Path(f"/proc/{alice.hello.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert resident < 120_000_000
    finally:
        os.kill(stuck.process.pid, signal.SIGCONT)
    for number in range(30):
        assert (await stuck.next(frames.Past)).request == number
    while stuck.last_seq < alice.last_seq:
        assert await stuck.read()
    seqs = [event.seq for event in stuck.events]
    assert seqs == list(range(seqs[0], stuck.last_seq + 1))


async def test_one_that_asks_for_pages_without_end_is_left(host: WorkerHost, session: str) -> None:
    alice = await host.drive(session, ALICE)
    await turn(alice, "one", "v" * 400_000)
    viewer = await host.drive(session, {}, tail=1, role="viewer")
    os.kill(viewer.process.pid, signal.SIGSTOP)
    for number in range(200):
        await viewer.send(frames.Fetch(viewer.epoch, number, alice.last_seq, 512 * 1024))
    os.kill(viewer.process.pid, signal.SIGCONT)
    await viewer.rest()
    assert await turn(alice, "two", "2")


def test_a_withdrawn_answer_is_under_way_no_more() -> None:
    partial = UnfinishedWork()
    start = json.loads(opening("msg_1").split(b"data: ", 1)[1])
    partial.take("", {"type": "stream_event", "event": start})
    assert [body["event"]["type"] for _, body in partial.bodies()] == ["message_start"]
    partial.apply(record_of(WithdrawnRecord("msg_2")))
    assert partial.bodies()
    partial.apply(record_of(WithdrawnRecord("msg_1")))
    assert not partial.bodies()
