"""A page that takes the place of the conversation: blocks to read, with search, copying and a line of keys."""

from __future__ import annotations

import asyncio

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line

from ...terminal.keymap import DEFAULT_KEYMAP
from ..model.markdown_export import markdown_of, text_of
from ..painting.screen import CARET
from ..render.pictures import PictureShelf
from ..theme.palette import palette_of
from .searching import SearchedBlocks

_KEYS = (
    "Esc closes · {view-search!} searches · {view-start!}, {view-end!} · {page-up!}, {page-down!} · {view-copy!} copies"
    " · {view-pager!} pager"
)
_FOUND_KEYS = "{view-next!} next · {view-previous!} before · Esc ends the search"


class ReadingPage(Vertical, can_focus=True):
    """`title` stands above it. Subclasses fill `body` in `fill`."""

    DEFAULT_CSS = """
    ReadingPage { height: 1fr; background: $background; }
    ReadingPage > .page-line {
        height: 1; padding: 0 1; background: $surface; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """
    KEYS = _KEYS
    keymap = DEFAULT_KEYMAP

    class PageClosed(Message):
        """The person has read enough."""

    class CopyWanted(Message):
        """The person wants a text in the clipboard."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class PagerWanted(Message):
        """The person wants to read on in their pager."""

    def __init__(self, title: str, cwd: str = "", shelf: PictureShelf | None = None) -> None:
        super().__init__()
        self.heading = title
        self.body = SearchedBlocks(cwd, shelf)
        self._typed: str | None = None  # what is typed behind the slash, None while nothing is
        self._busy = ""
        self._filled = asyncio.Event()
        self._head = Static(classes="page-line", markup=False)
        self._foot = Static(classes="page-line", markup=False)

    def compose(self) -> ComposeResult:
        yield self._head
        yield self.body
        yield self._foot

    def on_mount(self) -> None:
        self._draw()
        self._fill()

    @work
    async def _fill(self) -> None:
        await self.fill()
        self._filled.set()

    async def fill(self) -> None:
        """Put the blocks into the body."""

    async def as_text(self) -> str:
        """Return all of it as a document, once it is loaded."""
        await self._filled.wait()
        await self.load_all()
        return markdown_of(self.heading, self.body.blocks)

    async def load_all(self) -> None:
        """Load what is not loaded: the person searches in all of it, or wants its beginning."""

    def own_key(self, event: events.Key) -> bool:
        """Act on a key of this kind of page. Return False for any other."""
        return False

    def turn(self, direction: int) -> None:
        """Turn a page."""
        self.body.turn(direction)

    def say(self, text: str) -> None:
        """Show what goes on, or with "" the keys."""
        self._busy = text
        self._draw()

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self._busy = ""
        if self._typed is not None:
            self._type(event)
        elif self.own_key(event) or self._changeable_key(event):
            pass
        elif event.key in ("escape", "q"):
            self._leave()
        elif event.key in ("up", "down", "k", "j"):
            self.body.scroll_relative(y=-1 if event.key in ("up", "k") else 1, animate=False)
        elif event.key in ("space", "b"):
            self.turn(1 if event.key == "space" else -1)
        self._draw()

    def _changeable_key(self, event: events.Key) -> bool:
        """Act on a key that the setting `keys` may change. Return False for any other."""
        if self._is(event, "view-search"):
            self._typed = ""
        elif self._is(event, "view-next") or self._is(event, "view-previous"):
            self.body.step(1 if self._is(event, "view-next") else -1)
        elif self._is(event, "view-start"):
            self._to_the_start()
        elif self._is(event, "view-end"):
            self.body.scroll_end(animate=False, immediate=True)
        elif self._is(event, "view-copy"):
            block = self.body.block_here()
            if block is not None:
                self.post_message(self.CopyWanted(text_of(block)))
        elif self._is(event, "view-pager"):
            self.post_message(self.PagerWanted())
        else:
            return False
        return True

    def _is(self, event: events.Key, key_id: str) -> bool:
        return self.keymap.pressed(key_id, event.key, event.character)

    def _type(self, event: events.Key) -> None:
        assert self._typed is not None
        if event.key == "escape":
            self._typed = None
        elif event.key == "enter":
            text, self._typed = self._typed.strip(), None
            self._search(text)
        elif event.key == "backspace":
            self._typed = self._typed[:-1] if self._typed else None
        elif event.character and event.is_printable:
            self._typed += event.character

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if self._typed is not None:
            self._typed += one_line(event.text)
            self._draw()

    def _leave(self) -> None:
        if self.body.sought:
            self._search("")
        else:
            self.post_message(self.PageClosed())

    @work(exclusive=True, group="search")
    async def _search(self, text: str) -> None:
        if text:
            self.say("searching …")
            await self.load_all()
        await self.body.search(text)
        self.say("")

    @work(exclusive=True, group="search")
    async def _to_the_start(self) -> None:
        self.say("loading …")
        await self.load_all()
        self.say("")
        self.body.settle()
        self.body.release_anchor()
        self.body.scroll_home(animate=False, immediate=True)

    def _draw(self) -> None:
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        body = self.body
        self._head.update(Text(self.heading, style="bold", no_wrap=True, overflow="ellipsis"))
        foot = Text(no_wrap=True, overflow="ellipsis")
        if self._typed is not None:
            foot.append(f"/{one_line(self._typed)}{CARET}", style=f"bold {palette.accent}")
            foot.append("  Enter searches · Esc leaves", style=palette.dim)
        elif self._busy:
            foot.append(self._busy, style=palette.accent)
        elif body.sought:
            count = f"{body.at + 1} of {len(body.found)}" if body.found else "nothing"
            foot.append(f"{count} for “{one_line(body.sought)}”", style=palette.accent if body.found else palette.warn)
            foot.append(f"  {self.keymap.filled(_FOUND_KEYS)}", style=palette.dim)
        else:
            foot.append(self.keymap.filled(self.KEYS), style=palette.dim)
        self._foot.update(foot)
