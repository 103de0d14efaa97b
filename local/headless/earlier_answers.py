"""A client may send a prompt again that the session has answered before this run. The prompt does not run again: ccb
finds its result in the journal, and sends it to the client once more."""

from __future__ import annotations

import asyncio
import time

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.kinds.queue import TakenRecord, UnqueuedRecord
from ccb.tunnel.wire.messages import ResultLine
from ccb.tunnel.wire.records import InputRecord, MessageRecord, PromptRecord, TurnEndRecord

from ..session.client import Json, Received
from ..session.remote_session import RemoteSession
from .results import local_result
from .turn_results import TurnResults


class EarlierAnswers:
    """Finds the results of prompts that the session answered before this run, and prints them for the client."""

    def __init__(self, session: RemoteSession, results: TurnResults) -> None:
        self._session = session
        self._results = results
        self._connected = asyncio.Event()
        self._looking: set[asyncio.Task[None]] = set()

    def look_for(self, input_id: str) -> None:
        """Find out whether the session has answered this prompt before. The client has chosen its id."""
        self._looking.add(asyncio.create_task(self._look_for(input_id), name=f"answer to {input_id}"))

    def connected_again(self) -> None:
        """Go on looking: there is a new connection."""
        self._connected.set()

    async def told(self) -> None:
        """Return when everything that was looked for is found and told."""
        await asyncio.gather(*self._looking)

    async def close(self) -> None:
        """Stop looking."""
        for task in self._looking:
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)

    async def _look_for(self, input_id: str) -> None:
        begun = time.monotonic()
        while True:
            self._connected.clear()
            try:
                skipped = await self._session.had_before(input_id)
                fate = _Fate(input_id) if skipped is None else await self._fate(input_id, skipped)
                break
            except CcbError:
                await self._connected.wait()
        if fate.result is None and fate.why:
            duration = round((time.monotonic() - begun) * 1000)
            ours = self._session.hello.session
            fate.result = local_result(ours, [fate.why], reason="answered_before", duration_ms=duration)
        if fate.result is not None:
            await self._results.answered_before(input_id, fate.result)

    async def _fate(self, input_id: str, skipped: int) -> _Fate:
        """Read the journal backwards from event `skipped` until it is known what has become of a prompt. What is still
        waiting or running there is answered by an event that this run gets."""
        fate, before = _Fate(input_id), skipped + 1
        while page := await self._session.earlier(before):
            before = page[0].seq
            if any(fate.decided_by(each) for each in reversed(page) if not each.record.agent_id):
                return fate
        fate.why = "This prompt was sent to the session before. Its result is not in the journal."
        return fate


class _Fate:
    """What has become of a prompt, from the events in reverse: the `result` of the turn that took it, or `why` there is
    none. Both are empty if it waits or runs."""

    def __init__(self, input_id: str) -> None:
        self.result: Json | None = None
        self.why = ""
        self._input_id = input_id
        self._turn_ended = False  # the turn that the event belongs to
        self._of_turn: Json | None = None

    def decided_by(self, event: Received) -> bool:
        """Take the next older event of the main agent. Return whether the rest does not matter."""
        match event.record.content:
            case TurnEndRecord():
                self._turn_ended, self._of_turn = True, None
            case MessageRecord(public=ResultLine()) as message:
                self._turn_ended, self._of_turn = True, message.body
            case PromptRecord(input_ids=ids) if self._input_id in ids:
                return self._taken()
            case TakenRecord(input_id=taken) if taken == self._input_id:
                return self._taken()
            case UnqueuedRecord(id=unqueued) if unqueued == self._input_id:
                self.why = "This prompt was sent to the session before, and taken back."
                return True
            case InputRecord(id=sent) if sent == self._input_id:
                return True
        return False

    def _taken(self) -> bool:
        self.result = self._of_turn
        if self._turn_ended and self.result is None:
            self.why = "This prompt was sent to the session before. Its turn has ended without a result."
        return True
