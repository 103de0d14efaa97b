"""The worker as a process: hello, attach, turns, drops, and what is left afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path

import pytest
from tests.remote.agent_kit import calls, content, says
from tests.remote.worker_process import WorkerHost, alive, until

from ccb.remote.daemon.hello import LONG_JOURNAL
from ccb.remote.daemon.hello import PROTOCOL as HELLO_PROTOCOL
from ccb.tunnel.wire.frames import PROTOCOL, Applied, Attach, Detach, Event, Fenced, Hello, Refused
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
    ("cwd", "code"),
    [
        ("~/projekt", "no_such_path"),
        ("~/file", "not_a_directory"),
        ("~/file/below", "no_such_path"),
        ("/nowhere/at/all", "no_such_path"),
    ],
)
async def test_an_unusable_directory_is_refused_without_rest(
    host: WorkerHost, session: str, cwd: str, code: str
) -> None:
    (host.home / "file").write_text("", encoding="utf-8")
    refused = await host.refused(session, cwd)
    assert refused.code == code
    if cwd == "~/projekt":
        assert refused.data["near"] == [str(host.project)]
    assert host.runtime_files() == []
    assert not host.state(session).exists()


async def test_the_session_outlives_its_connection_and_replays_what_was_missed(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, SessionOptions(allowed_tools=["Bash"]))
    await first.begin("go", calls(("toolu_1", "Bash", {"command": "touch started; sleep 0.5; echo done >> count"})))
    await until((host.project / "started").exists, "the tool has started")
    have = max(frame.seq for frame in first.frames if isinstance(frame, Event))
    await first.drop()
    second = await host.drive(session, have=have)
    assert second.hello.epoch == 1
    assert (await second.next(Event)).seq == have + 1
    await second.answers(says("finished"))
    assert (await second.message("result"))["result"] == "finished"
    assert (host.project / "count").read_text() == "done\n"


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
    assert (hello.last, hello.seq) == ({}, len(journal.read_bytes().splitlines()))
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
