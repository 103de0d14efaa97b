"""The whole conversation on a page of its own: every event of the session, all of its output, to be searched."""

from __future__ import annotations

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.records import MAIN_AGENT, agent_of_message

from ...session.client import Received, SessionClient, Skipped, parse_snapshot
from ..model.transcript_reducer import TranscriptReducer
from ..render.pictures import PictureShelf
from ..widgets.history import HistoryLoader
from ..widgets.transcript import Transcript
from .page import ReadingPage

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
        self._early: list[Received] | None = []  # what comes before the first page is here

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

    def received(self, event: Received) -> None:
        """Something happens in the session."""
        if self._early is not None:
            self._early.append(event)
        elif event.kind == "progress":
            if agent_of_message(event.body) == MAIN_AGENT:
                self._reducer.apply_progress(event.public)
        elif event.seq > self._seq:
            self._seq = event.seq
            self._reducer.apply_event(event.record, replayed=event.replayed)

    def skipped(self, item: Skipped) -> None:
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
