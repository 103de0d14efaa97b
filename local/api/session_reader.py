"""What the items of a session are to the program: events, answers, questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire import messages

from ..session import session_client as client
from ..session.partial_events import PartialEvents
from ..session.turn_outcomes import PendingPrompts
from .events import Connection, Event, Notice, answer_of, events_of


@dataclass(frozen=True)
class Taken:
    """A turn has taken these prompts."""

    inputs: Sequence[str]


Found = Event | Taken | messages.ControlRequest | messages.ControlCancel


class SessionReader:
    """Reads the items of one session in their order. `pending` are the prompts that wait for an answer, `cost` is what
    the session has cost up to the last one."""

    def __init__(self) -> None:
        self.pending = PendingPrompts()
        self.cost = 0.0
        self._partial = PartialEvents()
        self._first_connection = True
        self._denied_unasked = False

    def read(self, item: client.Item) -> Iterator[Found]:
        match item:
            case client.LinkChange(state=state, reason=reason, attempt=attempt):
                self._first_connection = False
                if state is client.LinkState.CONNECTED or (state is client.LinkState.RECONNECTING and attempt == 1):
                    yield Connection(state.value, reason)
            case client.EventGap(body=body):
                skipped = client.parse_snapshot(body)
                self.cost = messages.as_number((skipped.result or {}).get("total_cost_usd"))
                if skipped.prompts is not None:
                    taken = (each for prompt in skipped.prompts if prompt.taken for each in prompt.ids)
                    self.pending.runs_already(taken)
                yield from skipped.questions
            case client.LaptopNotice(text=text):
                yield Notice(text)
            case client.SessionEvent(kind="progress", public=public):
                yield from self._message(public)
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
                yield from self._message(public)
            case records.TurnStartRecord() if not item.record.agent_id:
                self._denied_unasked = False
            case records.DamagedRecord(what=what) if what:
                yield Notice(f"the session's journal is damaged: {what}")

    def _message(self, public: messages.PublicMessage) -> Iterator[Found]:
        match public:
            case messages.ControlRequest() | messages.ControlCancel():
                yield public
            case messages.ControlResponse():
                pass
            case messages.StreamEventMessage(body=body):
                new = self._partial.new_part(body)  # None for one that came before a reconnect, too
                yield from events_of(messages.parse_message(new)) if new is not None else ()
            case messages.ResultMessage(total_cost_usd=total):
                before, self.cost = self.cost, total
                if self.pending.result_came():
                    yield answer_of(public.body, before, denied_unasked=self._denied_unasked)
            case _:
                if isinstance(public, messages.SystemMessage) and public.subtype == "permission_denied":
                    self._denied_unasked = self._denied_unasked or public.decision_behavior == "ask"
                yield from events_of(public)
