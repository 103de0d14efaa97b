"""Setup hooks: `--init`, `--init-only`, `--maintenance`; and `--agent` in a run of ccb."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.features.extensions.test_hooks import kill_worker, options
from tests.remote.agent_kit import says
from tests.remote.worker_process import WorkerHost
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop, make_laptop

from ccb.local.command_line.parser import parse_arguments
from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.session_options import SessionOptions


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Laptop:
    return make_laptop(tmp_path, fake_model.url)


async def test_init_only_runs_the_hooks_of_the_start_and_ends_without_the_model(
    laptop: Laptop, fake_model: FakeModel, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    listed = [
        {"matcher": name, "hooks": [{"type": "command", "command": f"echo {name} >> log; cat >> events"}]}
        for name in ("init", "maintenance")
    ]
    start = [{"hooks": [{"type": "command", "command": "echo start >> log"}]}]
    given = ["--settings", json.dumps({"hooks": {"Setup": listed, "SessionStart": start}})]
    done = await laptop.run([str(project), "--init-only", *given])
    assert (done.code, done.stdout, done.stderr) == (0, "The hooks of the start have run.\n", "")
    assert (project / "log").read_text().split() == ["init", "start"] and not fake_model.requests
    assert json.loads((project / "events").read_text())["trigger"] == "init"
    fake_model.add({"text": "cleaned"})
    done = await laptop.run([str(project), "-p", "go", "--maintenance", *given])
    assert done.stdout == "cleaned\n"
    assert (project / "log").read_text().split() == ["init", "start", "maintenance", "start"]


async def test_the_hooks_of_a_setup_run_once_although_the_worker_is_killed(host: WorkerHost, session: str) -> None:
    listed = [{"hooks": [{"type": "command", "command": "echo ran >> log; echo 'The database is new.'"}]}]
    laptop = await host.connect(session)
    given = SessionOptions(**{**vars(options({"hooks": {"Setup": listed}})), "setup": "init"})
    await laptop.attach(given)
    assert "The database is new." in json.dumps(((await laptop.sent("go", says("done")))["messages"])[0])
    kill_worker(laptop)
    again = await host.drive(session, given)
    await again.turn("and on", says("done", "msg_2"))
    assert (host.project / "log").read_text() == "ran\n"


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--init-only", "-p", "go"], "--init-only starts a new session without a prompt"),
        (["--init-only", "--continue"], "--init-only starts a new session without a prompt"),
        (["--maintenance", "--init"], "cannot be used together"),
    ],
)
def test_what_makes_no_sense_is_refused(argv: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_arguments(argv)
