"""What a headless run is told when the host's end of its session is not as it was: whole sessions on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.headless.test_headless_local import STREAMS, tool, user
from tests.support.machine.processes import left_with_home
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop, tidy_laptop


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Iterator[Laptop]:
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        yield laptop


async def test_a_run_whose_session_is_stopped_is_told_so_with_the_commands_for_it(
    laptop: Laptop, fake_model: FakeModel, project: Path
) -> None:
    fake_model.add(tool("Bash", command="touch made"))
    async with laptop.start([str(project), *STREAMS, "--permission-prompt-tool", "stdio"]) as running:
        await running.send(user("go"))
        session = str((await running.until("system", "init"))["session_id"])
        await running.until("control_request")
        stopped = await laptop.run(["stop", "--local", session])
        assert stopped.code == 0, stopped.stderr
        done = await running.done()
    assert (done.code, len(done.results)) == (75, 1)
    do = f"`ccb logs --local {session}` says more. Go on with: ccb {project} --resume {session}"
    for said in ("“the session has ended”", do):
        assert said in done.stderr and said in done.results[0]["errors"]


async def test_a_run_that_resumes_says_what_is_damaged(laptop: Laptop, fake_model: FakeModel, project: Path) -> None:
    fake_model.add({"text": "ok", "times": 0})
    assert (await laptop.run([str(project), "-p", "first"])).code == 0
    assert not left_with_home(laptop.home), "the worker writes to the journal until it has ended"
    (journal,) = laptop.home.glob(".local/state/ccb/sessions/*/journal.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if b'"kind":"model_end"' in line)
    lines[at] = b"\0" * (len(lines[at]) - 1) + b"\n"
    journal.write_bytes(b"".join(lines))
    again = await laptop.run([str(project), "--continue", "-p", "second"])
    assert (again.code, again.stdout) == (0, "ok\n"), again.stderr
    said = f"ccb: on the host: the session's journal is damaged: “line {at + 1} is damaged and was passed over”\n"
    assert again.stderr == said
