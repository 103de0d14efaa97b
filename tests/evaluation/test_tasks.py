"""Every task of the evaluation is unsolved at first, solved by its solution, and a task that Harbor can read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from evaluation.task_sets import TaskSource, own_tasks, parse_task, read_task

TASKS = {task.name: task for task in own_tasks()}
QUICK = [name for name in TASKS if name not in ("background-server", "long-output")]


def _sh(script: Path, repository: Path, **env: str) -> None:
    subprocess.run(["sh", script], cwd=repository, env={**os.environ, **env}, capture_output=True, check=True)


def _rewards(source: TaskSource, directory: Path) -> tuple[str, str]:
    """The reward of the hidden tests before the solution, and after it."""
    task = directory / source.name
    source.write(task)
    repository, reward = task / "environment" / "repo", directory / "reward"
    _sh(task / "environment" / "setup.sh", repository)
    found = []
    for script in ("tests/test.sh", "solution/solve.sh", "tests/test.sh"):
        _sh(task / script, repository, REWARD_FILE=str(reward))
        found.append(reward.read_text().strip())
    return found[0], found[2]


@pytest.mark.slow
@pytest.mark.quick_rows(6)
@pytest.mark.parametrize("name", sorted(TASKS, key=lambda name: name in QUICK))
def test_hidden_tests_fail_before_the_solution_and_pass_after_it(name: str, tmp_path: Path) -> None:
    assert _rewards(TASKS[name], tmp_path) == ("0", "1")


def test_a_solution_that_never_ends_has_no_reward(tmp_path: Path) -> None:
    ...
