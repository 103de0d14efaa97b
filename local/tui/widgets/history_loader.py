"""Events that are not loaded: show lines in their place, and load them when the person scrolls there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.dataclass import dataclass

from ...session.session_client import SessionClient, SessionEvent
from ...transcript.blocks import BlockList, HoleBlock, Level, NoticeBlock
from ...transcript.transcript_reducer import TranscriptReducer
from .transcript import Transcript

_HINT = " · PgUp here loads them"


@dataclass(eq=False)
class HistoryLoader:
    """Knows the holes of a transcript, and fills them page by page."""

    client: SessionClient
    transcript: Transcript
    reducer: TranscriptReducer
    _loading: bool = False
    _holes: list[HoleBlock] = field(default_factory=list)

    def skipped(self, after: int, before: int) -> None:
        """Show a line in place of the events between these numbers, which are not loaded."""
        if before <= after + 1:
            return  # the host has lost events that are on the screen
        hole = HoleBlock(level=Level.DIM, after=after, before=before)
        hole.text = _hole_text(hole)
        self._holes = [each for each in self._holes if each in self.transcript.block_layout] + [hole]
        self.transcript.add(hole, before=self.reducer.prompts.first_waiting())

    def forget(self) -> None:
        """Take the holes away: what is not loaded is of no interest any more."""
        for hole in self._holes:
            self.transcript.take_away(hole)
        self._holes.clear()

    def load_in_sight(self, *, turn_page: bool) -> bool:
        """Load the hole that the person looks at, unless one is being loaded. Return whether they look at one."""
        self._holes = [hole for hole in self._holes if hole in self.transcript.block_layout]
        hole = None if self._loading else next(filter(self.transcript.is_in_view, self._holes), None)
        if hole is not None:
            self.transcript.run_worker(self.load(hole, turn_page=turn_page))
        return hole is not None

    async def load(self, hole: HoleBlock, *, turn_page: bool) -> None:
        """Load the newest events of a hole. What is on the screen stays, or moves to the bottom (`turn_page`)."""
        if self._loading:
            return
        if not self.transcript.block_layout.has_room_for_earlier:
            self._set_text(hole, "… earlier events are not loaded: this page is full")
            return
        self._loading = True
        self._set_text(hole, "… loading earlier events")
        try:
            events = await self.client.earlier(hole.before)
        except CcbError as error:
            self._set_text(hole, f"{_hole_text(hole, hint='')}: {error.what} · PgUp tries again")
            return
        finally:
            self._loading = False
        self._fill(hole, [each for each in events if hole.after < each.seq < hole.before], turn_page=turn_page)

    async def load_newest(self) -> bool:
        """Load the newest events that are not loaded. Return False if there are none, no room, or no answer."""
        if not self._holes or self._loading or not self.transcript.block_layout.has_room_for_earlier:
            return False
        hole, before = self._holes[-1], self._holes[-1].before
        await self.load(hole, turn_page=False)
        return hole not in self._holes or hole.before != before

    def _fill(self, hole: HoleBlock, events: Sequence[SessionEvent], *, turn_page: bool) -> None:
        if hole not in self.transcript.block_layout:
            return  # the full transcript has dropped the hole meanwhile
        loaded = BlockList()
        later = self.reducer
        earlier = TranscriptReducer(loaded, cwd=later.notices.cwd, orphans=later.orphans, agent_id=later.agent_id)
        earlier.prompts.share(self.reducer.prompts)
        for event in events:
            earlier.apply_event(event.record, replayed=event.replayed)
        self.reducer.adopt(earlier)
        missing = hole.before - 1 - events[-1].seq if events else 0
        if missing:
            loaded.add(NoticeBlock(text=f"… {missing} events are missing on the host", level=Level.WARNING))
        self.transcript.insert(loaded.blocks, after=hole, turn_page=turn_page)
        if events and events[0].seq > hole.after + 1:
            hole.before = events[0].seq
            self._set_text(hole, _hole_text(hole))
        else:
            self._holes.remove(hole)
            self.transcript.take_away(hole)

    def _set_text(self, hole: HoleBlock, text: str) -> None:
        hole.text = text
        self.transcript.update_block(hole)


def _hole_text(hole: HoleBlock, hint: str = _HINT) -> str:
    if hole.after:
        return f"… {hole.before - hole.after - 1:,} events are not loaded{hint}"
    return f"… earlier events are not loaded{hint}"
