"""Sessions of an older worker: this laptop drives a daemon that still lives, and this worker resumes one that is gone.

The older worker is the bundle in tests/data. It is started as its stub would start it; then the real `ccb` takes over.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from tests.remote.agent_kit import calls, says
from tests.remote.worker_process import WorkerHost, alive, until, worker_host
from tests.support.machine.processes import name_of
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import Json, Recorded, content_text
from tests.support.person.laptop import STDIO, Laptop, make_laptop, user_message

from ccb.tunnel.wire.session_options import SessionOptions

OLDER_BUNDLE = Path(__file__).resolve().parents[2] / "data" / "worker-24918b2.zip"
OLDER_HASH = "8f458140c5532c52ccdac89ecba716bc56b53195fc70a1933ae3d77f75d869ca"
COUNT = "echo run >> count"


@dataclass(frozen=True)
class Older:
    """A session of the older worker after its driver's connection was lost.

    It has had one turn. Its second turn has started a process in the background and waits for the approval of `COUNT`.
    A third prompt is queued.
    """

    session: str
    pid: int
    background_pid: int
    request_id: str
    journal: Path


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[WorkerHost]:
    async with worker_host(tmp_path / "home") as made:
        yield made
        for process in psutil.process_iter():
            try:
                if process.environ().get("HOME") == str(made.home):
                    made.pids.add(process.pid)
            except (psutil.Error, OSError):
                continue


@pytest.fixture
def laptop(tmp_path: Path, host: WorkerHost, fake_model: FakeModel) -> Laptop:
    """A laptop whose `--local` sessions are those of `host`."""
    made = make_laptop(tmp_path, fake_model.url)
    return replace(made, env={**made.env, "HOME": str(host.home), "XDG_RUNTIME_DIR": str(host.runtime)})


async def older_session(host: WorkerHost) -> Older:
    """Start a session with the older worker and lose the connection in its second turn."""
    path = host.home / ".cache" / "ccb" / "worker" / f"{OLDER_HASH}.zip"
    path.parent.mkdir(parents=True, mode=0o700)
    path.parent.parent.chmod(0o700)
    shutil.copyfile(OLDER_BUNDLE, path)
    session = str(uuid.uuid4())
    driver = await host.connect(session, bundle=OLDER_HASH, bundle_path=str(path))
    hello = await driver.attach(SessionOptions(allowed_tools=["Bash(sleep *)"], permission_prompts="stdio"))
    assert hello.bundle == OLDER_HASH
    await driver.say("first prompt")
    await driver.answers(says("First-answer."))
    await driver.message("result")
    await driver.say("second prompt")
    await driver.answers(calls(("toolu_1", "Bash", {"command": "sleep 600", "run_in_background": True})))
    await driver.answers(calls(("toolu_2", "Bash", {"command": COUNT}), message_id="msg_2"))
    request = await driver.message("control_request")
    await driver.say("third prompt")
    await until(lambda: "third prompt" in journal_of(host, session).read_text(), "the third prompt is in the journal")
    await until(lambda: len(sleeping(hello.pid)) == 1, "the command in the background has started")
    (background_pid,) = sleeping(hello.pid)
    await driver.drop()
    return Older(session, hello.pid, background_pid, request["request_id"], journal_of(host, session))


def sleeping(daemon_pid: int) -> list[int]:
    """The `sleep` commands below a daemon."""
    return [child.pid for child in psutil.Process(daemon_pid).children(recursive=True) if name_of(child) == "sleep"]


def journal_of(host: WorkerHost, session: str) -> Path:
    return host.state(session) / "journal.jsonl"


async def kill(older: Older) -> None:
    """The daemon of `older` dies and can write nothing more; what it started goes on."""
    os.kill(older.pid, signal.SIGKILL)
    await until(lambda: not alive(older.pid), "the older daemon is gone")


def resume(host: WorkerHost, older: Older, *more: str) -> list[str]:
    return [str(host.project), "--resume", older.session, *more]


def records(path: Path) -> list[Json]:
    """The records of a journal, whose numbers must have no gap."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["seq"] for record in found] == list(range(1, len(found) + 1))
    return found


def prompts_of(request: Recorded) -> list[str]:
    """The texts of the user's own messages in a request to the model."""
    texts = []
    for message in request.messages:
        if message["role"] == "user":
            texts += [each for each in content_text(message["content"]).split("\n") if each.endswith("prompt")]
    return texts


def test_the_older_bundle_is_the_one_that_was_built() -> None:
    assert hashlib.sha256(OLDER_BUNDLE.read_bytes()).hexdigest() == OLDER_HASH


async def test_a_live_older_daemon_is_driven_and_ends(host: WorkerHost, laptop: Laptop, fake_model: FakeModel) -> None:
    older = await older_session(host)
    fake_model.add({"text": "Counted."}, {"text": "Fourth."})
    async with laptop.start(resume(host, older, "-p", *STDIO)) as running:
        asked = await running.until("control_request")
        assert asked["request_id"] == older.request_id
        assert asked["request"]["input"]["command"] == COUNT
        await running.reply(asked, {"behavior": "allow", "updatedInput": asked["request"]["input"]})
        assert (await running.until("result"))["result"] == "Counted."
        assert prompts_of(fake_model.requests[0]) == ["first prompt", "second prompt", "third prompt"]
        await running.send(user_message("fourth prompt"))
        assert (await running.until("result"))["result"] == "Fourth."
        assert alive(older.pid) and alive(older.background_pid)
        done = await running.finish()
    assert (done.code, len(done.results)) == (0, 2), done.stderr
    assert (host.project / "count").read_text() == "run\n"
    assert prompts_of(fake_model.requests[-1]) == ["first prompt", "second prompt", "third prompt", "fourth prompt"]
    await until(lambda: not alive(older.pid) and not alive(older.background_pid), "the session has ended")
    workers = [record["body"] for record in records(older.journal) if record["kind"] == "worker"]
    assert workers == [], "no other worker took the session over"


async def test_a_killed_older_daemon_is_resumed_here(host: WorkerHost, laptop: Laptop, fake_model: FakeModel) -> None:
    older = await older_session(host)
    before = records(older.journal)
    await kill(older)
    fake_model.add({"text": "Third."}, {"text": "Fourth."})
    async with laptop.start(resume(host, older, "-p", *STDIO)) as running:
        await running.send(user_message("fourth prompt"))
        while (await running.until("result")).get("result") != "Fourth.":
            pass
        done = await running.finish()
    assert done.code == 0, done.stderr
    assert not (host.project / "count").exists(), "the approval that was open is withdrawn, and its tool did not run"
    assert not alive(older.background_pid)
    after = records(older.journal)
    assert after[: len(before)] == before
    bodies = [record["body"] for record in after]
    results = [body for body in bodies if body.get("type") == "result"]
    answers = [result.get("result") for result in results if not result["is_error"]]
    assert answers == ["First-answer.", "Third.", "Fourth."]
    assert len(results) == 4, "the turn that was cut has one result"
    assert [record["body"]["bundle"] != OLDER_HASH for record in after if record["kind"] == "worker"] == [True]
    history = json.dumps(fake_model.requests[-1].messages)
    for once in ("First-answer.", "second prompt", "third prompt", "Third.", "fourth prompt"):
        assert history.count(once) == 1, once
    assert history.count('"tool_use_id": "toolu_2"') == 1, "the open tool use is closed once"
