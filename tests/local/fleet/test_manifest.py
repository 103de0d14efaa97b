"""The files of a fleet."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from ccb.local.api.events import answer_of
from ccb.local.fleet.fleet_run import result_of
from ccb.local.fleet.manifest import FleetTask, Manifest, fleets, new_fleet, task_result, the_fleet
from ccb.tunnel.errors import ConfigError, ExitCode, UsageError
from ccb.tunnel.wire.messages import ResultMessage, parse_message

SESSION = "11111111-2222-4333-8444-555555555555"
TASK = FleetTask(
    index=0, host="web-1", place="web-1:/srv", prompt="Which version?", session=SESSION, options=("--model=haiku",)
)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


def test_a_fleet_is_read_back_and_is_private(environ: dict[str, str]) -> None:
    manifest = Manifest(name="web", tasks=(TASK,), jobs=8, options=("--model=haiku",), budget_usd=2.5)
    result = task_result(index=0, answered=True, exit_code=0, text="12 \ud800", data={"version": 12})
    folder = new_fleet(environ, manifest)
    folder.write_result(result)
    assert the_fleet(environ, None).manifest() == the_fleet(environ, "web").manifest() == manifest
    assert folder.results() == {0: result} and result.text == "12 ?"
    files = [folder.path, *folder.path.rglob("*")]
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o700, 0o600}


def named(name: str) -> Manifest:
    return Manifest(name=name, tasks=(TASK,), jobs=1)


def test_names_are_used_once_and_a_fleet_is_driven_once(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="there is no fleet yet"):
        the_fleet(environ, None)
    for name in ("web", "one"):
        new_fleet(environ, named(name))
    for name, said in (("web", "already"), ("../web", "no name")):
        with pytest.raises(UsageError, match=said):
            new_fleet(environ, named(name))
    assert len({each.name for each in fleets(environ)}) == 2
    with pytest.raises(UsageError, match="no fleet 'wen'") as missing:
        the_fleet(environ, "wen")
    assert "web" in missing.value.do
    with (
        the_fleet(environ, "web").driven(),
        pytest.raises(UsageError, match="another ccb runs"),
        the_fleet(environ, "web").driven(),
    ):
        pass


def test_an_attempt_has_one_input_id_and_damage_is_named(environ: dict[str, str]) -> None:
    assert TASK.input_id(1) == TASK.input_id(1) != TASK.input_id(2)
    folder = new_fleet(environ, named("web"))
    (folder.path / "manifest.json").write_text('{"tasks": 1}')
    with pytest.raises(ConfigError, match=r"manifest\.json cannot be read"):
        folder.manifest()


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"structured_output": {"\ud800": ["\ud800"]}}, ExitCode.OK),
        ({"structured_output": nested(210)}, ExitCode.AGENT_FAILED),
        ({"structured_output": nested(900)}, ExitCode.AGENT_FAILED),
        ({"structured_output": nested(100_000)}, ExitCode.AGENT_FAILED),
        ({"is_error": True, "errors": 5}, ExitCode.AGENT_FAILED),
        ({"is_error": True, "errors": [{}, "\ud800"], "num_turns": 1e300}, ExitCode.AGENT_FAILED),
    ],
)
def test_what_a_lying_host_answers_is_kept_or_refused_and_can_be_read_again(
    said: dict[str, Any], code: ExitCode, environ: dict[str, str]
) -> None:
    message = parse_message({"type": "result", "subtype": "success", "result": "12", **said})
    assert isinstance(message, ResultMessage)
    answer = answer_of(message, 0.0, denied_unasked=False)
    result = result_of(answer, index=0, attempt=1)
    folder = new_fleet(environ, named("web"))
    folder.write_result(result)
    assert folder.results() == {0: result} and (result.exit_code, result.answered) == (code, True)
