"""Which rows of a card count as seen by the person."""

from __future__ import annotations

from tests.local.tui.rendering.test_edit_view import palette
from textual.app import App
from textual.geometry import Region

from ccb.local.tui.cards.card_subject import ApprovalSubject
from ccb.local.tui.rendering.card_rows import CardLine, RowStyle


async def test_rows_that_only_the_layout_before_the_limit_shows_are_not_seen() -> None:
    app = App[None]()
    async with app.run_test(size=(40, 10)) as pilot:
        subject = ApprovalSubject([CardLine("", f"row {each}", RowStyle.EXACT, "") for each in range(8)], palette())
        await app.mount(subject)
        await pilot.pause()
        subject.limit(3)
        subject.render_lines(Region(0, 0, 40, 8))  # painted before the screen is laid out again
        assert subject.unseen == 8
        await pilot.pause()
        assert (subject.size.height, subject.unseen) == (3, 5)
