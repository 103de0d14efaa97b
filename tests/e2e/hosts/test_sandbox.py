"""The sandbox from the command line: modes of a session, and hosts that cannot hold them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from tests.support.model.model_script import uses
from tests.support.person.laptop import STREAM, Here, Laptop
from tests.support.worker.cages import NO_CAGE, NO_NAMESPACES

from ccb.remote.sandbox.cage_server import CageServer


@pytest.fixture(scope="module")
def workspace() -> Iterator[None]:
    server = CageServer()
    available = server.availability()
    server.close()
    if not available.workspace:
        pytest.skip(available.why)
    yield


async def test_a_workspace_run_works_without_a_question_and_goes_on_in_its_mode(here: Here, workspace: None) -> None:
    here.model.add(uses("Bash", command="mkdir made && echo x > CLAUDE.md"), {"text": "Tried."})
    done = await here.run("-p", "go", "--sandbox", "workspace", *STREAM)
    (first,) = [each for each in done.messages if each.get("subtype") == "init"]
    assert first["sandbox"] == "workspace cage" and done.code == 0
    assert (here.project / "made").is_dir() and not (here.project / "CLAUDE.md").is_file()
    here.model.add(uses("Bash", command="rmdir made && touch more"), {"text": "Gone on."})
    done = await here.run("-c", "-p", "go on", *STREAM)
    (init,) = [each for each in done.messages if each.get("subtype") == "init"]
    assert init["sandbox"] == "workspace cage" and (here.project / "more").exists()


@pytest.mark.parametrize("prelude", [NO_CAGE, NO_NAMESPACES], ids=["nothing", "no namespaces"])
async def test_a_host_that_cannot_hold_the_mode_is_named_with_the_reason(laptop: Laptop, prelude: str) -> None:
    (laptop.home / "app").mkdir()
    kernel = laptop.home / "kernel.py"
    kernel.write_text(f"{prelude}\nimport sys\nos.execvp(sys.argv[1], sys.argv[1:])\n")
    behind = ["ssh", "~/app", "--transport", f"{sys.executable} {kernel}"]
    done = await laptop.run([*behind, "-p", "go", "--sandbox", "workspace"])
    for part in ("cannot make the cage of --sandbox workspace", "Leave out --sandbox workspace"):
        assert done.code == 2 and part in done.stderr
