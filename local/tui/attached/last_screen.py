"""The end of a long session, shown before the worker has read the whole journal of that session."""

from __future__ import annotations

from ccb.tunnel.link.greeting import Greeting
from ccb.tunnel.wire.records import parse_page

from ..model.blocks import BlockList
from ..model.transcript_reducer import TranscriptReducer
from ..widgets.transcript import Transcript


class LastScreen:
    """Shows the records that a hello has brought at the end of the transcript. The events themselves come above them.
    When the last of these has come, it shows the same, and the early blocks are taken away."""

    def __init__(self, transcript: Transcript, reducer: TranscriptReducer) -> None:
        self._transcript = transcript
        self._reducer = reducer
        self._ends = 0  # the number of the last event that had happened before

    def show(self, hello: Greeting) -> None:
        """Show what this hello has brought."""
        early = BlockList()
        loaded = TranscriptReducer(early)
        for record in parse_page(hello.last):
            loaded.apply_event(record, replayed=True)
        loaded.session_ended()  # what the last worker left open will be closed
        if early.blocks:
            self._ends, self._reducer.catching_up = hello.seq, True
            self._transcript.keep_last(early.blocks)

    def event_came(self, seq: int) -> None:
        """All events up to this number are in the transcript."""
        if self._ends and seq >= self._ends:
            self.take_away()

    def take_away(self) -> None:
        """Show only what has come since."""
        self._ends, self._reducer.catching_up = 0, False
        self._transcript.keep_last([])
