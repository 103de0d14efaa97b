"""What the model is told of its todo list and of the plan, beside its calls."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ccb.remote.context.reminders import Occasion
from ccb.remote.session_store.session_files import PlanFile
from ccb.remote.tools.asking import PlanReminders
from ccb.remote.tools.todo import todo_reminder
from ccb.remote.tools.tool_state import AgentTodos
from ccb.tunnel.wire.todo_list import TodoList

FIX = TodoList.written([{"content": "Fix", "status": "in_progress", "activeForm": "Fixing"}])


def test_a_list_that_is_not_updated_for_long_is_brought_to_mind() -> None:
    todos = AgentTodos()
    reminder = partial(todo_reminder, todos)
    assert not any(list(reminder(Occasion.TOOL_RESULTS)) for _ in range(40)), "nothing is on it"
    todos.use(FIX)
    told = [list(reminder(Occasion.TOOL_RESULTS)) for _ in range(24)]
    assert [number for number, each in enumerate(told) if each] == [11, 23]
    assert "- #1 [in_progress] Fix" in told[11][0]
    for _ in range(11):
        assert not list(reminder(Occasion.TOOL_RESULTS))
    todos.use(FIX)
    assert not list(reminder(Occasion.TOOL_RESULTS)), "it has just been updated"


def test_plan_and_plan_mode_are_told_again_after_a_compaction(tmp_path: Path) -> None:
    mode = ["plan"]
    plan = PlanFile(str(tmp_path / "plan.md"))
    reminders = PlanReminders(plan, lambda: mode[0], lambda: True)

    def told(occasion: Occasion) -> str:
        return "\n".join(reminders(occasion))

    assert "Plan mode is on." in told(Occasion.PROMPT) and "It does not exist yet" not in told(Occasion.TOOL_RESULTS)
    plan.write("1. Move it")
    assert "still on" in told(Occasion.PROMPT)
    after = told(Occasion.COMPACTED)
    assert "1. Move it" in after and "Plan mode is on." in after and plan.path in after
    mode[0] = "default"
    assert "Plan mode is over" in told(Occasion.TOOL_RESULTS) and told(Occasion.PROMPT) == ""
    after = told(Occasion.COMPACTED)
    assert "1. Move it" in after and "Plan mode" not in after


def test_a_link_in_the_place_of_the_plan_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "plan.md").symlink_to(tmp_path / "secret")
    plan = PlanFile.beside(str(tmp_path / "outputs"))
    assert plan.read() == ""
    plan.write("1. Mine")
    assert (tmp_path / "secret").read_text() == "secret" and plan.read() == "1. Mine"
