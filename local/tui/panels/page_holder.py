"""Holds the page or the panel that the person reads, in the place of the conversation or above the composer."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence

from textual import work
from textual.app import SuspendNotSupported
from textual.containers import Vertical
from textual.widget import Widget

from ...session.session_client import EventGap, SessionClient, SessionEvent
from ...slash_commands.session_api import ReplInfo
from ...terminal.editor import NoEditor, page
from ..composer.composer import Composer
from ..widgets.transcript import Transcript
from .list_panel import HelpPanel, HelpSection, ListPanel
from .pages import ReadingPage, TranscriptPage

_TWICE_S = 0.7  # seconds within which a key counts as pressed twice


class PageHolder(Vertical):
    """Shows one thing at a time. A page takes the place of `transcript` and `composer`."""

    DEFAULT_CSS = """
    PageHolder { height: auto; }
    PageHolder.-page { height: 1fr; }
    """

    def __init__(
        self,
        client: SessionClient,
        info: ReplInfo,
        transcript: Transcript,
        composer: Composer,
        copied: Callable[[str], Awaitable[str]],
    ) -> None:
        super().__init__()
        self.transcript = transcript
        self.shown: Widget | None = None
        self._client = client
        self._info = info
        self._composer = composer
        self._copied = copied
        self._details_at = -_TWICE_S

    @property
    def page(self) -> ReadingPage | None:
        return self.shown if isinstance(self.shown, ReadingPage) else None

    def open(self, widget: Widget) -> None:
        self.close()
        self.shown = widget
        if isinstance(widget, ReadingPage | ListPanel):
            widget.keymap = self._composer.keymap
        self._make_room(page=isinstance(widget, ReadingPage))
        self.mount(widget)
        widget.focus()

    def open_transcript(self) -> TranscriptPage:
        page = TranscriptPage(self._client, self._info.place, self._info.client_name, self.transcript.shelf)
        self.open(page)
        return page

    def details_pressed(self, now: float) -> None:
        """Show all of tool output and thinking, or the summary; pressed twice, the whole conversation. Close a page."""
        if self.page is not None:
            self.close()
            return
        self.transcript.toggle_details()
        if now - self._details_at < _TWICE_S:
            self.open_transcript()
        self._details_at = now

    def open_panel(self, title: str, sections: Sequence[HelpSection], sought: str = "") -> HelpPanel:
        """Show rows that are searched by typing, first for `sought`."""
        panel = HelpPanel(sections, title, sought)
        self.open(panel)
        return panel

    def close(self) -> bool:
        """Close what is shown. Return False if nothing is."""
        shown, self.shown = self.shown, None
        if shown is None:
            return False
        shown.remove()
        self._make_room(page=False)
        self._composer.focus()
        return True

    def turn(self, direction: int) -> bool:
        """Turn a page of what is shown. Return False if nothing is."""
        if isinstance(self.shown, ReadingPage | HelpPanel):
            self.shown.turn(direction)
            return True
        return False

    def tick(self) -> None:
        """Take the keys back after a card that had them has gone: it gives them to the composer, which a page hides."""
        if self.page is not None and self.screen.focused in (None, self._composer):
            self.page.focus()

    def received(self, event: SessionEvent | EventGap) -> None:
        if isinstance(self.shown, TranscriptPage):
            if isinstance(event, EventGap):
                self.shown.skipped(event)
            else:
                self.shown.received(event)

    def on_panel_closed(self) -> None:
        self.close()

    @work
    async def on_reading_page_copy_wanted(self, event: ReadingPage.CopyWanted) -> None:
        said = await self._copied(event.text)
        if self.page is not None:
            self.page.say(f"This entry was {said}.")

    @work
    async def on_reading_page_pager_wanted(self) -> None:
        if self.page is not None:
            self.page.say(await self.pager(self.page))

    async def pager(self, shown: ReadingPage) -> str:
        """Show a page in the pager, which gets the terminal. Return what went wrong, "" if nothing did."""
        text = await shown.as_text()
        try:
            with self.app.batch_update(), self.app.suspend():
                await page(text, os.environ)
        except (NoEditor, SuspendNotSupported) as error:
            return str(error) or "this terminal cannot be lent to a pager"
        return ""

    def _make_room(self, *, page: bool) -> None:
        self.set_class(page, "-page")
        self.transcript.display = self._composer.display = not page
