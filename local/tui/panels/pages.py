"""Pages in the place of the conversation: all of it, or the changes of files; searched, copied, folded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Static

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.wire.client_requests import REWIND_FILES, FileRewind
from ccb.tunnel.wire.control_protocol import Request, RequestFailed
from ccb.tunnel.wire.journal_records import MAIN_AGENT

from ...session.session_client import EventGap, SessionClient, SessionEvent, parse_snapshot
from ...slash_commands.about_session import ChangedFile, RewindPreview
from ...terminal.keymap import DEFAULT_KEYMAP, Keymap
from ...transcript.blocks import (
    AgentRun,
    Block,
    FileDiffBlock,
    FoldBlock,
    Level,
    NoticeBlock,
    PromptBlock,
    ToolBlock,
    ToolState,
)
from ...transcript.markdown_export import markdown_of, text_of
from ...transcript.tool_calls import agent_label
from ...transcript.transcript_reducer import TranscriptReducer
from ..rendering.block_renderer import agent_summary
from ..rendering.diffs import is_patch
from ..rendering.pictures import PictureShelf
from ..rendering.themes import palette_in
from ..widgets.drawing import texts_of
from ..widgets.history_loader import HistoryLoader
from ..widgets.painting import CARET
from ..widgets.transcript import Transcript
from .list_panel import PanelClosed, typed
from .rewind_panel import CHANGE_SIGNS

_KEYS = (
    "Esc closes · {view-search!} searches · {view-start!}, {view-end!} · {page-up!}, {page-down!} · {view-copy!} copies"
    " · {view-pager!} pager"
)
_FOUND_KEYS = "{view-next!} next · {view-previous!} before · Esc ends the search"


class ReadingPage(Vertical, can_focus=True):
    """`title` stands above `body`."""

    DEFAULT_CSS = """
    ReadingPage { height: 1fr; background: $background; }
    ReadingPage > .page-line {
        height: 1; padding: 0 1; background: $surface; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """
    KEYS = _KEYS
    keymap = DEFAULT_KEYMAP

    @dataclass
    class CopyWanted(Message):
        """The person wants a text in the clipboard."""

        text: str

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
        self.body.name_keys(self.keymap)
        self._draw()
        self._fill()

    @work
    async def _fill(self) -> None:
        await self.fill()
        self._filled.set()

    async def fill(self) -> None:
        """Put the blocks into the body."""
        raise NotImplementedError

    async def as_text(self) -> str:
        await self._filled.wait()
        await self.load_all()
        return markdown_of(self.heading, self.body.blocks)

    async def load_all(self) -> None:
        """Load what is not loaded: the person searches in all of it, or wants its beginning."""

    def tick(self) -> None:
        """Bring up to date what changes with time."""

    def own_key(self, event: events.Key) -> bool:
        """Act on a key of this kind of page. Return False for any other."""
        return False

    def turn(self, direction: int) -> None:
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
            self._type(self._typed, event)
        elif self.own_key(event) or self._changeable_key(event):
            pass
        elif event.key in ("escape", "q") and self.body.sought:
            self._search("")
        elif event.key in ("escape", "q"):
            self.post_message(PanelClosed())
        elif event.key in ("up", "down", "k", "j"):
            self.body.scroll_relative(y=-1 if event.key in ("up", "k") else 1, animate=False)
        elif event.key in ("space", "b"):
            self.turn(1 if event.key == "space" else -1)
        self._draw()

    def _changeable_key(self, event: events.Key) -> bool:
        """Act on a key that the setting `keys` may change. Return False for any other."""
        if self._is(event, "view-search"):
            self._typed = ""
        elif self._is(event, "view-next"):
            self.body.step(1)
        elif self._is(event, "view-previous"):
            self.body.step(-1)
        elif self._is(event, "view-start"):
            self._to_the_start()
        elif self._is(event, "view-end"):
            self.body.scroll_end(animate=False, immediate=True)
        elif self._is(event, "view-copy"):
            if (block := self.body.block_here()) is not None:
                self.post_message(self.CopyWanted(text_of(block)))
        elif self._is(event, "view-pager"):
            self.post_message(self.PagerWanted())
        else:
            return False
        return True

    def _is(self, event: events.Key, key_id: str) -> bool:
        return self.keymap.pressed(key_id, event.key, event.character)

    def _type(self, text: str, event: events.Key) -> None:
        if event.key == "enter":
            self._typed = None
            self._search(text.strip())
        elif event.key == "escape" or (event.key == "backspace" and not text):
            self._typed = None
        else:
            self._typed = typed(text, event)

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if self._typed is not None:
            self._typed += one_line(event.text)
            self._draw()

    @work(exclusive=True, group="search")
    async def _search(self, text: str) -> None:
        if text:
            self.body.show_details()
            self.say("searching …")
            await self.load_all()
        await self.body.search(text)
        self.say("")

    @work(exclusive=True, group="search")
    async def _to_the_start(self) -> None:
        self.say("loading …")
        await self.load_all()
        self.say("")
        self.body.to_the_start()

    def _draw(self) -> None:
        palette = palette_in(self.app)
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


_CONTEXT_LINES = 3  # lines above a found line that stay on the screen
_AT_ONCE = 50  # blocks that are searched before other work gets its turn
_MARKUP = re.compile(r"[*_`~]")
_FOUND, _CURRENT = Style(reverse=True), Style(reverse=True, bold=True, underline=True)

Found = tuple[Block, int]  # a block, and the line of it that holds what is sought


class SearchedBlocks(Transcript):
    """Shows all of every block. `sought` is marked wherever it stands, in upper or lower case."""

    def __init__(self, cwd: str = "", shelf: PictureShelf | None = None) -> None:
        super().__init__(cwd, shelf=shelf)
        self._drawing.details = True
        self.sought = ""
        self.found: list[Found] = []
        self.at = -1  # which of `found` the person looks at

    def name_keys(self, keymap: Keymap) -> None:
        """Name the keys of `keymap` that act on a page: that of running commands is for those of the main agent."""
        self._drawing.keymap = Keymap({**keymap.keys, "background": ()})

    def show_details(self) -> None:
        if not self._drawing.details:
            self.toggle_details()

    def settle(self) -> None:
        """Lay out now what has changed, so that lines have their places."""
        self._lay_out()

    def to_the_start(self) -> None:
        self._lay_out()
        self.release_anchor()
        self.scroll_home(animate=False, immediate=True)

    async def search(self, text: str) -> None:
        """Find the lines with `text`, and go to the last one above the end of the screen."""
        self.sought, self.found, self.at = text.lower(), [], -1
        found: list[Found] = []
        for number, block in enumerate(tuple(self.blocks) if text else ()):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if may_hold(block, self.sought):
                lines = enumerate(texts_of(self._whole_lines(block)))
                found += [(block, line) for line, text in lines if self.sought in text.lower()]
        self.found = found
        self.settle()
        self.refresh()
        bottom = round(self.scroll_y) + self.size.height
        before = [at for at, each in enumerate(found) if (self._line_of(each) or 0) < bottom]
        self.at = before[-1] if before else 0
        self.step(0)

    def step(self, by: int) -> None:
        """Go to the next found line, or the one before; from the last one to the first."""
        if self.found:
            self.at = (self.at + by) % len(self.found)
            self.bring_up(*self.found[self.at])

    def bring_up(self, block: Block, line: int) -> None:
        layout = self.block_layout
        position = layout.position(block)
        if position == len(layout.blocks):
            return  # it has made room for newer ones
        first, rows = position, 0
        while first > 0 and rows < self.size.height:  # what comes on the screen above it gets its true height
            first -= 1
            rows += len(self._lines(layout.blocks[first]))
        self._keep_in_place = block, _CONTEXT_LINES - line
        self.release_anchor()
        self._lay_out_soon(first)
        self.refresh()

    def block_here(self) -> Block | None:
        """Return the block of the found line, else the first one on the screen."""
        if 0 <= self.at < len(self.found):
            return self.found[self.at][0]
        place = self.block_layout.at_line(round(self.scroll_y))
        return place[0] if place is not None else None

    def _line_of(self, found: Found) -> int | None:
        start = self.block_layout.start(self.block_layout.position(found[0]))
        return start + found[1] if start is not None else None

    @property
    def _has_marks(self) -> bool:
        return bool(self.sought) or super()._has_marks

    def _marked(self, strip: Strip, line: int) -> Strip:
        return super()._marked(self._with_found(strip, line) if self.sought else strip, line)

    def _with_found(self, strip: Strip, line: int) -> Strip:
        text = strip.text
        lower = text.lower()
        if self.sought not in lower or len(lower) != len(text):
            return strip
        current = 0 <= self.at < len(self.found) and self._line_of(self.found[self.at]) == line
        parts, cells, start = [], 0, 0
        while (place := lower.find(self.sought, start)) >= 0:
            end = place + len(self.sought)
            left, right = cell_len(text[:place]), cell_len(text[:end])
            inside = strip.crop(left, right)
            style = _CURRENT if current else _FOUND
            parts += [strip.crop(cells, left), Strip(Segment.apply_style(inside, post_style=style), right - left)]
            cells, start = right, end
        return Strip.join([*parts, strip.crop(cells, strip.cell_length)])


def may_hold(block: Block, sought: str) -> bool:
    if isinstance(block, ToolBlock) and block.agent is not None:
        return True
    plain = _MARKUP.sub("", sought)
    for text in _texts(block):
        lower = (neutralise(text) if "\x1b" in text else text).lower()
        if sought in lower or plain in _MARKUP.sub("", lower):
            return True
    return False


def _texts(block: Block) -> list[str]:
    if isinstance(block, ToolBlock):
        return [block.name, block.result, block.output, *_leaves(block.tool_input), *_leaves(block.patch)]
    if isinstance(block, FileDiffBlock):
        return [block.path, block.note, *_leaves(block.patch)]
    if isinstance(block, FoldBlock):
        return [block.text, *(text for each in block.folded for text in _texts(each))]
    return [block.text]


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield str(value)


class TextPage(ReadingPage):
    """Shows a text as it is."""

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__(one_line(title))
        self._lines = lines

    async def fill(self) -> None:
        self.body.add(NoticeBlock(text=neutralise("\n".join(self._lines))))
        self.body.to_the_start()


_OPEN_AT_FIRST = 5  # files
_LAST = "What commands have changed is not here: `! git diff` shows it. /rewind takes changes back."
_OLD_WORKER = "its lines are not known: the worker of this session is of an older version"
_CUT = "not all of it is shown: the change is too large"
_BACK = {"create": "remove", "remove": "create"}  # going back does the contrary of what the agent has done


class DiffPage(ReadingPage):
    """Shows `files`, which were changed since the prompt `since`. The lines of a file are fetched when it is opened."""

    KEYS = (
        "Esc closes · {view-fold!} folds · Up, Down · {view-unfold-all!} {view-fold-all!} all · {view-search!} searches"
        " · {page-up!}, {page-down!} · {view-copy!} copies"
    )

    def __init__(self, client: SessionClient, place: str, since: str, files: Sequence[ChangedFile]) -> None:
        added, removed = sum(each.deletions for each in files), sum(each.insertions for each in files)
        count = f"{len(files)} file{'s' if len(files) != 1 else ''}"
        super().__init__(f"{count} +{added} -{removed}, changed in this session on {place}")
        self._client = client
        self._since = since
        self._files = [
            FileDiffBlock(
                path=each.path,
                sign=CHANGE_SIGNS.get(_BACK.get(each.does, each.does), "~"),
                added=each.deletions,
                removed=each.insertions,
                note=one_line(each.why) or ("changed by something else since" if each.changedElsewhere else ""),
                unfolded=len(files) <= _OPEN_AT_FIRST,
                marked=number == 0,
            )
            for number, each in enumerate(files)
        ]
        self._at = 0

    async def fill(self) -> None:
        for block in self._files:
            self.body.add(block)
        self.body.add(NoticeBlock(text=_LAST, level=Level.DIM))
        self.body.to_the_start()
        await self._fetch_lines()

    def own_key(self, event: events.Key) -> bool:
        key = event.key
        if key in ("up", "down", "k", "j"):
            self._mark(self._at + (-1 if key in ("up", "k") else 1))
        elif self._is(event, "view-fold") or key in ("right", "left"):
            self._unfold([self._files[self._at]], {"right": True, "left": False}.get(key))
        elif self._is(event, "view-unfold-all") or self._is(event, "view-fold-all"):
            self._unfold(self._files, self._is(event, "view-unfold-all"))
        else:
            return False
        return True

    def _mark(self, at: int) -> None:
        before, self._at = self._files[self._at], min(max(at, 0), len(self._files) - 1)
        now = self._files[self._at]
        for each in (before, now):
            each.marked = each is now
            self.body.update_block(each)
        self.body.bring_up(now, 0)

    def _unfold(self, blocks: Sequence[FileDiffBlock], unfolded: bool | None) -> None:
        for block in blocks:
            block.unfolded = not block.unfolded if unfolded is None else unfolded
            self.body.update_block(block)
        self._fetch()

    @work(exclusive=True, group="lines")
    async def _fetch(self) -> None:
        await self._fetch_lines()

    async def load_all(self) -> None:
        self._unfold(self._files, True)
        await self._fetch_lines()

    async def _fetch_lines(self) -> None:
        for block in self._files:
            if block.unfolded and block.patch is None and not block.problem:
                await self._fetch_file(block)
                self.body.update_block(block)
        self.body.settle()

    async def _fetch_file(self, block: FileDiffBlock) -> None:
        wanted = FileRewind(self._since, dry_run=True, path=block.path)
        try:
            answer = RewindPreview.model_validate(await self._client.request(Request(REWIND_FILES, wanted)))
        except (CcbError, RequestFailed) as error:
            block.problem = error.what if isinstance(error, CcbError) else one_line(str(error))
            return
        except ValidationError:
            block.problem = "the worker's answer cannot be read"
            return
        found = next((each for each in answer.files if each.path == block.path), None)
        if found is None:
            block.problem = "it is as it was before the session"
        elif found.patch is None or not is_patch(found.patch):
            block.problem = (found.why and one_line(found.why)) or _OLD_WORKER
        else:
            block.patch = found.patch
            block.problem = "" if found.complete else _CUT


_AFTER_ALL = 1 << 52  # no event has such a number


class TranscriptPage(ReadingPage):
    """It loads the session anew from the host, the newest events first, and goes on with what happens meanwhile."""

    def __init__(
        self,
        client: SessionClient,
        place: str,
        own_name: str,
        shelf: PictureShelf | None = None,
        agent_id: str = MAIN_AGENT,
    ) -> None:
        cwd = client.hello.cwd.raw.rstrip("/")
        super().__init__(f"Conversation on {place}", cwd, shelf)
        self._client = client
        self._reducer = TranscriptReducer(self.body, own_name=own_name, cwd=cwd, agent_id=agent_id)
        self._loader = HistoryLoader(client, self.body, self._reducer)
        self._seq = 0
        self._before = _AFTER_ALL
        self._early: list[SessionEvent] | None = []  # what comes before the first page is here

    async def fill(self) -> None:
        self.say("loading …")
        try:
            events = await self._client.earlier(self._before)
        except CcbError as error:
            self.say(f"The conversation is not loaded: {error.what} · Esc closes")
            return
        if events:
            self._loader.skipped(0, events[0].seq)
        early, self._early = self._early or [], None
        for event in [*events, *early]:
            self.received(event)
        self.say("")

    def received(self, event: SessionEvent) -> None:
        if self._early is not None:
            self._early.append(event)
        elif event.kind == "progress" or event.seq > self._seq:
            self._seq = self._seq if event.kind == "progress" else event.seq
            self._reducer.take(event)

    def skipped(self, item: EventGap) -> None:
        if self._early is None and item.seq > self._seq:
            self._loader.skipped(self._seq, item.seq + 1)
            self._reducer.skipped(parse_snapshot(item.body), running=self._client.hello.state != "idle")
            self._seq = item.seq

    async def load_all(self) -> None:
        while await self._loader.load_newest():
            self.body.settle()

    def turn(self, direction: int) -> None:
        if direction > 0 or not self._loader.load_in_sight(turn_page=True):
            super().turn(direction)

    def on_transcript_wheel_up(self, event: Transcript.WheelUp) -> None:
        event.stop()
        self._loader.load_in_sight(turn_page=False)


_AGENT_KEYS = (
    "Esc goes back · {details!} all output · {view-search!} searches · {page-up!}, {page-down!} · {view-copy!} copies"
)


class AgentPage(TranscriptPage):
    """The conversation of the sub-agent that `call` has started, as it goes on: its prompt, its words, a line for each
    of its calls. Of an agent that was started again, the newest run is loaded first."""

    KEYS = _AGENT_KEYS

    def __init__(
        self, client: SessionClient, place: str, call: ToolBlock, run: AgentRun, shelf: PictureShelf | None = None
    ) -> None:
        super().__init__(client, place, "", shelf, run.agent_id or call.tool_id)
        self._call, self._run, self._place = call, run, place
        self._before = run.last_seq + 1 if run.last_seq else _AFTER_ALL
        self.body.toggle_details()
        self.heading = self._title()

    def _title(self) -> str:
        failed = self._call.state in (ToolState.FAILED, ToolState.UNKNOWN)
        state = "failed" if failed else "completed" if self._run.ended else "asks you" if self._run.asks else "works"
        summary = agent_summary(self._call, self._run)
        return f"{agent_label(self._call.tool_input)} · {state} · {summary} · {self._place}"

    def tick(self) -> None:
        if self.heading != (title := self._title()):
            self.heading = title
            self._draw()

    async def fill(self) -> None:
        await super().fill()
        while not self._begins_here and await self._loader.load_newest():
            self.say("loading …")
            self.body.settle()
        if self._begins_here and "resume" not in self._call.tool_input:
            self._loader.forget()
            self.say("")

    @property
    def _begins_here(self) -> bool:
        return any(isinstance(each, PromptBlock) for each in self.body.blocks)

    def received(self, event: SessionEvent) -> None:
        if not 0 < self._run.last_seq < event.seq:
            super().received(event)

    def skipped(self, item: EventGap) -> None:
        """What the snapshot says is about the main agent."""
        super().skipped(EventGap(item.seq, {}))
