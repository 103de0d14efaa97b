"""Holds the page or the panel that the person reads, in the place of the conversation or above the composer."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from textual import work
from textual.app import SuspendNotSupported
from textual.containers import Vertical
from textual.widget import Widget

from ...ports.port_forwards import PortForwards, url_of
from ...session.session_client import EventGap, SessionClient, SessionEvent
from ...slash_commands.session_api import ReplInfo
from ...terminal.editor import NoEditor, page
from ...transcript.blocks import OfferBlock, ToolBlock
from ..composer.composer import Composer
from ..widgets.transcript import Transcript
from .list_panel import HelpPanel, HelpSection, ListPanel
from .pages import AgentPage, ReadingPage, TranscriptPage

_MARKING = ("up", "down", "tab", "enter", "escape")  # the keys that choose a sub-agent or the offer of a port
_TWICE_S = 0.7  # seconds within which a key counts as pressed twice

_Choice = ToolBlock | OfferBlock


class PortOffers:
    """The lines in the conversation that offer a port. A line goes once its port is taken, hidden or closed."""

    def __init__(self, ports: PortForwards | None, transcript: Transcript) -> None:
        self._ports, self._transcript = ports, transcript
        self.waiting: deque[int] = deque()  # those that came since
        self._shown: list[OfferBlock] = []

    def refresh(self, *, may_show: bool) -> None:
        """Bring the lines up to date. New ones come only if they `may_show`: not during a replay or beside a card."""
        if self._ports is None:
            return
        for block in [each for each in self._shown if not self._ports.may_offer(each.port)]:
            self._shown.remove(block)
            self._transcript.take_away(block)
        while may_show and self.waiting:
            port = self.waiting.popleft()
            if self._ports.may_offer(port):
                block = OfferBlock(text=f"{self._ports.shown(port)} → {url_of(port)}", port=port)
                self._shown.append(block)
                self._transcript.add(block)


class PageHolder(Vertical):
    """Shows one thing at a time. A page takes the place of `transcript` and `composer`. `use_port` gets a word of
    `/ports` and a port that was offered, when the person takes or hides that."""

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
        use_port: Callable[[str, int], object],
    ) -> None:
        super().__init__()
        self.transcript = transcript
        self.shown: Widget | None = None
        self._below: list[Widget] = []  # hidden until what is shown is closed
        self._marked: _Choice | None = None
        self._client = client
        self._info = info
        self._composer = composer
        self._copied = copied
        self._use_port = use_port
        self._details_at = -_TWICE_S

    @property
    def page(self) -> ReadingPage | None:
        return self.shown if isinstance(self.shown, ReadingPage) else None

    def open(self, widget: Widget, *, over: bool = False) -> None:
        """Show a panel or a page in place of what is shown; `over`: until it is closed."""
        if over and self.shown is not None:
            self.shown.display = False
            self._below.append(self.shown)
        else:
            while self.close():
                pass
        self.shown = widget
        if isinstance(widget, ReadingPage | ListPanel):
            widget.keymap = self._composer.keymap
        self._make_room(page=isinstance(widget, ReadingPage))
        self.mount(widget)
        widget.focus()

    def open_agent(self, call: ToolBlock) -> None:
        """Show the conversation of the sub-agent that a call has started."""
        self.mark(None)
        if call.agent is not None:
            self.open(AgentPage(self._client, self._info.place, call, call.agent, self.transcript.shelf), over=True)

    def take_key(self, key: str) -> bool:
        """Mark a sub-agent or an offer in sight, or act on it. Return False for a key that does nothing here."""
        marked, choices = self._marked, self.transcript.choices_in_sight
        if self._composer.text or (marked is None and not (choices and key in ("down", "tab"))):
            return False
        if marked is None:
            self.mark(choices[-1])
        elif isinstance(marked, OfferBlock) and (verb := self._port_verb(key)):
            self.mark(None)
            self._use_port(verb, marked.port)
        elif key not in _MARKING:
            return False
        elif isinstance(marked, ToolBlock) and key == "enter":
            self.open_agent(marked)
        else:
            self.mark(_beside(marked, choices, key))
        return True

    def _port_verb(self, key: str) -> str:
        """Return what a key means for the marked offer of a port, as a word of `/ports`; "" for another key."""
        keymap = self._composer.keymap
        pressed = (each for each in ("open", "forward", "ignore") if keymap.has(f"port-{each}", key))
        return "forward" if key == "enter" else next(pressed, "")

    def mark(self, choice: _Choice | None) -> None:
        for each in (self._marked, choice):
            if isinstance(each, OfferBlock):
                each.marked = each is choice
            elif each is not None and each.agent is not None:
                each.agent.marked = each is choice
            if each is not None:
                self.transcript.update_block(each)
        self._marked = choice

    def open_transcript(self) -> TranscriptPage:
        page = TranscriptPage(self._client, self._info.place, self._info.client_name, self.transcript.shelf)
        self.open(page)
        return page

    def details_pressed(self, now: float) -> None:
        """Show all of tool output and thinking, or the summary; pressed twice, the whole conversation. Close a page
        that shows all of it anyway."""
        if isinstance(self.page, AgentPage):
            self.page.body.toggle_details()
            return
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
        """Close what is shown, and go back to what is below it. Return False if nothing is shown."""
        shown, self.shown = self.shown, self._below.pop() if self._below else None
        if shown is None:
            return False
        shown.remove()
        self._make_room(page=self.page is not None)
        if self.shown is not None:
            self.shown.display = True
        (self.shown or self._composer).focus()
        return True

    def turn(self, direction: int) -> bool:
        """Turn a page of what is shown. Return False if nothing is."""
        if isinstance(self.shown, ReadingPage | HelpPanel):
            self.shown.turn(direction)
            return True
        return False

    def tick(self) -> None:
        """Take the keys back after a card that had them has gone: it gives them to the composer, which a page hides."""
        if self.page is not None:
            self.page.tick()
            if self.screen.focused in (None, self._composer):
                self.page.focus()

    def received(self, event: SessionEvent | EventGap) -> None:
        for each in (*self._below, self.shown):
            if isinstance(each, TranscriptPage):
                if isinstance(event, EventGap):
                    each.skipped(event)
                else:
                    each.received(event)

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


def _beside(marked: _Choice, choices: Sequence[_Choice], key: str) -> _Choice | None:
    """Return the choice that an arrow key or Tab leads to, or None at an end and for another key."""
    if key not in ("up", "down", "tab") or marked not in choices:
        return None
    at = choices.index(marked) + (-1 if key == "up" else 1)
    return choices[at] if 0 <= at < len(choices) else None
