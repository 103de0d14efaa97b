"""Conversation, changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from textual import events, work

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.client_requests import REWIND_FILES, FileRewind
from ccb.tunnel.wire.control_protocol import Request, RequestFailed
from ccb.tunnel.wire.journal_records import MAIN_AGENT, agent_of_message

from ...session.session_client import EventGap, SessionClient, SessionEvent, parse_snapshot
from ...slash_commands.about_session import DiffFile, DiffFiles
from ...transcript.blocks import FileDiffBlock, Level, NoticeBlock
from ...transcript.transcript_reducer import TranscriptReducer
from ..rendering.diffs import is_patch
from ..rendering.pictures import PictureShelf
from ..widgets.history_loader import HistoryLoader
from ..widgets.transcript import Transcript
from .reading_page import ReadingPage

_OPEN_AT_FIRST = 5  # files
_LAST = "What commands have changed is not here: `! git diff` shows it. /rewind takes changes back."
_OLD_WORKER = "its lines are not known: the worker of this session is of an older version"
_CUT = "not all of it is shown: the change is too large"
_BACK = {"create": "remove", "remove": "create"}  # going back does the contrary of what the agent has done
_SIGNS = {"change": "~", "create": "+", "remove": "-"}

Json = dict[str, Any]


class DiffPage(ReadingPage):
    """Shows `files`, which were changed since the prompt `since`. The lines of a file are fetched when it is opened."""

    KEYS = (
        "Esc closes · {view-fold!} folds · Up, Down · {view-unfold-all!} {view-fold-all!} all · {view-search!} searches"
        " · {page-up!}, {page-down!} · {view-copy!} copies"
    )

    def __init__(self, client: SessionClient, place: str, since: str, files: Sequence[DiffFile]) -> None:
        added, removed = sum(each.deletions for each in files), sum(each.insertions for each in files)
        count = f"{len(files)} file{'s' if len(files) != 1 else ''}"
        super().__init__(f"{count} +{added} -{removed}, changed in this session on {place}")
        self._client = client
        self._since = since
        self._files = [
            FileDiffBlock(
                path=each.path,
                sign=_SIGNS.get(_BACK.get(each.does, each.does), "~"),
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
        self.body.settle()
        self.body.release_anchor()
        self.body.scroll_home(animate=False, immediate=True)
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
        before.marked = False
        now.marked = True
        self.body.update_block(before)
        self.body.update_block(now)
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
        """A search is in the lines of all files."""
        self._unfold(self._files, True)
        await self._fetch_lines()

    async def _fetch_lines(self) -> None:
        """Fetch the lines of the files that are unfolded, one after the other."""
        for block in self._files:
            if block.unfolded and block.patch is None and not block.problem:
                await self._fetch_file(block)
                self.body.update_block(block)
        self.body.settle()

    async def _fetch_file(self, block: FileDiffBlock) -> None:
        wanted = FileRewind(self._since, dry_run=True, path=block.path)
        try:
            answer = DiffFiles.model_validate(await self._client.request(Request(REWIND_FILES, wanted)))
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

    def __init__(self, client: SessionClient, place: str, own_name: str, shelf: PictureShelf | None = None) -> None:
        cwd = client.hello.cwd.raw.rstrip("/")
        super().__init__(f"Conversation on {place}", cwd, shelf)
        self._client = client
        self._reducer = TranscriptReducer(self.body, own_name=own_name)
        self._reducer.notices.cwd = cwd
        self._loader = HistoryLoader(client, self.body, self._reducer)
        self._seq = 0
        self._early: list[SessionEvent] | None = []  # what comes before the first page is here

    async def fill(self) -> None:
        self.say("loading …")
        try:
            events = await self._client.earlier(_AFTER_ALL)
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
        """Something happens in the session."""
        if self._early is not None:
            self._early.append(event)
        elif event.kind == "progress":
            if agent_of_message(event.body) == MAIN_AGENT:
                self._reducer.apply_progress(event.public)
        elif event.seq > self._seq:
            self._seq = event.seq
            self._reducer.apply_event(event.record, replayed=event.replayed)

    def skipped(self, item: EventGap) -> None:
        """Events of the session are not sent: they can be loaded."""
        if self._early is None and item.seq > self._seq:
            self._loader.skipped(self._seq, item.seq + 1)
            self._reducer.skipped(parse_snapshot(item.body), running=self._client.hello.state != "idle")
            self._seq = item.seq

    async def load_all(self) -> None:
        while await self._loader.load_newest():
            self.body.settle()

    def turn(self, direction: int) -> None:
        hole = self._loader.hole_on_screen() if direction < 0 else None
        if hole is not None:
            self.run_worker(self._loader.load(hole, turn_page=True))
        else:
            super().turn(direction)

    def on_transcript_wheel_up(self, event: Transcript.WheelUp) -> None:
        event.stop()
        hole = self._loader.hole_on_screen()
        if hole is not None:
            self.run_worker(self._loader.load(hole, turn_page=False))
