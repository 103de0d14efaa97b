"""A copy of a session goes its own way: same conversation, new id, nothing of the original's unfinished business."""

from __future__ import annotations

import errno
import json
import os
import uuid

import pytest
from tests.remote.agent_kit import calls, says
from tests.remote.worker_process import Laptop, WorkerHost, file_limit, until

from ccb.tunnel.wire.frames import Attach, Event, Hello, Json, Snapshot
from ccb.tunnel.wire.session_options import SessionOptions

LATEST: Json = {"continue": True}


@pytest.fixture
def copy() -> str:
    return str(uuid.uuid4())


@pytest.fixture
async def original(host: WorkerHost, session: str) -> Laptop:
    """A session with one turn."""
    laptop = await host.drive(session)
    await laptop.turn("one", says("1"))
    return laptop


async def test_a_fork_knows_the_conversation_and_the_original_stays_as_it_was(
    host: WorkerHost, session: str, copy: str
) -> None:
    first = await host.drive(session)
    await first.turn("the word is swordfish", says("noted"))
    await until(lambda: host.journal(session)[-1]["kind"] == "turn_end", "the turn is in the journal")
    before = (host.state(session) / "journal.jsonl").read_bytes()
    second = await host.drive(copy, fork_of=session[:8])
    assert (second.hello.session, second.hello.cwd) == (copy, str(host.project))
    assert second.hello.pid != first.hello.pid
    await second.say("which word?")
    _, body = await second.call()
    assert b"swordfish" in body
    assert (host.state(session) / "journal.jsonl").read_bytes() == before
    records = host.journal(copy)
    assert {r["body"]["session_id"] for r in records if r["kind"] == "message"} == {copy}
    assert session not in {r["body"].get("session") for r in records}
    assert [r["body"] for r in records if r["kind"] == "forked"] == [{"from": session}]
    assert [r["seq"] for r in records] == list(range(1, len(records) + 1))
    await first.turn("and you?", says("still here", "msg_2"))


@pytest.mark.parametrize("asks", [False, True])
async def test_what_a_running_original_has_open_does_not_go_on_in_the_fork(
    asks: bool, host: WorkerHost, session: str, copy: str
) -> None:
    """A tool runs or asks, the next one has not begun, a prompt waits."""
    options = SessionOptions(allowed_tools=[] if asks else ["Bash"], permission_prompts="stdio")
    first = await host.drive(session, options)
    commands = ["echo run >> count; sleep 600", "touch never"]
    uses = [(f"toolu_{n}", "Bash", {"command": command}) for n, command in enumerate(commands)]
    await first.begin("go", calls(*uses))
    if asks:
        await first.message("control_request")
    else:
        await until((host.project / "count").exists, "the first tool runs")
    await first.say("waiting")
    await first.next(Event, lambda e: e.kind == "input" and "waiting" in json.dumps(e.body))
    second = await host.drive(copy, options, fork_of=session)
    await second.say("what now?")
    _, body = await second.call()
    history = json.loads(body)["messages"]
    results = [b for m in history if isinstance(m["content"], list) for b in m["content"] if b["type"] == "tool_result"]
    first_result = "did not run" if asks else "may have run"
    assert [first_result in json.dumps(results[0]), "did not run" in json.dumps(results[1])] == [True, True]
    assert all("copy of the session" in json.dumps(each) for each in results)
    assert "stopped" not in json.dumps(results), "the original goes on"
    assert "waiting" not in json.dumps(history)
    messages = [r["body"] for r in host.journal(copy) if r["kind"] == "message"]
    assert "result" not in [m["type"] for m in messages]
    asked = [m["request_id"] for m in messages if m["type"] == "control_request"]
    assert asked == [m["request_id"] for m in messages if m["type"] == "control_cancel_request"]
    assert len(asked) == asks
    viewer = await host.connect(copy)
    hello = await viewer.next(Hello)
    await viewer.send(Attach(hello.epoch, "viewer", 0, "", {}, tail=1))
    open_now = (await viewer.next(Snapshot)).body
    assert [prompt["text"] for prompt in open_now["prompts"]] == ["what now?"] and open_now["asks"] == []
    assert not (host.project / "never").exists()
    assert asks or (host.project / "count").read_text() == "run\n"
    await first.stop()


@pytest.mark.parametrize("how", [{"fork_of": True}, {"fork": True, **LATEST}])
async def test_a_connection_that_broke_off_before_hello_finds_the_copy_it_has_made(
    how: Json, host: WorkerHost, session: str, copy: str, original: Laptop
) -> None:
    wanted = {**how, "fork_of": session} if "fork_of" in how else how
    second = await host.connect(copy, **wanted, fresh=True)
    await second.next(Hello)
    await second.drop()
    again = await host.drive(copy, **wanted)
    await again.opened("which word?")
    assert [r["body"] for r in host.journal(copy) if r["kind"] == "forked"] == [{"from": session}]


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("retried", [False, True])
@pytest.mark.parametrize("is_a_copy", [False, True])
@pytest.mark.parametrize("how", [{"fork_of": True}, {"fork": True, **LATEST}])
@pytest.mark.quick_rows(4)
async def test_a_copy_is_not_made_over_a_session_that_exists(
    how: Json, is_a_copy: bool, retried: bool, ended: bool, host: WorkerHost, session: str, copy: str, original: Laptop
) -> None:
    copied: Json = {"fork_of": session} if is_a_copy else {}
    other = await host.drive(copy, **copied)
    await other.turn("mine", says("yes", "msg_9"))
    await until(lambda: host.journal(copy)[-1]["kind"] == "turn_end", "the turn is in the journal")
    if ended:
        await other.stop()
    before = (host.state(copy) / "journal.jsonl").read_bytes()
    wanted = {**how, "fork_of": session} if "fork_of" in how else how
    refused = await host.refused(copy, **wanted, fresh=not retried)
    assert (refused.code, refused.message) == ("in_use", f"Session ID {copy} is already in use.")
    assert (host.state(copy) / "journal.jsonl").read_bytes() == before


async def test_a_copy_of_one_session_is_not_taken_for_a_copy_of_another(
    host: WorkerHost, session: str, copy: str
) -> None:
    for each in (session, "aaaa1111-0000-4000-8000-000000000000"):
        laptop = await host.drive(each)
        await laptop.turn("one", says("1"))
    await host.greeted(copy, fork_of=session, fresh=True)
    refused = await host.refused(copy, fork_of="aaaa1111")
    assert refused.code == "in_use"


async def test_a_large_output_stays_readable_when_the_original_is_removed(
    host: WorkerHost, session: str, copy: str
) -> None:
    first = await host.drive(session, SessionOptions(allowed_tools=["Bash"]))
    await first.turn("go", calls(("toolu_1", "Bash", {"command": "seq 1 20000"})), says("done", "msg_2"))
    outputs = host.state(session) / "outputs"
    (kept,) = [each for each in outputs.iterdir() if not each.name.startswith(".")]
    await host.drive(copy, fork_of=session)
    await first.end()
    kept.unlink()
    mine = host.state(copy) / "outputs" / kept.name
    assert mine.read_text().endswith("20000\n")
    text = (host.state(copy) / "journal.jsonl").read_text()
    assert str(mine) in text and str(kept) not in text


async def test_a_torn_last_record_is_not_copied(host: WorkerHost, session: str, copy: str, original: Laptop) -> None:
    await original.end()
    path = host.state(session) / "journal.jsonl"
    before = path.read_bytes()
    path.write_bytes(before + b'{"seq":99,"time":1,"kind":"mess')
    await host.drive(copy, fork_of=session)
    assert b'"mess' not in (host.state(copy) / "journal.jsonl").read_bytes().replace(b'"message', b"")
    assert path.read_bytes().startswith(before)


async def test_a_fork_that_does_not_fit_on_the_disk_leaves_nothing(host: WorkerHost, session: str, copy: str) -> None:
    """A limit on file sizes plays the disk that is full in the middle of the copy."""
    first = await host.drive(session)
    await first.turn("one", says("1" * 20_000))
    with file_limit(10_000):
        refused = await host.refused(copy, fork_of=session)
    assert (refused.code, os.strerror(errno.EFBIG) in refused.message) == ("no_storage", True)
    assert not host.state(copy).exists()
    assert [name for name in host.runtime_files() if copy in name] == []
    assert (await host.greeted(copy, fork_of=session)).session == copy


async def test_what_cannot_be_forked_is_refused_and_leaves_nothing(host: WorkerHost, session: str, copy: str) -> None:
    refused = await host.refused(copy, fork_of="beef")
    assert (refused.code, refused.data["near"]) == ("no_session", [])
    assert (await host.refused(copy, fork=True, **LATEST)).code == "no_session"
    first = await host.drive(session)
    await first.turn("one", says("1"))
    assert (await host.refused("../evil", fork_of=session)).code == "internal"
    assert [each.name for each in host.state(session).parent.iterdir()] == [session]
