"""A session whose directory was moved: it is found under the new name, and goes on there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here, Laptop

pytestmark = pytest.mark.visited

ANSWER = ["-p", "go on", "--output-format", "json"]
GOES_ON = "This session goes on in"


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
    return json.dumps(fake_model.requests[-1].body)


WAYS = {"continue": ["--continue"], "resume": ["--resume", "{id}"], "fork": ["--resume", "{id}", "--fork-session"]}


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("way", [*WAYS, "continue a copy"])
@pytest.mark.parametrize("names_it", [False, True])
async def test_a_session_goes_on_where_its_directory_is_now(here: Here, way: str, names_it: bool) -> None:
    here.model.add({"text": "one", "times": 0})
    session = await session_in(here.laptop, here.project)
    there = moved(here.project)
    words = [each.format(id=session) for each in WAYS.get(way, ["--continue", "--fork-session"])]
    words = [*([str(there)] if names_it else []), *words, *ANSWER]
    done = await replace(here.laptop, home=here.project.parent if names_it else there).run(words)
    assert done.code == 0, done.stderr
    same = json.loads(done.stdout)["session_id"] == session
    assert same != ("fork" in way or "copy" in way)
    assert "not in" not in done.stderr
    assert f"{GOES_ON} {there}. Before, its directory was {here.project}" in told(here.model)


async def test_the_model_is_told_once_that_the_directory_was_moved_while_it_runs(here: Here) -> None:
    there = here.project.with_name("t2")
    here.model.add(uses("Bash", command=f"mv {here.project} {there}"), uses("Bash", command="pwd"), {"text": "done"})
    done = await here.run("-p", "go", "--allowedTools", "Bash")
    assert done.code == 0, done.stderr
    said = f"what was {here.project} is {there} now"
    assert [json.dumps(each.body).count(said) for each in here.model.requests] == [0, 1, 1]
    assert f"{here.project} is no directory any more: the command ran in {here.project.parent}" in told(here.model)


async def test_a_session_on_a_host_goes_on_in_the_path_that_is_named(host: Host) -> None:
    host.model.add({"text": "one", "times": 0})
    project = host.put("t/file", b"x").parent
    first = await host.run("-p", "go", "--output-format", "json", path="~/t")
    session = json.loads(first.stdout)["session_id"]
    project.rename(host.home / "t2")
    for more in (["--continue"], ["--resume", session]):
        done = await host.run(*more, *ANSWER, path="~/t2")
        assert (done.code, json.loads(done.stdout)["session_id"]) == (0, session), done.stderr
    gone = await host.run("--resume", session, *ANSWER, path="~/t")
    assert "t does not exist" in gone.stderr and "t2" in gone.stderr
    (host.home / "t2").rename(host.home / "t3")
    lost = await host.command("ssh", "-r", session, *ANSWER)
    assert "t2 does not exist; name the directory in which the session is to go on" in lost.stderr
    assert f"There is: {host.home}/t3" in lost.stderr
