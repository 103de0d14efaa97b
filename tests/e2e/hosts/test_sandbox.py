"""The sandbox from the command line: modes of a session, and hosts that cannot hold them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.hosts.whole_session import STREAM
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Json, Laptop
from tests.support.worker.cages import NO_CAGE, NO_NAMESPACES

from ccb.remote.sandbox.cage_server import CageServer


@pytest.fixture
def project(laptop: Laptop) -> Path:
    path = laptop.home / "app"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def workspace() -> Iterator[None]:
    server = CageServer()
    available = server.availability()
    server.close()
    if not available.workspace:
        pytest.skip(available.why)
    yield


def bash(command: str) -> Json:
    return uses("Bash", command=command)


async def test_a_workspace_run_works_without_a_question_and_goes_on_in_its_mode(
    laptop: Laptop, fake_model: FakeModel, project: Path, workspace: None
) -> None:
    fake_model.add(bash("mkdir made && echo x > CLAUDE.md"), {"text": "Tried."})
    done = await laptop.run([str(project), "-p", "go", "--sandbox", "workspace", *STREAM])
    (first,) = [each for each in done.messages if each.get("subtype") == "init"]
    assert first["sandbox"] == "workspace cage" and done.code == 0
    assert (project / "made").is_dir() and not (project / "CLAUDE.md").is_file()
    fake_model.add(bash("rmdir made && touch more"), {"text": "Gone on."})
    done = await laptop.run([str(project), "-c", "-p", "go on", *STREAM])
    (init,) = [each for each in done.messages if each.get("subtype") == "init"]
    assert init["sandbox"] == "workspace cage" and (project / "more").exists()


@pytest.mark.parametrize("prelude", [NO_CAGE, NO_NAMESPACES], ids=["nothing", "no namespaces"])
async def test_a_host_that_cannot_hold_the_mode_is_named_with_the_reason(
    laptop: Laptop, project: Path, tmp_path: Path, prelude: str
) -> None:
    done = await laptop.run([*behind(prelude, tmp_path), "-p", "go", "--sandbox", "workspace"])
    assert done.code == 2, done.stderr
    for part in ("cannot make the cage of --sandbox workspace", "Leave out --sandbox workspace"):
        assert part in done.stderr


def behind(prelude: str, directory: Path) -> list[str]:
    """The start of a command line to a host whose kernel lacks something."""
    program = directory / "kernel.py"
    program.write_text(f"{prelude}\nimport sys\nos.execvp(sys.argv[1], sys.argv[1:])\n")
    return ["ssh", "~/app", "--transport", f"{sys.executable} {program}"]
