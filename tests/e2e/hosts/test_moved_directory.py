"""A session whose directory was moved: it is found under the new name, and goes on there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Laptop, make_laptop

pytestmark = pytest.mark.visited

ANSWER = ["-p", "go on", "--output-format", "json"]
GOES_ON = "This session goes on in"


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Laptop:
    fake_model.add({"text": "one", "times": 0})
    return make_laptop(tmp_path, fake_model.url)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "t"
    made.mkdir()
    (made / "file").write_text("x", encoding="utf-8")
    return made


async def session_in(laptop: Laptop, directory: Path) -> str:
    done = await replace(laptop, home=directory).run(["-p", "go", "--output-format", "json"])
    assert done.code == 0, done.stderr
    return str(json.loads(done.stdout)["session_id"])


def moved(project: Path, name: str = "t2") -> Path:
    return project.rename(project.with_name(name))


def told(fake_model: FakeModel) -> str:
    """What the last request says."""
    return json.dumps(fake_model.requests[-1].body)


WAYS = {"continue": ["--continue"], "resume": ["--resume", "{id}"], "fork": ["--resume", "{id}", "--fork-session"]}


@pytest.mark.parametrize("way", [*WAYS, "continue a copy"])
@pytest.mark.parametrize("names_it", [False, True])
async def test_a_session_goes_on_where_its_directory_is_now(
    laptop: Laptop, fake_model: FakeModel, project: Path, way: str, names_it: bool
) -> None:
    session = await session_in(laptop, project)
    there = moved(project)
    words = [each.format(id=session) for each in WAYS.get(way, ["--continue", "--fork-session"])]
    words = [*([str(there)] if names_it else []), *words, *ANSWER]
    done = await replace(laptop, home=project.parent if names_it else there).run(words)
    assert done.code == 0, done.stderr
    same = json.loads(done.stdout)["session_id"] == session
    assert same != ("fork" in way or "copy" in way)
    assert "not in" not in done.stderr
    assert f"{GOES_ON} {there}. Before, its directory was {project}" in told(fake_model)


async def test_the_model_is_told_once_that_the_directory_was_moved_while_the_session_runs(
    tmp_path: Path, fake_model: FakeModel, project: Path
) -> None:
    laptop = make_laptop(tmp_path, fake_model.url)
    there = project.with_name("t2")

    def runs(command: str) -> dict[str, object]:
        return uses("Bash", command=command)

    fake_model.add(runs(f"mv {project} {there}"), runs("pwd"), {"text": "done"})
    done = await laptop.run([str(project), "-p", "go", "--allowedTools", "Bash"])
    assert done.code == 0, done.stderr
    said = f"what was {project} is {there} now"
    assert [json.dumps(each.body).count(said) for each in fake_model.requests] == [0, 1, 1]
    assert f"{project} is no directory any more: the command ran in {tmp_path}" in told(fake_model)


async def test_a_session_on_a_host_goes_on_in_the_path_that_is_named(
    sshd: Sshd, host_user: HostUser, laptop: Laptop, fake_model: FakeModel
) -> None:
    def words(path: str, more: Sequence[str]) -> list[str]:
        return ["ssh", *sshd.client_options(), f"{host_user.name}@127.0.0.1:{path}", *more]

    project = host_user.home / "t"
    project.mkdir()
    (project / "file").write_text("x", encoding="utf-8")
    for each in (project, project / "file"):
        shutil.chown(each, host_user.name)
    first = await laptop.run(words("~/t", ["-p", "go", "--output-format", "json"]))
    session = json.loads(first.stdout)["session_id"]
    project.rename(host_user.home / "t2")
    for more in (["--continue"], ["--resume", session]):
        done = await laptop.run(words("~/t2", [*more, *ANSWER]))
        assert (done.code, json.loads(done.stdout)["session_id"]) == (0, session), done.stderr
    gone = await laptop.run(words("~/t", ["--resume", session, *ANSWER]))
    assert "t does not exist" in gone.stderr and "t2" in gone.stderr
    (host_user.home / "t2").rename(host_user.home / "t3")
    lost = await laptop.run(["ssh", *sshd.client_options(), f"{host_user.name}@127.0.0.1", "-r", session, *ANSWER])
    assert "t2 does not exist; name the directory in which the session is to go on" in lost.stderr
    assert f"There is: {host_user.home}/t3" in lost.stderr
