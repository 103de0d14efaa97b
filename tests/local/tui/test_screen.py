"""The status line, and what the terminal itself is told."""

from __future__ import annotations

import pytest
from tests.support.repl.pilot import Desk, desk
from tests.support.repl.scripted_session import ScriptedSession, hello
from textual import events

from ccb.local.transcript.blocks import Level, NoticeBlock
from ccb.local.transcript.session_facts import tokens
from ccb.tunnel.errors import ConnectionLost


async def test_the_first_screen_names_the_host_and_what_one_can_do_there() -> None:
    for size in ((120, 30), (40, 16)):
        async with desk(size=size) as at:
            await at.sees("devbox:/srv/shop", "claude-sonnet-4-5, effort", "high")
            await at.sees("The agent works on devbox", "@  a file of devbox", "permission mode")
            await at.prompt("go", loses="a file of devbox")


async def test_a_running_tool_of_a_lost_session_is_not_called_failed(at: Desk) -> None:
    await at.turn()
    at.session.run(at.session.call("Bash", command="make"), "compiling", 3)
    await at.sees("compiling")
    at.session.fail(ConnectionLost("devbox is gone"))
    await at.sees("? Bash make", "its result is not known here")


async def test_what_does_not_fit_in_the_status_line_is_left_out_and_the_place_stays() -> None:
    async with desk(size=(40, 10)) as at:
        await at.prompt("go")
        at.session.begin(model="a-model-with-a-name-that-is-longer-than-the-line")
        await at.until(lambda: "working" in at.status)
        assert len(at.status) <= 40
        assert at.status.startswith(" ● devbox:/srv/shop")


@pytest.mark.parametrize(("storage", "level"), [("disk", Level.DIM), ("memory", Level.WARNING)])
async def test_a_note_stands_out_when_the_session_may_not_last(storage: str, level: Level) -> None:
    async with desk(ScriptedSession(greeting=hello(notes=["kept somewhere"], storage=storage))) as at:
        await at.sees("On the host: “kept somewhere”")
        (note,) = [b for b in at.view.transcript.blocks if isinstance(b, NoticeBlock) and "kept somewhere" in b.text]
        assert note.level is level


async def test_the_bell_rings_for_a_question_and_for_the_end_only_while_another_window_is_used(at: Desk) -> None:
    rung: list[str] = []
    at.app.bell = lambda: rung.append("bell")  # type: ignore[method-assign]
    await at.prompt("go")
    at.session.ask("first", "Bash", {"command": "one"})
    await at.sees("one")
    assert rung == []
    at.app.post_message(events.AppBlur())
    await at.pilot.pause()
    at.session.ask("second", "Bash", {"command": "two"})
    await at.until(lambda: rung == ["bell"])
    at.session.finish()
    await at.until(lambda: rung == ["bell", "bell"])
    at.app.post_message(events.AppFocus())
    await at.pilot.pause()
    at.session.finish(output_tokens=7)
    await at.until(lambda: at.view.reducer.totals.output_tokens == 352)
    assert rung == ["bell", "bell"]


def test_tokens_are_short() -> None:
    assert [tokens(n) for n in (0, 999, 1_000, 12_345, 999_999, 1_234_567)] == [
        "0", "999", "1.0k", "12.3k", "1.0M", "1.2M",
    ]  # fmt: skip
