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
