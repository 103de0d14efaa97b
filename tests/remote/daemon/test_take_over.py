"""Several clients of one session: which one may answer, what each is told, and what a client that returns finds."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.remote.agent_kit import Json, calls, content, opening, says
from tests.remote.worker_process import Laptop, WorkerHost, alive, until

from ccb.remote.session_store.session_log import UnfinishedWork
from ccb.tunnel.wire import frames
from ccb.tunnel.wire.journal_records import WithdrawnRecord, record_of
from ccb.tunnel.wire.session_options import SessionOptions

ALICE = SessionOptions(client="alice@laptop pid 1 aa", permission_prompts="stdio")
BOB = SessionOptions(client="bob@desk pid 2 bb", permission_prompts="stdio")
ANN, RUN = (SessionOptions(client=name) for name in ("ann@laptop pid 1 aa", "a run pid 2 bb"))  # who cannot be asked


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


async def test_a_reconnect_changes_nothing_but_a_new_process_brings_its_options(host: WorkerHost, session: str) -> None:
    given = SessionOptions(client=ANN.client, allowed_tools=["Bash"], permission_prompts="stdio", model="opus")
    first = await host.drive(session, given)
    await first.turn("one", says("1"))
    command = {"command": "echo run >> count"}

    async def tool_result(laptop: Laptop) -> str:
        await laptop.begin("go", calls((f"toolu_{uuid.uuid4().hex}", "Bash", command)))
        request = await laptop.tell(says("done"))
        await laptop.message("result")
        return json.dumps(request["messages"][-1])

    back = await host.drive(session, {"client": ANN.client}, have=first.last_seq)
    await tool_result(back)
    assert (host.project / "count").read_text() == "run\n"
    other = await host.drive(session, RUN.to_json() | {"allowed_tools": ["Read"]}, have=back.last_seq)
    assert '"is_error": true' in await tool_result(other)
    assert (host.project / "count").read_text() == "run\n"
    options = [event.body["options"] for event in other.events if event.kind == "options"]
    assert options[-1]["model"] == "opus", "what belongs to the session stays"
    assert "permission_prompts" not in options[-1]


@pytest.mark.parametrize("there", [True, False])
async def test_who_cannot_be_asked_takes_over_no_session_that_asks(there: bool, host: WorkerHost, session: str) -> None:
    """Also when the laptop that was asked has no connection just now."""
    first = await host.drive(session, ALICE)
    asked = await ask(first, "echo run >> count")
    before = (host.state(session) / "journal.jsonl").read_bytes()
    if not there:
        await first.drop()
    run = await host.connect(session)
    await run.attach(RUN.to_json() | {"max_turns": 5}, have=first.last_seq, decided=False)
    await run.say("hello")
    refused = await run.next(frames.Refused)
    assert (refused.code, refused.data) == ("waits_for_answer", {"session": session})
    assert refused.message == "this session waits for an answer about Bash"
    await run.rest()
    assert (host.state(session) / "journal.jsonl").read_bytes() == before
    assert host.summary(session)["driver"] == ALICE.client
    if not there:
        first = await host.drive(session, {"client": ALICE.client}, have=first.last_seq)
        assert [frame.state for frame in first.frames if isinstance(frame, frames.Hello)] == ["requires_action"]
    await first.reply(asked["request_id"], {"behavior": "allow"})
    await first.call()
    assert not any(isinstance(frame, frames.Fenced) for frame in first.frames)
    assert (host.project / "count").read_text() == "run\n"


async def test_a_viewer_may_answer_what_is_asked_about_a_tool_and_nothing_else(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, ALICE)
    asked = await ask(first, "echo run >> count")
    viewer = await host.drive(session, {"client": "dash"}, role="viewer")
    viewer.epoch = 0  # which marks what a viewer sends on purpose
    await viewer.say("hello")
    await viewer.control("interrupt")
    await viewer.reply(asked["request_id"], {"behavior": "allow"}, "once")
    assert (await viewer.next(frames.Applied)).id == "once"
    _, request = await first.call()
    assert b"hello" not in request
    assert (host.project / "count").read_text() == "run\n"
    assert [line["body"].get("by") for line in host.journal(session) if line["kind"] == "input"] == [None, "dash"]
    await viewer.reply(asked["request_id"], {"behavior": "deny", "message": "late"}, "late")
    assert (await viewer.next(frames.Applied)).id == "late", "it is settled, without effect"
    assert "late" not in json.dumps([event.body for event in viewer.events])


async def test_the_late_answer_of_an_earlier_driver_does_not_count(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, ALICE)
    asked = await ask(first, "echo run >> count")
    second = await host.drive(session, ANN)
    await first.reply(asked["request_id"], {"behavior": "allow"})
    await second.reply(asked["request_id"], {"behavior": "deny", "message": "no"})
    await second.call()
    assert not (host.project / "count").exists()


async def test_from_far_behind_there_is_a_snapshot_and_only_the_tail(host: WorkerHost, session: str) -> None:
    """Earlier events come page by page, also to a viewer."""
    first = await host.drive(session, ANN)
    for number in range(40):
        await first.turn(f"prompt {number}", says("x" * 2000))
    whole = first.events
    back = await host.drive(session, {"client": ANN.client}, tail=20_000)
    snapshot = await back.next(frames.Snapshot)
    assert snapshot.body["result"]["result"] == "x" * 2000
    assert snapshot.body["permission_mode"] == "default" and snapshot.body["asks"] == []
    event = await back.next(frames.Event)
    assert (event.seq, event.kind) == (snapshot.seq + 1, "turn_start")
    while back.last_seq < whole[-1].seq:
        await back.next(frames.Event)
    assert 2_000 < sum(len(json.dumps(event.body)) for event in back.events) < 20_000
    near = await host.drive(session, {"client": ANN.client}, have=whole[-3].seq, tail=20_000)
    await near.next(frames.Event)
    assert not any(isinstance(frame, frames.Snapshot) for frame in near.frames), "so little is simply sent"
    viewer = await host.drive(session, {}, tail=1, role="viewer")
    before = (await viewer.next(frames.Snapshot)).seq + 1
    fetched: list[tuple[int, str]] = []
    for number in range(100):
        await viewer.send(frames.Fetch(viewer.epoch, number, before, 30_000))
        page = await viewer.next(frames.Past)
        assert page.request == number
        fetched = [(record["seq"], record["kind"]) for record in page.body["records"]] + fetched
        if before == 1:
            break
        before = fetched[0][0]
    assert page.body == {"records": []} and number > 3
    assert fetched[: len(whole)] == [(event.seq, event.kind) for event in whole] and len(fetched) <= len(whole) + 3


async def test_who_comes_in_the_middle_of_a_turn_and_wants_nothing_of_the_past_is_told_what_is_open(
    host: WorkerHost, session: str
) -> None:
    first = await host.drive(session, SessionOptions(client=ANN.client, permission_prompts="stdio"))
    await first.turn("one", says("1"))
    running = await first.say("two")
    todos = [{"content": "write it", "status": "pending", "activeForm": "writing it"}]
    await first.tell(calls(("toolu_1", "TodoWrite", {"todos": todos}), ("toolu_2", "Bash", {"command": "touch x"})))
    asked = await first.message("control_request")
    waiting = await first.say("three")
    await first.next(frames.Event, lambda event: event.kind == "input" and event.body["id"] == waiting)
    back = await host.drive(session, {"client": ANN.client}, tail=1)
    told = (await back.next(frames.Snapshot)).body
    shown = [(each["input"], each["text"], each["taken"]) for each in told["prompts"]]
    assert shown == [(running, "two", True), (waiting, "three", False)]
    assert [ask["request_id"] for ask in told["asks"]] == [asked["request_id"]]
    assert (told["todos"], told["result"]["result"]) == ([{"id": "1", **todos[0]}], "1")


async def test_who_comes_in_the_middle_of_an_answer_gets_it_so_far_once(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, SessionOptions(client=ANN.client, partial_messages=True))
    opened = await first.opened("go")
    stream = content(says("A sentence of some length, cut in two."))
    half = stream.index(b"content_block_stop")
    await first.answer(opened, stream[:half], end=False)
    await first.next(frames.Progress, lambda frame: event_type(frame) == "content_block_delta")
    shown = text_of(first)
    await first.drop()
    back = await host.drive(session, {"client": ANN.client}, have=first.last_seq)
    opened, _ = await back.call()
    await back.answer(opened, stream[opened.offset :], offset=opened.offset)
    await back.message("result")
    assert shown and text_of(back) == "A sentence of some length, cut in two."
    types = [event_type(frame) for frame in back.frames if isinstance(frame, frames.Progress)]
    assert types.count("message_start") == 1


def event_type(frame: frames.Progress) -> str:
    return str(frame.body.get("event", {}).get("type"))


def text_of(laptop: Laptop) -> str:
    events = [frame.body.get("event", {}) for frame in laptop.frames if isinstance(frame, frames.Progress)]
    return "".join(event["delta"].get("text", "") for event in events if "delta" in event)


async def test_leaving_while_something_runs_in_the_background_keeps_the_process(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, SessionOptions(client=ANN.client, allowed_tools=["Bash"]))
    command = {"command": "touch up; while [ ! -e go ]; do sleep 0.05; done; touch over", "run_in_background": True}
    await first.turn("go", calls(("toolu_1", "Bash", command)), says("started"))
    await until((host.project / "up").exists, "the command runs")
    await first.send(frames.Detach(first.epoch, done=True))
    await first.rest()
    assert alive(first.hello.pid)
    (host.project / "go").touch()
    await until((host.project / "over").exists, "the command has ended by itself")
    await until(lambda: not alive(first.hello.pid), "with nothing left to do the daemon ends")


async def test_an_idle_session_without_clients_ends_after_a_time_a_busy_one_not(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, ANN, idle_s=0.1)
    await first.opened("go")
    await first.drop()
    other = str(uuid.uuid4())
    second = await host.drive(other, RUN, idle_s=0.1)
    await second.turn("one", says("1"))
    await second.drop()
    await until(lambda: not alive(second.hello.pid), "the idle one has ended")
    assert alive(first.hello.pid), "a turn that waits for its model call is work"


async def test_an_idle_worker_gives_way_to_one_where_its_directory_is_now(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, ANN)
    await first.turn("one", says("1"))
    await first.drop()
    await until(lambda: host.summary(session)["away"] is True, "the host knows that nobody is there")
    there = host.project.rename(host.home / "t2")
    hello = (await host.drive(session, ANN, cwd=str(there), create=False)).hello
    assert (hello.pid != first.hello.pid, hello.cwd) == (True, str(there))
    assert host.summary(session)["earlier"] == [str(host.project.resolve())]


@pytest.mark.parametrize("why", ["it works", "somebody is there"])
async def test_a_worker_that_is_needed_stays_where_it_is(host: WorkerHost, session: str, why: str) -> None:
    first = await host.drive(session, ANN)
    if why == "it works":
        await first.opened("go")
        await first.drop()
        await until(lambda: host.summary(session)["away"] is True, "the host knows that nobody is there")
    else:
        await first.turn("one", says("1"))
    there = host.project.rename(host.home / "t2")
    hello = await host.greeted(session, str(there), create=False, named=True)
    assert (hello.pid, hello.cwd) == (first.hello.pid, first.hello.cwd)


async def test_a_run_that_ends_takes_the_session_from_nobody_who_watches(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, ANN)
    await first.turn("one", says("1"))
    run = await host.drive(session, RUN.to_json() | {"max_turns": 3}, have=first.last_seq)
    await run.turn("two", says("2"))
    await run.send(frames.Stop(run.epoch, finish=True))
    assert (await run.next(frames.Bye)).reason
    await run.rest()
    assert alive(first.hello.pid)
    back = await host.drive(session, {"client": ANN.client}, have=first.last_seq)
    await back.turn("three", says("3"))
    await first.drop()
    await until(lambda: host.summary(session)["viewers"] == 0, "the host knows that the first one is gone")
    await back.send(frames.Stop(back.epoch, finish=True))
    await until(lambda: not alive(first.hello.pid), "with nobody else there it ends")


async def test_who_takes_over_keeps_the_session_that_a_run_wanted_to_end(host: WorkerHost, session: str) -> None:
    run = await host.drive(session, ANN)
    opened = await run.opened("one")
    await run.send(frames.Stop(run.epoch, finish=True))
    other = await host.drive(session, RUN.to_json())
    await other.next(frames.Attached)
    await other.drop()
    await run.answer(opened, content(says("1")))
    await run.message("result")
    await run.drop()
    await until(lambda: host.summary(session)["state"] == "idle", "the turn has ended")
    back = await host.drive(session, {"client": RUN.client})
    await back.message("result")
    assert alive(run.hello.pid), "the session was not ended"


async def test_who_looks_into_an_ended_session_finds_no_driver_and_no_worker(host: WorkerHost, session: str) -> None:
    run = await host.drive(session, ANN)
    await run.turn("one", says("1"))
    await run.send(frames.Stop(run.epoch, finish=True))
    await until(lambda: not alive(run.hello.pid), "the run has ended")
    assert host.summary(session)["state"] == "ended" and not {"pid", "hostname", "socket"} & set(host.summary(session))
    late = await host.drive(session, {}, role="viewer")
    assert late.hello.driver == ""
    await late.message("result")
    await late.send(frames.Detach(late.epoch, done=False))
    await until(lambda: not alive(late.hello.pid), "nobody drives or watches")


async def test_who_leaves_at_once_takes_the_start_of_a_session_from_nobody(host: WorkerHost, session: str) -> None:
    laptop = await host.connect(session)
    path = host.runtime / "ccb" / f"{session}.sock"
    with socket.socket(socket.AF_UNIX) as hasty:

        def connected() -> bool:
            with contextlib.suppress(OSError):
                hasty.connect(str(path))
                return True
            return False

        while not connected():  # closer than any wait: it comes before the one who starts the worker
            pass
    await laptop.attach(ANN)
    await laptop.turn("one", says("1"))


async def test_a_session_starts_although_an_unused_one_took_its_directory_along(host: WorkerHost, session: str) -> None:
    (host.runtime / "ccb").mkdir(mode=0o700)
    with (host.runtime / "ccb" / f"{session}.lock").open("w") as ending:
        fcntl.flock(ending, fcntl.LOCK_EX)
        laptop = await host.connect(session)

        def taken_away() -> bool:
            with contextlib.suppress(OSError):  # not there yet, or with a file that is tried out there
                host.state(session).rmdir()
                return True
            return False

        await until(taken_away, "it waits for the lock, and its directory is gone")
    await laptop.attach(ANN)
    await laptop.turn("one", says("1"))
