"""Events that were not loaded: the lines that stand for them, and loading them when the person looks there."""

from __future__ import annotations

from collections.abc import Sequence

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line

from ...session.client import Received, SessionClient
from ...session.messages import ControlCancelRequest, ControlRequest, Message, parse_message
from ..model.block_container import ListPage
from ..model.blocks import HoleBlock, Level, NoticeBlock
from ..model.transcript_reducer import Story
from .transcript import Transcript

_MORE = "PgUp here loads them"


class History:
    """The holes of one transcript."""

    def __init__(self, client: SessionClient, transcript: Transcript, story: Story) -> None:
        self._client = client
        self._transcript = transcript
        self._story = story
        self._holes: list[HoleBlock] = []
        self._loading = False

    def skipped(self, after: int, before: int) -> None:
        """The events between these numbers were not loaded."""
        if before <= after + 1:
            return  # the host has lost events that are shown here
        hole = HoleBlock(level=Level.DIM, after=after, before=before)
        hole.text = _text(hole)
        self._holes.append(hole)
        self._transcript.add(hole, before=self._story.asked.first_waiting())

    def wanted(self) -> HoleBlock | None:
        """The hole that is looked at; None when there is none, or one is being loaded."""
        self._holes = [hole for hole in self._holes if self._transcript.holds(hole)]
        if self._loading:
            return None
        return next((hole for hole in self._holes if self._transcript.shows(hole)), None)

    async def load(self, hole: HoleBlock, *, turn_page: bool) -> None:
        """Load the newest events of a hole. What is shown stays where it is; with `turn_page` it goes to the bottom."""
        if self._loading:
            return
        if not self._transcript.has_room:
            self._say(hole, "… earlier events are not loaded: this page is full")
            return
        self._loading = True
        self._say(hole, "… loading earlier events")
        try:
            records = await self._client.earlier(hole.before)
        except CcbError as error:
            self._say(hole, f"{_text(hole, more='')}: {one_line(error.what)} · PgUp tries again")
            return
        finally:
            self._loading = False
        self._put(hole, [each for each in records if hole.after < each.seq < hole.before], turn_page=turn_page)

    def _put(self, hole: HoleBlock, records: Sequence[Received], *, turn_page: bool) -> None:
        if not self._transcript.holds(hole):
            return  # the page has grown too long meanwhile
        page = ListPage()
        earlier = Story(page, strays=self._story.strays)
        earlier.asked.share(self._story.asked)
        for record in records:
            tell(earlier, record)
        self._story.adopt(earlier)
        missing = hole.before - 1 - records[-1].seq if records else 0
        if missing:
            page.add(NoticeBlock(text=f"… {missing} events are missing on the host", level=Level.WARNING))
        self._transcript.insert(page.blocks, after=hole, turn_page=turn_page)
        if records and records[0].seq > hole.after + 1:
            hole.before = records[0].seq
            self._say(hole, _text(hole))
        else:
            self._holes.remove(hole)
            self._transcript.take_away(hole)

    def _say(self, hole: HoleBlock, text: str) -> None:
        hole.text = text
        self._transcript.update_block(hole)


def tell(story: Story, event: Received) -> Message | None:
    """Apply one event to a story, which has nothing to do with questions; the message that it is."""
    if not event.replayed:
        story.fresh = False
    if event.kind not in ("message", "progress"):
        story.fact(event.kind, event.body)
        return None
    message = parse_message(event.body)
    if not isinstance(message, ControlRequest | ControlCancelRequest):
        story.message(message)
    return message


def _text(hole: HoleBlock, more: str = f" · {_MORE}") -> str:
    if hole.after:
        return f"… {hole.before - hole.after - 1:,} events are not loaded{more}"
    return f"… earlier events are not loaded{more}"
