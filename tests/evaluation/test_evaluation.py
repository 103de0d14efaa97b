"""`make eval` with a scripted model, and the comparison of results."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import pytest
from evaluation.__main__ import main
from evaluation.results import Outcome, comparison, read_results, sign_test
from evaluation.task_sets import own_tasks
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import processes_of
from tests.support.machine.waiting import until
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Laptop

ROOT = Path(__file__).resolve().parents[2]
TASKS = {task.name: task for task in own_tasks()}
DEAR = {"output_tokens": 100_000}


def _asks(name: str) -> dict[str, str]:
    """The condition that a request begins the task `name`."""
    return {"user_contains": TASKS[name].files["instruction.md"][:60]}


async def _evaluate(laptop: Laptop, *words: str) -> tuple[int | None, str, list[Outcome]]:
    """Exit code, what was printed, and all results."""
    out = laptop.home / "out.jsonl"
    argv = ["-m", "evaluation", "--model", "sonnet", "--jobs", "1", "--out", str(out), *words]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *argv, cwd=ROOT, env=laptop.env,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    return process.returncode, said.decode(), read_results(out)


@pytest.mark.thorough
@pytest.mark.programs
async def test_some_are_solved_and_what_a_provider_failed_at_is_tried_again(
    laptop: Laptop, fake_model: FakeModel
) -> None:
    solve = uses("Bash", command=TASKS["sql"].files["solve.sh"], description="Rewrite the report")
    fake_model.add(
        {"text": "I see no bug.", "when": _asks("float")},
        {"status": 400, "when": _asks("race")},
        {**solve, "when": _asks("sql")},
        {"text": "All three are fixed.", "when": {"has_tool_result": True}, "usage": DEAR},
        {"text": "There is no race.", "when": _asks("race")},
    )
    code, said, rows = await _evaluate(laptop, "--tasks", "sql,float,race")
    assert [(row.task, row.score, row.ending, row.turns) for row in rows] == [
        ("float", 0.0, "success", 1),
        ("race", None, "api_error", 1),
        ("sql", 1.0, "success", 2),
    ]
    assert rows[2].cost_usd > 1 and rows[2].said == "All three are fixed."
    assert code == 1 and "1 attempts have no score" in said
    assert re.search(r"^all tasks \(means\) +0\.50 +2 ", said, re.MULTILINE), said

    code, said, rows = await _evaluate(laptop, "--tasks", "sql,float,race")
    assert (code, [(row.task, row.score) for row in rows[3:]]) == (0, [("race", 0.0)]), said

    code, said, rows = await _evaluate(laptop, "--tasks", "sql", "--options", "effort=high")
    assert code == 2 and "choose another file" in said and len(rows) == 4


@pytest.mark.thorough
@pytest.mark.programs
async def test_no_attempt_begins_when_the_budget_is_used_up(laptop: Laptop, fake_model: FakeModel) -> None:
    fake_model.add({"text": "done", "usage": DEAR, "times": 0})
    code, said, rows = await _evaluate(laptop, "--tasks", "sql", "--repeat", "3", "--budget", "1.6")
    assert code == 1 and "2 attempts have no score" in said
    assert [row.score for row in rows] == [0.0, None] and rows[1].ending == "error_max_budget_usd"


@pytest.mark.thorough
@pytest.mark.programs
async def test_an_agent_that_takes_too_long_is_ended_and_judged_by_what_it_has_done(
    laptop: Laptop, fake_model: FakeModel
) -> None:
    folder = laptop.home / "tasks" / "sql"
    TASKS["sql"].write(folder)
    settings = folder / "task.toml"
    settings.write_text(settings.read_text().replace("timeout_sec = 1200.0", "timeout_sec = 4.0"))
    fake_model.add(uses("Bash", command=TASKS["sql"].files["solve.sh"]), {"text": "…", "stall_after": 1})
    code, said, rows = await _evaluate(laptop, "--set", str(folder.parent))
    assert (code, [(row.score, row.ending) for row in rows]) == (0, [(1.0, "timeout")]), said


@pytest.mark.programs
@pytest.mark.visited
async def test_tasks_are_tried_on_a_host_and_nothing_is_left_there(host: Host) -> None:
    host.model.add(uses("Bash", command=TASKS["sql"].files["solve.sh"]), {"text": "Fixed."})
    way = [f"port={host.server.port}", f"identity_file={host.server.identity}", "ssh_options=IdentitiesOnly=yes"]
    way += [f"ssh_options=UserKnownHostsFile={host.server.trust(host.server.port)}", "sandbox=workspace"]
    code, said, rows = await _evaluate(
        host.laptop, "--tasks", "sql", "--host", host.login, "--options", " ".join(way), "--jobs", "2"
    )
    assert (code, [(row.host, row.score) for row in rows]) == (0, [(host.login, 1.0)]), said
    await until(lambda: not processes_of(host.user))
    assert not [path for path in Path(tempfile.gettempdir()).glob("tmp.*") if path.stat().st_uid == host.uid]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--options", "efort=high"], "did you mean effort"),
        (["--tasks", "nothing"], "no task of ccb is called nothing"),
        (["--set", "/nowhere"], "no task of /nowhere"),
        (["--out", "/nowhere/out.jsonl"], "No such file or directory: '/nowhere/out.jsonl'"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model", "sonnet", "--out", str(tmp_path / "out.jsonl"), *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(("more", "less", "chance"), [(0, 0, 1), (5, 0, 0.0625), (1, 6, 0.125), (3, 3, 1)])
def test_the_sign_test_is_exact(more: int, less: int, chance: float) -> None:
    assert sign_test(more, less) == pytest.approx(chance)


def test_two_settings_are_compared_task_by_task(tmp_path: Path) -> None:
    def rows(options: str, scores: str, cost: float) -> list[Outcome]:
        return [
            Outcome(f"t{index}", number, "m", options, "local", "success", float(score), cost_usd=cost + index)
            for index, attempts in enumerate(scores.split())
            for number, score in enumerate(attempts, 1)
        ]

    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path, made in ((first, rows("", "00 01 11 00", 1)), (second, rows("effort=high", "11 11 11 00 11", 1.5))):
        path.write_text("".join(f"{json.dumps(asdict(row))}\n" for row in made))
    lines = [line.split() for line in comparison(read_results(first), read_results(second)).splitlines()]
    assert lines[2][:5] == ["t1", "0.5", "0.5", "2", "0.5"]
    assert [" ".join(line) for line in lines[6:9]] == ["4 tasks have scores in both files", "A: m", "B: m effort=high"]
    assert lines[11] == ["score", "0.375", "0.750", "0.250", "1.000", "0.250", "2", "0", "0.500"]
    assert lines[12] == ["cost", "$", "2.500", "3.000", "2.500", "3.000", "0.500", "4", "0", "0.125"]
