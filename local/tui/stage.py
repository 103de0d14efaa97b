"""What stands on the screen between sessions: the list to choose the first one, the opening of the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .attached.leaving import Leaving
from .opening import Opening
from .widgets.info import way_back

if TYPE_CHECKING:
    from ..connect.session_list import HostSessions, SessionRow
    from .app import Repl


async def take_off(app: Repl) -> None:
    """Show the opening of the next session in place of the one on the screen, and how to come back to that. What is
    typed in the composer stays."""
    view, app.attached, app.leaving = app.view, None, Leaving()
    said = way_back(view.left_behind)
    app.opening = Opening(app.opening.host, app.composer.keymap)
    app.composer.around.may_take_back = lambda: False
    app.composer.around.steer_next = lambda: None
    with app.batch_update():
        await app.mount(app.opening, before=app.composer)
        await app.mount(app.opening.line, after=app.composer)
        for each in (view.submissions.completion, view.status_line, view):
            await each.remove()
    app.opening.say(said)
    app.composer.focus()


async def choose_first(app: Repl, sessions: HostSessions, rows: Sequence[SessionRow]) -> str | None:
    """Let the person choose the session that comes first. Return its ID, None if they want none."""
    from .sessions.panel import SessionPanel
    from .sessions.picker import SessionPicker

    host = app.opening.host
    picker = SessionPicker(
        host, sessions, SessionPanel(host, rows, "", leaves="leaves ccb", keymap=app.composer.keymap)
    )
    app.opening.visible = False
    app.opening.line.hint(f"{host}  choose the session that comes on the screen")
    await app.mount(picker, before=app.composer)
    try:
        row = await picker.chosen()
    finally:
        app.opening.visible = True
        app.opening.line.say("opening the session")
        if picker.is_mounted:
            await picker.remove()
    app.composer.focus()
    return row.session if row is not None else None
