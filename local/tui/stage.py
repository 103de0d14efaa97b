"""Takes a session off the screen, so that another one can follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .attached.leaving import Leaving
from .opening import Opening
from .widgets.info import way_back

if TYPE_CHECKING:
    from .app import Repl


async def take_off(app: Repl) -> None:
    """Show the opening of the next session in place of the one on the screen, and how to come back to that. What is
    typed in the composer stays."""
    view, app.attached, app.leaving = app.view, None, Leaving()
    said = way_back(view.left_behind)
    app.opening = Opening(app.opening.host)
    app.composer.around.may_take_back = lambda: False
    app.composer.around.steer_next = lambda: None
    with app.batch_update():
        await app.mount(app.opening, before=app.composer)
        await app.mount(app.opening.line, after=app.composer)
        for each in (view.submissions.completion, view.status_line, view):
            await each.remove()
    app.opening.say(said)
    app.composer.focus()
