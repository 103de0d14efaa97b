"""Questions and plans in the REPL on a real terminal, with a real daemon and a scripted model."""

from __future__ import annotations

import asyncio
import contextlib

from tests.features.steering.test_questions import ASKED
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here
from tests.support.person.terminal import Terminal

from ccb.local.terminal.keymap import BURST_S


async def press(running: Terminal, key: str) -> None:
    await asyncio.sleep(4 * BURST_S)  # the pause of a person: without it, keys are text
    running.type(key)


async def go_to_card(running: Terminal) -> None:
    """Press Alt+A until the card listens: one that takes the place of another does not at once. Each press is waited
    for, because a second one would go back."""
    start = len(running.written)

    def listens() -> bool:
        return any(each in running.text_from(start) for each in ("Esc back", "Esc declines"))

    for _ in range(10):
        await press(running, "\x1ba")
        with contextlib.suppress(AssertionError):
            await running.until(listens, 6)
            return
    raise AssertionError("the card does not listen")


async def choose(running: Terminal, answer: str) -> None:
    """Mark an answer of the card, and send it once it is marked."""
    start = len(running.written)
    await press(running, answer)
    await running.until(lambda: "Enter" in running.text_from(start))
    await press(running, "\r")


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
        await go_to_card(running)
        await choose(running, "2")
        await running.shows("Approve the plan")
        await go_to_card(running)
        await choose(running, "1")
        await running.shows("All-is-done.")
        assert (project / "a.txt").read_text() == "x", "nobody was asked about the edit"
        assert (
            next((here.laptop.home / ".local/state/ccb/sessions").glob("*/plan.md")).read_text() == "# Move to Redis\n"
        )
        running.type("/stop\r")
        await running.ended()
