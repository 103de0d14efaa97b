"""The todo in progress above the composer."""

from __future__ import annotations

from tests.support.repl.pilot import Desk, desk

from ccb.tunnel.wire.frames import Json


def item(text: str, status: str) -> Json:
    return {"content": text, "status": status, "activeForm": f"Doing {text}"}


async def test_the_todo_in_progress_is_shown_live_and_ctrl_t_shows_all() -> None:
    async with desk(size=(80, 24), turn="go") as at:
        assert "Ctrl+T" not in at.screen
        todos = [item(f"step {n}", "completed" if n < 4 else "pending") for n in range(12)]
        todos[4]["status"] = "in_progress"
        at.session.done(at.session.call("TodoWrite", todos=todos), "ok")
        await at.sees("◐ Doing step 4   4 of 12 done, Ctrl+T")
        await at.press("ctrl+t", sees="… 4 more, 4 of 12 done")
        todos[4]["status"], todos[5]["status"] = "completed", "in_progress"
        at.session.done(at.session.call("TodoWrite", todos=todos), "ok")
        await at.sees("5 of 12 done")
        await at.press("ctrl+t", sees="◐ Doing step 5   5 of 12 done, Ctrl+T")
        at.session.done(at.session.call("TodoWrite", todos=[item("step", "completed")]), "ok")
        await at.loses("Ctrl+T")
        await at.press("ctrl+t", sees="nothing is on the todo list")


async def test_a_terminal_that_comes_later_shows_the_list_of_the_snapshot(at: Desk) -> None:
    at.session.skip(10, todos=[item("step\x1b[2J", "in_progress"), "broken", {"status": 7}])
    await at.sees("◐ Doing step", "0 of 2 done")


async def test_task_tools_draw_the_same_list_with_one_line_for_each_item() -> None:
    async with desk(size=(80, 24), turn="go") as at:
        at.session.skip(10, todos=[{"id": "4", **item("Read", "pending")}])
        made = at.session.call("TaskCreate", subject="Fix\x1b[2J", description="All of it")
        at.session.fact("todo", id="5", subject="Fix\x1b[2J", active_form="Fixing", status="pending")
        at.session.done(made, "Task #5 created successfully: Fix")
        await at.sees("● TaskCreate  ☐ Fix", "☐ Read   0 of 2 done, Ctrl+T")
        for number, status, shown in (
            ("4", "completed", "☒ Read"),
            ("5", "in_progress", "◐ Fix"),
            ("5", "deleted", "✗ Fix"),
        ):
            call = at.session.call("TaskUpdate", taskId=number, status=status)
            subject = shown.partition(" ")[2]
            at.session.fact("todo", id=number, subject=subject, active_form=f"{subject}ing", status=status)
            at.session.done(call, f"Updated task #{number} status")
            await at.sees(f"● TaskUpdate  {shown}")
            if status == "in_progress":
                await at.sees("◐ Fixing   1 of 2 done, Ctrl+T")
        await at.loses("Ctrl+T")
        at.session.done(at.session.call("TaskUpdate", taskId="9", status="completed"), "Task not found", is_error=True)
        await at.sees("✗ TaskUpdate", "Task not found")
