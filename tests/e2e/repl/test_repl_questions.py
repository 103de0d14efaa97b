"""Questions and plans in the REPL on a real terminal, with a real daemon and a scripted model."""

from __future__ import annotations

from tests.features.steering.test_questions import ASKED
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here


async def test_a_question_is_answered_and_a_plan_is_approved_before_the_work_begins(here: Here) -> None:
    project = here.project
    here.model.add(
        uses("AskUserQuestion", questions=ASKED["questions"][:1]),
        {**uses("ExitPlanMode", plan="# Move to Redis"), "when": {"tool_result_contains": "Which store? → Redis"}},
        {**uses("Write", file_path=str(project / "a.txt"), content="x"), "when": {"tool_result_contains": "approved"}},
        {"text": "All-is-done."},
    )
    async with here.on_terminal("--permission-mode", "plan") as running:
        await running.shows("F1 or /help")
        running.type("move the store\r")
        await running.shows("Which store?")
        await running.answer("2")
        await running.shows("Approve the plan")
        await running.answer("1")
        await running.shows("All-is-done.")
        assert (project / "a.txt").read_text() == "x", "nobody was asked about the edit"
        assert (
            next((here.laptop.home / ".local/state/ccb/sessions").glob("*/plan.md")).read_text() == "# Move to Redis\n"
        )
        running.type("/stop\r")
        await running.ended()
