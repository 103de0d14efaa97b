"""The terminal's own cursor stands on the caret of each input, also while it is hidden: input methods look there."""

from __future__ import annotations

from rich.cells import cell_len
from tests.local.tui.test_sessions import switching
from tests.support.repl.pilot import Desk
from tests.support.repl.scripted_session import ScriptedSession
from textual.widgets import Input


async def cursor_is_behind(at: Desk, text: str) -> None:
    """Wait until the cursor stands behind `text` on the screen."""

    def there() -> bool:
        x, y = at.app.cursor_position
        line = at.screen.splitlines()[y] if y < len(at.screen.splitlines()) else ""
        before, found, _ = line.partition(text)
        return bool(found) and x == cell_len(before + text)

    await at.until(there)


async def test_in_the_composer_whatever_moves_it(at: Desk) -> None:
    await at.type("/he")
    await cursor_is_behind(at, "/he")  # above it is the list of commands
    await at.press("escape", "ctrl+u")
    at.composer.text = "日本"
    at.composer.move_cursor(at.composer.document.end)
    await cursor_is_behind(at, "日本")
    await at.pilot.resize_terminal(50, 20)
    at.session.begin()
    at.session.text("word " * 100)
    await cursor_is_behind(at, "日本")


async def test_in_the_filter_of_a_list() -> None:
    async with switching([ScriptedSession()]) as (at, _):
        await at.enter("/resume", sees="Sessions on devbox")
        await at.type("fla")
        await cursor_is_behind(at, "fla")


async def test_in_the_search_of_a_page(at: Desk) -> None:
    await at.enter("/transcript", sees="Conversation on devbox")
    await at.press("slash", *"ans")
    await cursor_is_behind(at, "/ans")


async def test_in_the_reason_of_a_refusal(at: Desk) -> None:
    await at.turn()
    at.session.ask("ask", "Bash", {"command": "make"})
    await at.card_focused()
    await at.answer("n", then=lambda: isinstance(at.app.focused, Input))
    await at.type("not now")
    await cursor_is_behind(at, "not now")
