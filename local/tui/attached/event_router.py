"""Route the events of a session to the transcript, the approvals and the history loader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccb.tunnel.wire.kinds.mcp import ELICITATION
from ccb.tunnel.wire.messages import ControlCancelLine, ControlRequestLine, ControlResponseLine, PublicLine, ResultLine
from ccb.tunnel.wire.records import MAIN_AGENT, InputRecord, MessageRecord, agent_of_message
from ccb.tunnel.wire.requests import CAN_USE_TOOL, RequestKind

from ...session.client import Received, SessionClient, Skipped, parse_snapshot
from ..model.blocks import Level
from ..model.transcript_reducer import TranscriptReducer
from ..widgets.history import HistoryLoader
from .approvals import Approvals, Settlement

ASKED_ON_CARDS: tuple[RequestKind[Any, Any], ...] = (CAN_USE_TOOL, ELICITATION)
"""The requests that the person answers on a card."""

_ON_CARDS = frozenset(kind.name for kind in ASKED_ON_CARDS)


class EventRouter:
    """Routes events. `ring` is called, with the type of the notification, for events that the person may be waiting
    for, but never during a replay."""

    def __init__(
        self,
        client: SessionClient,
        reducer: TranscriptReducer,
        approvals: Approvals,
        history: HistoryLoader,
        ring: Callable[[str], None],
    ) -> None:
        self._client = client
        self._reducer = reducer
        self._approvals = approvals
        self._history = history
        self._ring = ring
        for kind in ASKED_ON_CARDS:
            client.register(kind)

    def skipped(self, item: Skipped) -> None:
        """Show a line in place of events that are not loaded, and take over the state after them."""
        state = parse_snapshot(item.body)
        self._history.skipped(self._approvals.last_seq, item.seq + 1)
        self._approvals.event_came(item.seq, replayed=True)
        self._reducer.skipped(state, running=self._client.hello.state != "idle")
        if self._approvals.replace_all(state.questions):
            self._reducer.notice("The question that was open here has been settled meanwhile.", Level.DIM)

    def received(self, item: Received) -> None:
        """Route an event or progress."""
        self._approvals.event_came(item.seq, replayed=item.replayed)
        if item.kind == "progress":
            if agent_of_message(item.body) == MAIN_AGENT:
                self._reducer.apply_progress(item.public)
            self._message(item.public, replayed=item.replayed)  # such as a question that no journal holds
            return
        self._reducer.apply_event(item.record, replayed=item.replayed)
        content = item.record.content
        if isinstance(content, InputRecord) and isinstance(content.public, ControlResponseLine):
            self._answer(content.public)
        elif isinstance(content, MessageRecord):
            self._message(item.public, replayed=item.replayed)

    def _message(self, public: PublicLine, *, replayed: bool) -> None:
        if isinstance(public, ControlRequestLine) and public.subtype in _ON_CARDS:
            if self._approvals.opened(public) and not replayed:
                self._ring("permission_prompt")
        elif isinstance(public, ControlCancelLine):
            self._approvals.withdrawn(public.request_id)
        elif isinstance(public, ResultLine) and not replayed:
            self._ring("idle_prompt")

    def _answer(self, answer: ControlResponseLine) -> None:
        """Close a question that a client has answered, and tell the person if another client did."""
        if not answer.request_id:
            return
        settlement = self._approvals.settled(answer.request_id, answer.payload)
        if settlement is Settlement.BY_ANOTHER:
            self._reducer.notice("The question was answered by another client.", Level.DIM)
        elif settlement is Settlement.BEFORE_US:
            verdict = "allowed" if (answer.payload or {}).get("behavior") == "allow" else "denied"
            self._reducer.notice(f"Another client answered first: {verdict}. Your answer was dropped.", Level.WARNING)
