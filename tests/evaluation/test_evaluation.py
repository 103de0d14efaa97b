"""`make eval` with a scripted model that solves one task, fails at one, and is not reached at another."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evaluation.__main__ import main
from evaluation.results import Outcome, comparison, sign_test
from evaluation.task_sets import own_tasks
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import Recorded, uses
from tests.support.person.laptop import Laptop

pytestmark = [pytest.mark.programs]

ROOT = Path(__file__).resolve().parents[2]
TASKS = {task.name: task for task in own_tasks()}


def _first_words(name: str) -> str:
    return TASKS[name].files["instruction.md"][:60]


async def _evaluate(laptop: Laptop, *words: str) -> tuple[int, str]:
    pipe = asyncio.subprocess.PIPE
    argv = ["-m", "evaluation", "--model", "fake-model", "--out", str(laptop.home / "out.jsonl"), *words]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *argv, cwd=ROOT, env=laptop.env, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode() + err.decode()


async def test_some_are_solved_and_what_the_provider_failed_at_is_tried_again(laptop: Laptop, fake_model: FakeModel) -> None:
    solve = uses("Bash", command=TASKS["sql"].files["solve.sh"], description="Rewrite the report")
    fake_model.add(
        {**solve, "when": {"user_contains": _first_words("sql")}},
        {"text": "Fixed.", "when": {"has_tool_result": True}},
        {"text": "I see no bug.", "when": {"user_contains": _first_words("float")}},
        {"status": 400, "when": {"user_contains": _first_words("race")}},
        {"text": "It is fine.", "when": {"user_contains": _first_words("race")}},
    )
    tasks = ["--tasks", "sql,float,race"]
    print(await _evaluate(laptop, *tasks))
    print((laptop.home / "out.jsonl").read_text())
    print(await _evaluate(laptop, *tasks))
    print((laptop.home / "out.jsonl").read_text())
    assert 0
