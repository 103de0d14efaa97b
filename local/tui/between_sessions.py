"""From one session to the next, and the end of the interface."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..command_line.exit_codes import ExitCode
from ..terminal.console import print_line, say
from .app import Repl
from .opening import Opening
from .repl_shell import LeaveState

if TYPE_CHECKING:
    from ..connect.host_sessions import HostSessions
    from ..connect.session_rows import SessionRow


_WORDS: dict[int, str] = {
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "terminated",
    ExitCode.HANGUP: "hung up",
}


async def run_repl(app: Repl) -> int:
    """Show the interface until the person leaves, a signal ends it or the task of its session fails. Return the exit
    code.

    The session goes on on its host, unless the person gave /stop. Raises what the session's task raises.
    """
    streams = sys.stdout, sys.stderr
    try:
        code = await app.shown()
        failed = code == ExitCode.INTERNAL  # an error that comes after the person has left is of no interest
        with suppress(OSError):  # the window may be closed
            if app.leaving.moves_to:
                pass  # what comes of that is told later
            elif app.attached is not None:
                print_line(*app.attached.farewell())
            else:
                _tell_of_no_session(app, said=failed, why="" if failed else _WORDS.get(code, ""))
        app.switching.leave()
        if app.session_task is not None and (failed or app.attached is not None):
            await app.session_task
        return code
    finally:
        if app.session_task is not None:
            app.session_task.cancel()
            await asyncio.gather(app.session_task, return_exceptions=True)
        sys.stdout, sys.stderr = streams  # a login that was given up in the middle leaves others


def _tell_of_no_session(app: Repl, *, said: bool, why: str) -> None:
    lines = [line for text in app.opening.said for line in text.splitlines()] if said else []
    unsent = [text for text in (*app.opening.queued, app.composer.text.strip()) if text]
    if unsent:
        lines += ["ccb: this was not sent:", *"\n".join(unsent).split("\n")]
    if why:
        lines.append(f"ccb: {why}")
    say(*lines)


async def take_off(app: Repl) -> None:
    """Put the opening of the next session in the place of this one. What is typed in the composer stays."""
    from ..slash_commands.session_api import way_back

    view, app.attached, app.leaving = app.view, None, LeaveState()
    app.opening = Opening(app.opening.host, app.composer.keymap)
    app.composer.around.take_back = lambda: False
    app.composer.around.steer_next = lambda: None
    said = way_back(view.left_behind)
    with app.batch_update():
        await app.mount(app.opening, before=app.composer)
        await app.mount(app.opening.line, after=app.composer)
        for each in (view.completion, view.status.line, view):
            await each.remove()
    app.opening.say(said)
    app.composer.focus()


async def choose_first(app: Repl, sessions: HostSessions, rows: Sequence[SessionRow]) -> str | None:
    """Let the person choose the session that comes first. Return its ID, None if they want none."""
    from .panels.session_panel import SessionPanel

    host = app.opening.host
    panel = SessionPanel(host, sessions, rows, app.composer.keymap, leaves="leaves ccb")
    app.opening.visible = False
    app.opening.line.update(f"{host}  choose the session that comes on the screen")
    await app.mount(panel, before=app.composer)
    try:
        row = await panel.chosen()
    finally:
        app.opening.visible = True
        app.opening.goes_on("opening the session")
        if panel.is_mounted:
            await panel.remove()
    app.composer.focus()
    return row.session if row is not None else None
