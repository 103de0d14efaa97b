"""Coming back to a session that exists: as the same client, as another one, from far behind, or only to look on."""

from __future__ import annotations

import contextlib
import fcntl
import json
import socket
import uuid

import pytest
from tests.remote.agent_kit import Json, calls, content, says
from tests.remote.worker_process import Laptop, WorkerHost, alive, until

from ccb.tunnel.wire import frames
from ccb.tunnel.wire.session_options import SessionOptions

ALICE = SessionOptions(client="alice@laptop pid 1 aa")
BOB = SessionOptions(client="bob@desk pid 2 bb")


async def test_a_reconnect_changes_nothing_but_a_new_process_brings_its_options(host: WorkerHost, session: str) -> None:
    given = SessionOptions(client=ALICE.client, allowed_tools=["Bash"], permission_prompts="stdio", model="opus")
    first = await host.drive(session, given)
    await first.turn("one", says("1"))
    command = {"command": "echo run >> count"}

    async def tool_result(laptop: Laptop) -> str:
        await laptop.begin("go", calls((f"toolu_{uuid.uuid4().hex}", "Bash", command)))
        request = await laptop.tell(says("done"))
        await laptop.message("result")
        return json.dumps(request["messages"][-1])

    back = await host.drive(session, {"client": ALICE.client}, have=first.last_seq)
    await tool_result(back)
    assert (host.project / "count").read_text() == "run\n"
    other = await host.drive(session, BOB.to_json() | {"allowed_tools": ["Read"]}, have=back.last_seq)
    assert '"is_error": true' in await tool_result(other)
    assert (host.project / "count").read_text() == "run\n"
    options = [event.body["options"] for event in other.events if event.kind == "options"]
    assert options[-1]["model"] == "opus", "what belongs to the session stays"
    assert "permission_prompts" not in options[-1]


async def asking(host: WorkerHost, session: str, options: SessionOptions) -> tuple[Laptop, Json]:
    """A driver whose session waits for an answer about a command; the question."""
    first = await host.drive(session, options)
    await first.begin("go", calls(("toolu_1", "Bash", {"command": "echo run >> count"})))
    return first, await first.message("control_request")


@pytest.mark.parametrize("there", [True, False])
async def test_who_cannot_be_asked_takes_over_no_session_that_asks(there: bool, host: WorkerHost, session: str) -> None:
    """Also when the laptop that was asked has no connection just now."""
    first, asked = await asking(host, session, SessionOptions(client=ALICE.client, permission_prompts="stdio"))
    before = (host.state(session) / "journal.jsonl").read_bytes()
    if not there:
        await first.drop()
    run = await host.connect(session)
    await run.attach(BOB.to_json() | {"max_turns": 5}, have=first.last_seq, decided=False)
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


async def test_from_far_behind_there_is_a_snapshot_and_only_the_tail(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, ALICE)
    for number in range(30):
        await first.turn(f"prompt {number}", says("x" * 2000))
    whole = first.events
    back = await host.drive(session, {"client": ALICE.client}, tail=20_000)
    snapshot = await back.next(frames.Snapshot)
    assert snapshot.body["result"]["result"] == "x" * 2000
    assert snapshot.body["permission_mode"] == "default" and snapshot.body["asks"] == []
    event = await back.next(frames.Event)
    assert (event.seq, event.kind) == (snapshot.seq + 1, "turn_start")
    while back.last_seq < whole[-1].seq:
        await back.next(frames.Event)
    size = sum(len(json.dumps(event.body)) for event in back.events)
    assert 2_000 < size < 20_000
    near = await host.drive(session, {"client": ALICE.client}, have=whole[-3].seq, tail=20_000)
    await near.next(frames.Event)
    assert not any(isinstance(frame, frames.Snapshot) for frame in near.frames), "so little is simply sent"


async def test_earlier_events_come_page_by_page_also_to_a_viewer(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, ALICE)
    for number in range(40):
        await first.turn(f"prompt {number}", says("y" * 1000))
    whole = [(event.seq, event.kind) for event in first.events]
    viewer = await host.drive(session, {}, tail=1, role="viewer")
    before = (await viewer.next(frames.Snapshot)).seq + 1
    fetched: list[tuple[int, str]] = []
    pages = 0
    while before > 1:
        await viewer.send(frames.Fetch(viewer.epoch, pages, before, 30_000))
        page = await viewer.next(frames.Past)
        assert page.request == pages
        records = page.body["records"]
        fetched = [(record["seq"], record["kind"]) for record in records] + fetched
        before = records[0]["seq"]
        pages += 1
    assert fetched[: len(whole)] == whole and len(fetched) <= len(whole) + 1
    assert pages > 3
    await viewer.send(frames.Fetch(viewer.epoch, 999, 1, 30_000))
    assert (await viewer.next(frames.Past)).body == {"records": []}


async def test_who_comes_in_the_middle_of_a_turn_and_wants_nothing_of_the_past_is_told_what_is_open(
    host: WorkerHost, session: str
) -> None:
    first = await host.drive(session, SessionOptions(client=ALICE.client, permission_prompts="stdio"))
    await first.turn("one", says("1"))
    running = await first.say("two")
    todos = [{"content": "write it", "status": "pending", "activeForm": "writing it"}]
    await first.tell(calls(("toolu_1", "TodoWrite", {"todos": todos}), ("toolu_2", "Bash", {"command": "touch x"})))
    asked = await first.message("control_request")
    waiting = await first.say("three")
    await first.next(frames.Event, lambda event: event.kind == "input" and event.body["id"] == waiting)
    back = await host.drive(session, {"client": ALICE.client}, tail=1)
    told = (await back.next(frames.Snapshot)).body
    shown = [(each["input"], each["text"], each["taken"]) for each in told["prompts"]]
    assert shown == [(running, "two", True), (waiting, "three", False)]
    assert [ask["request_id"] for ask in told["asks"]] == [asked["request_id"]]
    assert (told["todos"], told["result"]["result"]) == (todos, "1")


async def test_who_comes_in_the_middle_of_an_answer_gets_it_so_far_once(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, SessionOptions(client=ALICE.client, partial_messages=True))
    opened = await first.opened("go")
    stream = content(says("A sentence of some length, cut in two."))
    half = stream.index(b"content_block_stop")
    await first.answer(opened, stream[:half], end=False)
    await first.next(frames.Progress, lambda frame: event_type(frame) == "content_block_delta")
    shown = text_of(first)
    await first.drop()
    back = await host.drive(session, {"client": ALICE.client}, have=first.last_seq)
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
    first = await host.drive(session, SessionOptions(client=ALICE.client, allowed_tools=["Bash"]))
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
    first = await host.drive(session, ALICE, idle_s=0.1)
    await first.opened("go")
    await first.drop()
    other = str(uuid.uuid4())
    second = await host.drive(other, BOB, idle_s=0.1)
    await second.turn("one", says("1"))
    await second.drop()
    await until(lambda: not alive(second.hello.pid), "the idle one has ended")
    assert alive(first.hello.pid), "a turn that waits for its model call is work"


async def test_an_idle_worker_gives_way_to_one_where_its_directory_is_now(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, ALICE)
    await first.turn("one", says("1"))
    await first.drop()
    await until(lambda: host.summary(session)["away"] is True, "the host knows that nobody is there")
    there = host.project.rename(host.home / "t2")
    hello = (await host.drive(session, ALICE, cwd=str(there), create=False)).hello
    assert (hello.pid != first.hello.pid, hello.cwd) == (True, str(there))
    assert host.summary(session)["earlier"] == [str(host.project.resolve())]


@pytest.mark.parametrize("why", ["it works", "somebody is there"])
async def test_a_worker_that_is_needed_stays_where_it_is(host: WorkerHost, session: str, why: str) -> None:
    first = await host.drive(session, ALICE)
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
    first = await host.drive(session, ALICE)
    await first.turn("one", says("1"))
    run = await host.drive(session, BOB.to_json() | {"max_turns": 3}, have=first.last_seq)
    await run.turn("two", says("2"))
    await run.send(frames.Stop(run.epoch, finish=True))
    assert (await run.next(frames.Bye)).reason
    await run.rest()
    assert alive(first.hello.pid)
    back = await host.drive(session, {"client": ALICE.client}, have=first.last_seq)
    await back.turn("three", says("3"))
    await first.drop()
    await until(lambda: host.summary(session)["viewers"] == 0, "the host knows that the first one is gone")
    await back.send(frames.Stop(back.epoch, finish=True))
    await until(lambda: not alive(first.hello.pid), "with nobody else there it ends")


async def test_who_takes_over_keeps_the_session_that_a_run_wanted_to_end(host: WorkerHost, session: str) -> None:
    run = await host.drive(session, ALICE)
    opened = await run.opened("one")
    await run.send(frames.Stop(run.epoch, finish=True))
    other = await host.drive(session, BOB.to_json())
    await other.next(frames.Attached)
    await other.drop()
    await run.answer(opened, content(says("1")))
    await run.message("result")
    await run.drop()
    await until(lambda: host.summary(session)["state"] == "idle", "the turn has ended")
    back = await host.drive(session, {"client": BOB.client})
    await back.message("result")
    assert alive(run.hello.pid), "the session was not ended"


async def test_who_looks_into_an_ended_session_finds_no_driver_and_no_worker(host: WorkerHost, session: str) -> None:
    run = await host.drive(session, ALICE)
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
    await laptop.attach(ALICE)
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
    await laptop.attach(ALICE)
    await laptop.turn("one", says("1"))
