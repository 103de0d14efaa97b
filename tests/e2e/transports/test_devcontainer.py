"""A session in the dev container of a folder. docker is a stand-in that runs what it gets here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.machine.programs import shell_script
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here

_DOCKER = """\
if [ "$1 $2 $4" = "exec -e -i" ]; then export "$3"; shift 3; set -- exec "$@"; fi
case "$1 $2 $3 $4" in
  "ps -aq --filter label=devcontainer.local_folder="*) echo c0ffee;;
  "container inspect "*) cat {top}/inspected;;
  "exec -i -u vscode") [ "$5" = sleepy ] || exit 1; shift 5; INSIDE=vscode exec "$@";;
  *) echo "unknown: $*" >&2; exit 125;;
esac"""


@pytest.mark.visited
async def test_a_session_works_in_the_dev_container_and_returns_to_it(here: Here, tmp_path: Path) -> None:
    folder, inside = tmp_path / "app", tmp_path / "workspaces/app"
    folder.mkdir()
    inside.mkdir(parents=True)
    says = '${localEnv:HOST_SAYS}, "$x" ${containerEnv:IMAGE}${containerEnv:NO}'
    config = {"remoteUser": "vscode", "workspaceFolder": str(inside), "remoteEnv": {"SAYS": says}}
    (folder / ".devcontainer.json").write_text(json.dumps(config))
    described = {"Name": "/sleepy", "State": {"Running": True}, "Config": {"Labels": None, "Env": ["IMAGE=alpine"]}}
    (tmp_path / "inspected").write_text(json.dumps([described]))
    engine = shell_script(tmp_path / "engine/docker", _DOCKER.format(top=tmp_path))
    here.laptop.env["PATH"] = f"{engine.parent}:{here.laptop.env['PATH']}"
    here.laptop.env["HOST_SAYS"] = "hello"
    here.model.add(uses("Bash", command='pwd; echo "in $INSIDE; $SAYS"'), {"text": "there"})
    where = ["ssh", f"box:{folder}", "--local", "--devcontainer"]
    done = await here.laptop.run([*where, "-p", "where are you?", "--allowedTools", "Bash"])
    assert (done.code, done.stdout) == (0, "there\n"), done.stderr
    assert here.model.requests[1].tool_result_text.splitlines() == [str(inside), 'in vscode; hello, "$x" alpine']
    here.model.add({"text": "here again"})
    again = ["ssh", f"box:{inside}", "--local", "--container", "vscode@sleepy"]
    done = await here.laptop.run([*again, "--continue", "-p", "and now?"])
    assert (done.code, done.stdout) == (0, "here again\n"), done.stderr
    async with here.laptop.on_terminal(*where, "--continue") as running:
        await running.shows("here again")
        running.type("\x04")
        assert await running.ended() == 0
    assert f"ccb ssh box:{folder} --devcontainer --local --resume" in running.text
