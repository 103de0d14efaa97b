"""Reads the items of a session, for all who drive one: prompts of a program, and headless runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.dataclass import dataclass

from ..session import session_client as client
from ..session.partial_events import PartialEvents
from ..session.turn_outcomes import PendingPrompts


@dataclass(frozen=True)
class Line:
    """A public message, each part of it once. `kept`: it is in the journal. `ours`: it is the result of a turn of this
    client, for the prompts that it `answers`."""

    public: messages.PublicMessage
    kept: bool = True
    ours: bool = False
    answers: Sequence[str] = ()


@dataclass(frozen=True)
class Taken:
    """A turn has taken these prompts."""

    inputs: Sequence[str]


Change = records.TurnStartRecord | records.TurnEndRecord | records.UnqueuedRecord | records.DamagedRecord
"""Of the main agent, and of the journal."""
Found = Line | Taken | Change | client.LinkChange | client.EventGap | client.LaptopNotice


class SessionReader:
    """Reads the items of one session in their order. `pending` are the prompts that wait for an answer. `cost` is what
    the session has cost up to the last result, `turn_cost` what its turn has cost. `denied_unasked`: since the result
    before, a call was denied because nobody could be asked. `goodbye` is why the host has ended the session."""

    def __init__(self, pending: PendingPrompts) -> None:
        self.pending = pending
        self.cost = self.turn_cost = 0.0
        self.denied_unasked = False
        self.goodbye = ""
        self._partial = PartialEvents()
        self._first_connection = True

    def read(self, item: client.Item) -> Iterator[Found]:
        match item:
            case client.LinkChange(state=state, reason=reason):
                self._first_connection = False  # what is replayed from now on may belong to this client
                if state is client.LinkState.CLOSED:
                    self.goodbye = reason
                yield item
            case client.EventGap(body=body):
                skipped = client.parse_snapshot(body)
                self.cost = messages.as_number((skipped.result or {}).get("total_cost_usd"))
                if skipped.prompts is not None:  # newer than what the hello said
                    taken = (each for prompt in skipped.prompts if prompt.taken for each in prompt.ids)
                    self.pending.runs_already(taken)
                yield item
                yield from map(Line, skipped.questions)
            case client.LaptopNotice():
                yield item
            case client.SessionEvent(kind="progress", public=public):
                yield from self._message(public, kept=False)
            case client.SessionEvent():
                yield from self._record(item)

    def _record(self, item: client.SessionEvent) -> Iterator[Found]:
        if taken := self.pending.record(item.record):
            yield Taken(taken)
        match item.record.content:
            case records.MessageRecord(public=public):
                earlier = item.replayed and self._first_connection  # it was written before this client came
                if earlier and isinstance(public, messages.ResultMessage):
                    self.pending.foreign_turn = True
                if isinstance(public, messages.TaskMessage) and not earlier:
                    self.pending.task_news(public)
                yield from self._message(public, kept=True)
            case change if isinstance(change, Change) and not item.record.agent_id:
                yield change

    def _message(self, public: messages.PublicMessage, *, kept: bool) -> Iterator[Line]:
        match public:
            case messages.StreamEventMessage(body=body):
                new = self._partial.new_part(body)  # None for one that came before a reconnect, too
                if new is not None:
                    yield Line(public if new is body else messages.parse_message(new), kept)
            case messages.ResultMessage(total_cost_usd=total):
                self.turn_cost, self.cost = max(0.0, total - self.cost), total
                answers = self.pending.answered()
                yield Line(public, kept, self.pending.result_came(), answers)
                self.denied_unasked = False  # a sub-agent may be denied a call between two turns
            case _:
                if isinstance(public, messages.SystemMessage) and public.subtype == "permission_denied":
                    self.denied_unasked = self.denied_unasked or public.decision_behavior == "ask"
                yield Line(public, kept)
