"""The worker as a process: who may start one, hello, attach, turns, drops, its end, and what is left afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.remote.agent_kit import calls, content, says
from tests.remote.worker_process import WorkerHost, alive, file_limit, until

from ccb.remote.daemon.hello import LONG_JOURNAL
from ccb.remote.daemon.hello import PROTOCOL as HELLO_PROTOCOL
from ccb.remote.session.turns import MAX_WAITING
from ccb.tunnel.wire.frames import (
    PROTOCOL,
    Applied,
    Attach,
    Bye,
    Detach,
    Event,
    Fenced,
    Hello,
    Ping,
    Pong,
    Progress,
    Refused,
    Stop,
)  # fmt: skip
from ccb.tunnel.wire.session_options import SessionOptions


async def test_hello_comes_unprompted_and_a_prompt_is_answered_by_the_model_over_the_link(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.connect(session)
    hello = await laptop.next(Hello)
    assert hello.protocol == PROTOCOL == HELLO_PROTOCOL
    assert (hello.session, hello.cwd, hello.state) == (session, str(host.project), "idle")
    assert hello.bundle == "b" * 64
    assert (hello.epoch, hello.seq, hello.storage) == (0, 0, "disk")
    assert alive(hello.pid)
    assert hello.pid != laptop.process.pid
    await laptop.attach(after=hello)
    input_id = await laptop.say("hello there")
    opened, body = await laptop.call()
    assert opened.path == "/v1/messages" and opened.nonce.startswith("nonce-")
    assert "hello there" in body.decode() and len(body) == opened.size
    await laptop.answer(opened, content(says("hi")))
    result = await laptop.message("result")
    assert (result["subtype"], result["result"], result["session_id"]) == ("success", "hi", session)
    assert any(isinstance(frame, Applied) and frame.id == input_id for frame in laptop.frames)
    seqs = [frame.seq for frame in laptop.frames if isinstance(frame, Event)]
    assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.parametrize(
    ("start", "code"),
    [
        ({"cwd": "~/projekt"}, "no_such_path"),
        ({"cwd": "~/file"}, "not_a_directory"),
        ({"cwd": "~/file/below"}, "no_such_path"),
        ({"cwd": "/nowhere/at/all"}, "no_such_path"),
        ({"create": False}, "no_session"),
        *(({"session": no_name}, "internal") for no_name in ("../evil", "", ".", "a/b", "x" * 200)),
    ],
)
async def test_a_start_that_is_refused_leaves_nothing(
    host: WorkerHost, session: str, start: dict[str, Any], code: str
) -> None:
    (host.home / "file").write_text("", encoding="utf-8")
    refused = await host.refused(**{"session": session, **start})
    assert refused.code == code
    if start == {"cwd": "~/projekt"}:
        assert refused.data["near"] == [str(host.project)]
    assert host.runtime_files() == []
    assert not list(host.home.glob(".local/state/ccb/sessions/*"))


async def test_a_newer_driver_fences_the_older_one_and_every_epoch_before_it(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, SessionOptions(client="first"))
    await first.next(Event)
    second = await host.drive(session, SessionOptions(client="second"))
    fenced = await first.next(Fenced)
    assert (fenced.epoch, fenced.by) == (2, "second")
    fact = await first.next(Event, lambda event: event.kind == "driver")
    assert fact.body == {"by": "second", "epoch": 2}
    await first.say("from the old one")
    await second.say("from the new one")
    request = json.dumps(await second.tell(says("ok")))
    assert "from the new one" in request and "from the old one" not in request
    late = await host.connect(session)
    await late.next(Hello)
    await late.send(Attach(1, "driver", 0, "n", {}))
    assert (await late.next(Fenced)).epoch == 2


async def test_a_viewer_sees_events_and_who_drives_and_cannot_drive(host: WorkerHost, session: str) -> None:
    driver = await host.drive(session)
    viewer = await host.drive(session, role="viewer")
    await viewer.say("not me")
    await driver.say("me")
    assert "not me" not in json.dumps(await driver.tell(says("ok")))
    assert (await viewer.message("result"))["result"] == "ok"
    first = await host.drive(session, SessionOptions(client="ann"))
    viewer = await host.drive(session, role="viewer")
    second = await host.drive(session, SessionOptions(client="bob"))
    assert (await first.next(Fenced)).by == "bob"
    assert (await viewer.next(Fenced)).by == "bob"
    await second.send(Detach(second.epoch))
    assert (await first.next(Fenced)).by == ""
    assert (await viewer.next(Fenced)).by == ""


async def test_after_kill_minus_9_the_journal_goes_on_and_no_tool_runs_again(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, SessionOptions(allowed_tools=["Bash"]))
    command = "echo $$ > pid; echo run >> count; touch started; exec sleep 600"
    await first.begin("go", calls(("toolu_1", "Bash", {"command": command})))
    await until((host.project / "started").exists, "the tool has started")
    os.kill(first.hello.pid, 9)
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((host.project / "pid").read_text()), 9)
    await first.process.wait()
    second = await host.drive(session)
    history = (await second.sent("what happened?", says("ok")))["messages"]
    results = [b for m in history for b in m["content"] if isinstance(b, dict) and b.get("type") == "tool_result"]
    assert len(results) == 1
    assert "may have run" in json.dumps(results[0])
    assert (host.project / "count").read_text() == "run\n"


async def test_everything_on_disk_is_private_and_without_the_nonce(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    opened = await laptop.opened("go")
    await laptop.answer(opened, content(says("ok")))
    await laptop.message("result")
    written = [path for path in host.home.rglob("*") if host.project not in (path, *path.parents)]
    written += host.runtime.rglob("*")
    for path in written:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode & 0o077 == 0 or path in (host.home / ".local", host.home / ".local/state"), f"{path} is {mode:o}"
        if path.is_file():
            assert opened.nonce.encode() not in path.read_bytes()
    for name in ("cmdline", "environ"):
        assert opened.nonce.encode() not in Path(f"/proc/{laptop.hello.pid}/{name}").read_bytes()


async def test_a_refused_bypass_as_root_says_why(host: WorkerHost, session: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs a root login")
    laptop = await host.drive(session, SessionOptions(permission_mode="bypassPermissions", allow_bypass=True))
    refused = await laptop.next(Refused)
    assert refused.code == "bad_attach"
    assert "root" in refused.message


async def test_a_worker_before_a_long_journal_sends_its_last_records_in_hello(host: WorkerHost, session: str) -> None:
    first = await host.connect(session)
    assert (await first.attach()).last == {}
    await first.turn("go", says("the last words"))
    await first.stop()
    journal = host.state(session) / "journal.jsonl"
    short = await host.connect(session)
    hello = await short.next(Hello)
    assert hello.last == {}
    await short.attach(after=hello)
    await short.stop()
    lines = journal.read_text().splitlines()
    start = [json.loads(line)["kind"] for line in lines].index("input")
    filler = [json.loads(line) for line in lines[start:]] * 400
    numbered = [{**each, "seq": seq} for seq, each in enumerate([*map(json.loads, lines), *filler], 1)]
    journal.write_text("".join(json.dumps(each) + "\n" for each in numbered) + '{"seq":')
    assert journal.stat().st_size > LONG_JOURNAL
    second = await host.connect(session)
    hello = await second.next(Hello)
    assert hello.seq == len(numbered)
    records = hello.last["records"]
    assert 5 < len(records) < len(numbered)
    assert len(json.dumps(records)) < 64 * 1024
    as_sent = [{name: each[name] for name in ("seq", "kind", "body")} for each in numbered]
    assert records == [each for each in as_sent[records[0]["seq"] - 1 :] if each in records]
    assert "the last words" in json.dumps(records)
    await second.attach(after=hello, have=hello.seq - 1)
    assert (await second.next(Event)).seq == hello.seq  # the events themselves come as ever
    await second.stop()


async def test_a_session_that_nobody_attached_to_leaves_nothing(host: WorkerHost, session: str) -> None:
    laptop = await host.connect(session)
    hello = await laptop.next(Hello)
    await laptop.drop()
    await until(lambda: not alive(hello.pid), "the daemon has ended")
    assert host.runtime_files() == []
    assert not host.state(session).exists()
    assert (await host.greeted(session, fresh=True)).seq == 0


async def test_a_session_that_exists_is_started_only_once_its_daemon_has_ended(host: WorkerHost, session: str) -> None:
    first = await host.drive(session)
    await first.next(Event)
    assert (await host.refused(session, fresh=True)).code == "in_use"
    await first.stop()
    assert (await host.refused(session, fresh=True)).code == "in_use"
    with (host.runtime / "ccb" / f"{session}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        second = await host.connect(session)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(second.process.wait())), 1)
        assert second.frames == []
        (host.runtime / "ccb" / f"{session}.lock").unlink()
    assert (await second.next(Hello)).session == session


@pytest.mark.parametrize("how", ["its client stops it", "SIGINT", "SIGTERM"])
async def test_a_worker_that_ends_leaves_only_a_readable_journal(host: WorkerHost, session: str, how: str) -> None:
    """SIGTERM is for every process of a host that goes down. A goodbye would tell the laptop that the session is
    over."""
    laptop = await host.drive(session, SessionOptions(allowed_tools=["Bash"]))
    await laptop.begin("go", calls(("toolu_1", "Bash", {"command": "echo $$ > pid; exec sleep 600"})))
    pid_file = host.project / "pid"
    await until(lambda: pid_file.exists() and pid_file.read_text().strip() != "", "the tool has started")
    if how.startswith("SIG"):
        os.kill(laptop.hello.pid, getattr(signal, how))
        await laptop.rest()
    else:
        await laptop.stop()
    reasons = [frame.reason for frame in laptop.frames if isinstance(frame, Bye)]
    assert all(reasons) and bool(reasons) is (how != "SIGTERM")
    await until(lambda: not alive(laptop.hello.pid), "the daemon has ended")
    assert not alive(int(pid_file.read_text()))
    assert host.runtime_files() == []
    assert all(map(json.loads, (host.state(session) / "journal.jsonl").read_bytes().splitlines()))
    if how == "SIGTERM":
        again = await host.drive(session, create=False)
        assert (await again.message("result"))["is_error"], "the session goes on"


async def test_who_meets_an_ending_worker_is_not_told_that_the_session_is_over(host: WorkerHost, session: str) -> None:
    driver = await host.drive(session)
    await driver.next(Event)
    late = await host.connect(session)
    await late.next(Hello)
    await driver.stop()
    await late.rest()
    assert not [frame for frame in late.frames if isinstance(frame, Bye)]


@pytest.mark.parametrize("after_ms", range(0, 120, 30))  # an import loses one signal in ten, unless they are blocked
async def test_sigterm_while_it_still_starts_leaves_nothing(host: WorkerHost, session: str, after_ms: int) -> None:
    hello = await host.greeted(session)
    await asyncio.sleep(after_ms / 1000)
    os.kill(hello.pid, signal.SIGTERM)
    await until(lambda: not alive(hello.pid), "the daemon has ended")
    assert host.runtime_files() == []


async def test_the_daemon_is_nobodys_child_and_bears_one_that_talks_no_frames(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    await laptop.next(Event)
    process = Path(f"/proc/{laptop.hello.pid}")
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    parent, sid = int(fields[1]), int(fields[3])
    assert parent != laptop.process.pid
    assert sid not in (os.getsid(0), os.getsid(laptop.process.pid))
    assert os.readlink(process / "cwd") == "/", "a disk must not be busy because of it"
    assert (process / "comm").read_text().strip() == "ccb"
    assert {os.readlink(process / "fd" / str(fd)) for fd in (0, 1)} == {"/dev/null"}
    held = [os.readlink(each) for each in (process / "fd").iterdir()]
    assert not [each for each in held if each.startswith("pipe:")], held
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(15)
        stranger.connect(str((host.runtime / "ccb") / f"{session}.sock"))
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        said = b"".join(iter(partial(stranger.recv, 65536), b""))
    assert [json.loads(line)["t"] for line in said.splitlines()] == ["hello", "refused"]
    assert alive(laptop.hello.pid)


async def test_the_process_of_a_job_is_the_daemon_and_ends_with_its_work(host: WorkerHost, session: str) -> None:
    """It waits for its first driver, whatever the limits say, and who comes before it starts no other one."""
    early = await host.connect(session, job="leads")
    job = await host.connect(session, job="keeps", idle_s=0, grace_s=600)
    assert (await early.next(Hello)).pid == job.process.pid
    await early.drop()
    laptop = await host.drive(session, job="leads")
    await laptop.turn("what is this?", says("a thing"))
    assert job.process.returncode is None
    await laptop.drop()
    assert await job.process.wait() == 0


async def test_files_that_tools_make_have_the_users_modes(host: WorkerHost, session: str) -> None:
    old = os.umask(0o022)
    try:
        laptop = await host.connect(session)
    finally:
        os.umask(old)
    await laptop.attach(SessionOptions(allowed_tools=["Bash", "Write"]))
    write = ("toolu_2", "Write", {"file_path": str(host.project / "written"), "content": "x"})
    await laptop.begin("go", calls(("toolu_1", "Bash", {"command": "touch touched"}), write))
    await laptop.call()
    assert [oct((host.project / name).stat().st_mode & 0o777) for name in ("touched", "written")] == ["0o644", "0o644"]
    for path in host.state(session).rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


async def test_everything_that_happened_reaches_a_slow_client_before_bye(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    opened = await laptop.opened("go")
    await laptop.send(Stop(laptop.epoch, finish=True))
    await laptop.answer(opened, content(says("y" * 1_500_000)))
    result = await laptop.message("result")
    assert len(result["result"]) == 1_500_000
    await laptop.next(Bye)
    seqs = [frame.seq for frame in laptop.frames if isinstance(frame, Event)]
    assert seqs == list(range(1, len(seqs) + 1))
    assert laptop.frames[-1].t == "bye"


async def test_an_attach_that_claims_the_future_is_refused(host: WorkerHost, session: str) -> None:
    laptop = await host.connect(session)
    await laptop.next(Hello)
    await laptop.send(Attach(1, "driver", 1000, "n", {}))
    assert (await laptop.next(Refused)).code == "bad_attach"


async def test_an_answer_that_found_no_room_on_the_disk_counts_when_there_is(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions(permission_prompts="stdio"))
    await laptop.begin("go", calls(("toolu_1", "Bash", {"command": "touch touched"})))
    asked = await laptop.message("control_request")
    with file_limit(0, laptop.hello.pid):
        await laptop.reply(asked["request_id"], {"behavior": "allow"}, "the-answer")
        await laptop.send(Ping(laptop.epoch, 7))
        await laptop.next(Pong, lambda frame: frame.n == 7)  # so it was tried
        assert not (host.project / "touched").exists()
    await laptop.next(Applied, lambda frame: frame.id == "the-answer")
    await laptop.call()
    assert (host.project / "touched").exists()


async def test_a_disk_that_fills_ends_the_turn_with_its_own_reason_and_counts(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    await laptop.begin("go", calls(("toolu_1", "Read", {"file_path": "/dev/null"})))
    opened, _ = await laptop.call()
    with file_limit(0, laptop.hello.pid):
        await laptop.answer(opened, content(says("more", message_id="msg_2")))
        result = (await laptop.next(Progress, lambda frame: frame.body.get("type") == "result")).body
    assert (result["subtype"], result["is_error"]) == ("error_during_execution", True)
    assert result["terminal_reason"] == "storage_full"
    assert os.strerror(errno.EFBIG) in result["errors"][0] and str(host.state(session)) in result["errors"][0]
    assert result["num_turns"] == 2
    assert result["usage"]["output_tokens"] > 0 and result["total_cost_usd"] > 0 and result["duration_ms"] > 0
    assert (await laptop.turn("small", says("room for this", "msg_3")))["result"] == "room for this"
    records = [json.loads(line) for line in (host.state(session) / "journal.jsonl").read_bytes().splitlines()]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))


async def test_prompts_over_the_limit_are_taken_later_and_an_interrupt_is_first(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    sent = [await laptop.say("first")]
    await laptop.call()  # so the turn holds it, and the rest waits
    sent += [await laptop.say(f"number {number}") for number in range(MAX_WAITING + 2)]
    await laptop.next(Applied, lambda frame: frame.id == sent[MAX_WAITING])
    for _ in range(2):  # each lets the next prompt begin, and so the next one in
        await laptop.control("interrupt")
        await laptop.message("result")
        await laptop.call()  # between two turns there is nothing to interrupt
    while not any(isinstance(frame, Applied) and frame.id == sent[-1] for frame in laptop.frames):
        assert await laptop.read()
    while len(taken := [event.body["id"] for event in laptop.events if event.body.get("id") in sent]) < len(sent):
        assert await laptop.read()
    assert taken == sent


async def test_a_session_that_shall_end_first_takes_the_prompts_that_waited(host: WorkerHost, session: str) -> None:
    host.prelude = "import ccb.remote.session.turns as inputs\ninputs.MAX_WAITING = 1\n"
    laptop = await host.drive(session)
    opened = await laptop.opened("first")  # so the turn holds it, and the rest waits
    for prompt in ("waits", "has no room"):
        await laptop.say(prompt)
    await laptop.send(Stop(laptop.epoch, finish=True))
    for number in range(3):
        await laptop.answer(opened, content(says("done", f"msg_{number}")))
        await laptop.message("result")
        if number < 2:
            opened, _ = await laptop.call()
    await laptop.next(Bye)
